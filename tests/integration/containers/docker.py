"""A docker daemon of the tests' own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.containers.conftest import ContainerEngine, clear_away, wrapper
from tests.integration.containers.registry import Registry
from tests.integration.waiting import until


@contextmanager
def docker_engine(
    image_files: dict[str, Path], images: Sequence[str], docker_hub: Registry
) -> Iterator[ContainerEngine]:
    """Touches neither the network of this machine nor the images of another daemon."""
    program = shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin")
    if os.geteuid() != 0 or program is None or shutil.which("docker") is None:
        pytest.skip("needs root and docker: apt install docker.io")
    place = Path(tempfile.mkdtemp(prefix="docker-"))
    socket = f"unix://{place}/docker.sock"
    own = ["--data-root", f"{place}/data", "--exec-root", f"{place}/exec", "-H", socket, "-p", f"{place}/pid"]
    alone = ["--iptables=false", "--ip-forward=false", "--bridge=none", "--default-ulimit", "nofile=1024:4096"]
    alone += ["--registry-mirror", f"http://{docker_hub.address}"]
    with open(place / "log", "wb") as log:
        daemon = subprocess.Popen([program, *own, *alone], stdout=log, stderr=log, start_new_session=True)
    engine = ContainerEngine(wrapper(place / "engine", ["docker", "-H", socket], place / "notes"), place / "notes")
    try:
        until(lambda: _answers(engine) or daemon.poll() is not None, "an answer of the daemon", 90)
        for image in images:
            engine.run("import", str(image_files[image]), image)
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(60)
        clear_away(place, "docker")


def _answers(engine: ContainerEngine) -> bool:
    return subprocess.run([engine.program, "info"], capture_output=True, check=False).returncode == 0
