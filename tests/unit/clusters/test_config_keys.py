"""A key that is not known is an error, with the file and the nearest right one."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.config.settings import cluster_settings, store_settings
from petctl.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cluster: {local: {slots: 3}}", "cluster is not a known setting; did you mean 'clusters'?"),
        ("clusters: {local: {slot: 3}}", "clusters.local.slot is not a known setting; did you mean 'slots'?"),
        ("clusters: {lab: {kind: local, containr: x}}", "clusters.lab.containr is not a known setting"),
        (
            "clusters: {k8s: {contxt: x}}",
            "clusters.k8s.contxt is not a known setting; did you mean 'context'?",
        ),
        ("clusters: {west: {resourcs: 1}}", "clusters.west.resourcs is not a known setting; did you mean 'resources'?"),
        ("stores: {'s3://': {endpont: x}}", "stores.s3://.endpont is not a known setting; did you mean 'endpoint'?"),
        ("zzz: 1", "zzz is not a known setting; known here: cache, clusters, folders, mounts, secrets, store, stores"),
        ("trusted: [/]", "trusted: only your own configuration can set this, not the project's"),
        ('"a\\e[31m": 1', "'a\\x1b[31m' is not a known setting"),
    ],
)
def test_an_unknown_key_is_told_with_its_file(text: str, told: str, project: Path) -> None:
    (project / "petctl.yaml").write_text(text)
    with pytest.raises(UsageError) as error:
        store_settings()
    assert str(error.value).startswith(f"{project / 'petctl.yaml'}: {told}")


def test_all_are_told_at_once(project: Path) -> None:
    (project / "petctl.yaml").write_text("one: 1\nclusters: {local: {slot: 3}}\n")
    with pytest.raises(UsageError) as error:
        cluster_settings("local")
    assert len(str(error.value).splitlines()) == 2


def test_what_there_is_may_be_said(project: Path) -> None:
    (project / "petctl.yaml").write_text(
        "store: s3://b/x\ncache: 1GiB\nfolders: {data: s3://b/d}\nmounts: {}\nsecrets: {}\n"
        "stores: {'s3://': {region: x}}\nclusters:\n  other: {slots: 1}\n"
        "  local: {slots: 1, folders: {}, resources: {memory: 1GiB}}\n"
        "  k8s: {image: i, resources: {shm: 1GiB}, volumes: [], folders: {}, pod: {}}\n"
    )
    assert cluster_settings("k8s")["resources"] == {"shm": "1GiB"}
