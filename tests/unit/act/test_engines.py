"""Images on a machine without podman and docker."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.compat.act.config.accounts import Hidden
from petctl.compat.act.config.config import Config
from petctl.compat.act.engines import without_missing_engine

IMAGE = "amsword/setup:py36pt16"
BARE = Config(root=Path("/project"))
OWN = Config(root=Path("/project"), image=IMAGE, image_user="me", image_password=Hidden("secret"))


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's own, a cluster elsewhere, and an engine that is not there."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    text = "clusters: {local: {container: /nowhere/podman}, k8s: {namespace: team}}\n"
    (tmp_path / "petctl.yaml").write_text(text)


def test_a_run_on_this_machine_goes_without_its_image_and_that_is_said() -> None:
    told: list[str] = []
    assert without_missing_engine(OWN, told.append) == BARE
    assert len(told) == 1
    assert IMAGE in told[0]
    assert "secret" not in told[0]


def test_other_clusters_have_engines_of_their_own() -> None:
    told: list[str] = []
    elsewhere = Config(image=IMAGE, cluster="k8s")
    assert without_missing_engine(elsewhere, told.append) is elsewhere
    assert without_missing_engine(BARE, told.append) is BARE
    assert told == []


def test_an_engine_that_works_is_used(tmp_path: Path) -> None:
    engine = tmp_path / "podman"
    engine.write_text("#!/bin/sh\necho podman true\n")
    engine.chmod(0o755)
    (tmp_path / "petctl.yaml").write_text(f"clusters: {{local: {{container: {engine}}}}}\n")
    told: list[str] = []
    assert without_missing_engine(OWN, told.append) is OWN
    assert told == []
