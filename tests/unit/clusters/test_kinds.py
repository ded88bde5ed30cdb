"""Kinds of clusters that other packages bring are found by their entry points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters.base import find_cluster
from petctl.config import kinds
from petctl.errors import UsageError

STRANGER = """
from petctl.clusters.debug.backend import DebugBackend
from petctl.clusters.managed import ManagedCluster

def connect(home, settings):
    if set(settings) - {"name", "kind", "rack"}:
        raise ValueError(settings)
    return ManagedCluster(DebugBackend(home, f"{settings['name']} of rack {settings.get('rack')}"))
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home, beside an installed package that brings the kind `strange`."""
    site = tmp_path / "site"
    (site / "strange-1.0.dist-info").mkdir(parents=True)
    (site / "strange-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1.0\n")
    (site / "strange-1.0.dist-info/entry_points.txt").write_text(
        "[petctl.clusters]\nstrange = strange_cluster:connect\n"
    )
    (site / "strange_cluster.py").write_text(STRANGER)
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    kinds._brought.cache_clear()
    yield tmp_path / "home"
    kinds._brought.cache_clear()


def test_a_strangers_kind_is_found_by_its_entry_point(home: Path) -> None:
    (home.parent / "petctl.yaml").write_text("clusters: {lab: {kind: strange, rack: 7}}\n")
    assert find_cluster("lab", home).name == "lab of rack 7"
    assert find_cluster("strange", home).name == "strange of rack None"  # the kind's own name will do, too
    assert "strange" in kinds.all_kinds()


def test_a_kind_that_no_package_brings_is_told_with_those_there_are(home: Path) -> None:
    (home.parent / "petctl.yaml").write_text("clusters: {lab: {kind: stranger}}\n")
    with pytest.raises(UsageError, match=r"no cluster 'lab'; the clusters are: debug, k8s, kubernetes, local, strange"):
        find_cluster("lab", home)
    assert not kinds.is_kind("stranger")


def test_petctls_own_kinds_are_found_without_reading_entry_points(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read() -> None:
        raise AssertionError("entry points were read")

    with monkeypatch.context() as patch:
        patch.setattr(kinds, "_brought", read)
        assert find_cluster("local", home).name == "local"
