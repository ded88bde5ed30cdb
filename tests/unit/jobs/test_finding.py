"""Finding a job by its id, on clusters of which some may be away."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import NotFound
from petctl.jobs import get
from petctl.jobs.registry import Registry


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("PETCTL_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_cluster_that_cannot_be_asked_is_named(home: Path) -> None:
    (home / "petctl.yaml").write_text("clusters: {west: {kind: kubernetes}, local: {slots: 2}}")
    with pytest.raises(NotFound, match=r"there is no job 'x-1234'(.|\n)*\nwest could not be asked: "):
        get("x-1234")


def test_a_cluster_that_a_job_was_submitted_to_is_asked(home: Path) -> None:
    with pytest.raises(NotFound) as nobody:
        get("x-1234")
    assert "could not be asked" not in str(nobody.value)
    Registry(home / "PETCTL_HOME").know("k8s")
    assert Registry(home / "PETCTL_HOME").clusters() == ["k8s"]
    with pytest.raises(NotFound, match="k8s could not be asked"):
        get("x-1234")
