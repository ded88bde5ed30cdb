"""The same with docker: its daemon starts containers, and they outlive whoever asked for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.containers.conftest import PYTHON, ContainerEngine, ContainerStage, staged
from tests.integration.containers.docker import docker_engine
from tests.integration.containers.registry import Registry
from tests.integration.containers.test_containers import clients, guardian, kill_at_once, supervisors
from tests.integration.local.conftest import processes_of
from tests.integration.waiting import until


@pytest.fixture
def docker(image_files: dict[str, Path], docker_hub: Registry) -> Iterator[ContainerEngine]:
    with docker_engine(image_files, [PYTHON], docker_hub) as engine:
        yield engine


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, docker: ContainerEngine) -> Iterator[ContainerStage]:
    with staged(tmp_path, monkeypatch, docker) as stage:
        yield stage


@pytest.mark.long
def test_docker_runs_nodes_too(stage: ContainerStage) -> None:
    handle = stage.start(nodes=2)
    first = stage.running(2)
    assert handle.exec(["sh", "-c", "exit 5"]) == 5
    os.kill(clients(handle)[0], signal.SIGKILL)
    stage.goes_on(first, 2)
    os.kill(guardian(handle, "0"), signal.SIGKILL)
    stage.running(2, after=first)
    stage.finish()
    status = handle.wait(60)
    assert (status.state, status.spent) == ("succeeded", 0), status.error
    assert stage.engine.containers() == []

    (stage.path / "finish").unlink()
    (stage.path / "marks").unlink()
    other = stage.start()
    stage.running(1)
    until(lambda: supervisors(other), "a supervisor and its standby")
    kill_at_once(processes_of(Path(other.status().directory)))
    assert other.wait(60).state == "lost"
    assert stage.engine.containers() == []
