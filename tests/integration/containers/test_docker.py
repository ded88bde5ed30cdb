"""The same with docker: its daemon starts containers, and they outlive whoever asked for them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.containers.conftest import PYTHON, ContainerEngine, ContainerStage, clear_away, staged, wrapper
from tests.integration.containers.test_containers import clients, guardian, kill_at_once, supervisors
from tests.integration.local.conftest import eventually, processes_of
from tests.integration.waiting import until


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory, image_files: dict[str, Path]) -> Iterator[ContainerEngine]:
    """A daemon of its own, which touches neither the network of this machine nor the images of another."""
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    if os.geteuid() != 0 or program is None or shutil.which("docker") is None:
        pytest.skip("needs root and docker: apt install docker.io")
    place = tmp_path_factory.mktemp("docker")
    socket = f"unix://{place}/docker.sock"
    own = ["--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "-H", socket, "-p", f"{place}/pid"]
    alone = ["--iptables=false", "--ip-forward=false", "--bridge=none", "--default-ulimit", "nofile=1024:4096"]
    with open(place / "log", "wb") as log:
        daemon = subprocess.Popen([program, *own, *alone], stdout=log, stderr=log, start_new_session=True)
    engine = ContainerEngine(wrapper(place / "engine", ["docker", "-H", socket], place / "notes"), place / "notes")
    try:
        until(lambda: _answers(engine) or daemon.poll() is not None, "an answer of the daemon", 90)
        engine.run("import", str(image_files[PYTHON]), PYTHON)
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(60)
        clear_away(place, "docker")


def _answers(engine: ContainerEngine) -> bool:
    return subprocess.run([engine.program, "info"], capture_output=True, check=False).returncode == 0


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
    eventually(lambda: supervisors(other), "a supervisor and its standby")
    kill_at_once(processes_of(Path(other.status().directory)))
    eventually(lambda: other.status().state == "lost", "that nobody is left", 60)
    assert stage.engine.containers() == []
