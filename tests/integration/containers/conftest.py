"""A container engine with images of its own, jobs that run in it, and proof that no container is left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from petctl.jobs import JobHandle, list_jobs
from tests.integration.conftest import ROOT
from tests.integration.containers.images import bare_image, mpi_image, old_image, python_image
from tests.integration.containers.registry import Registry, registry
from tests.integration.local import conftest as local
from tests.integration.waiting import until

PYTHON, BARE = "localhost/petctl-python:1", "localhost/petctl-bare:1"
HUB, HUB_OFFICIAL = "petctltests/trainer:1", "library/petctltests:1"  # on what the tests have for Docker Hub
RECIPES = ["batchaitraining/chainermn:openMPI", "amsword/setup:py36pt16"]  # what the seeds' documents name
OLD_PYTHON = ["localhost/petctl-old-python:3.6", "localhost/petctl-old-python:2.7"]
# What podman cannot find out by itself on a machine without systemd, or without the right to raise limits.
OPTIONS = ["--ulimit", "nproc=4096:4096"]
SECONDS = 60.0


class ContainerEngine:
    """One engine program, whose images and containers are the tests' own; it notes every word it is given."""

    def __init__(self, program: Path, notes: Path) -> None:
        self.program, self._notes = program, notes

    def run(self, *words: str) -> str:
        return subprocess.run([self.program, *words], check=True, capture_output=True, text=True).stdout

    def containers(self) -> list[str]:
        return self.run("ps", "-aq").split()

    def words(self) -> str:
        """All that it was ever asked to do."""
        return self._notes.read_text()


def wrapper(path: Path, words: list[str], notes: Path, environment: str = "") -> Path:
    """A program that is an engine with these words in front."""
    line = " ".join(f"'{word}'" for word in words)
    path.write_text(f'#!/bin/sh\necho "$@" >> \'{notes}\'\n{environment}\nexec {line} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="session")
def image_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("images")
    torch = os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch" / "bin" / "python"))
    bare = bare_image(place / "bare.tar")
    if bare is None:
        pytest.skip("needs a busybox that is linked statically: apt install busybox-static")
    old = {image: old_image(place / f"old{n}.tar", image.rpartition(":")[2]) for n, image in enumerate(OLD_PYTHON)}
    old[RECIPES[0]] = mpi_image(place / "mpi.tar", "3.6")
    there = {image: file for image, file in old.items() if file is not None}
    return {PYTHON: python_image(place / "python.tar", torch), BARE: bare, **there}


@pytest.fixture(scope="session")
def docker_hub(image_files: dict[str, Path]) -> Iterator[Registry]:
    """What the tests' engines take for Docker Hub."""
    recipes = {image: image_files[RECIPES[0]] for image in RECIPES if RECIPES[0] in image_files}
    with registry({HUB: image_files[BARE], HUB_OFFICIAL: image_files[BARE], **recipes}) as found:
        yield found


@pytest.fixture(scope="session")
def podman(image_files: dict[str, Path], docker_hub: Registry) -> Iterator[ContainerEngine]:
    """Podman as it is installed: it knows no registry to look for short names in. Only Docker Hub is elsewhere."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs root and podman: apt install podman runc")
    place = Path(tempfile.mkdtemp(prefix="podman-"))  # it refuses places with long paths
    own = ["--root", str(place / "root"), "--runroot", str(place / "run"), "--tmpdir", str(place / "tmp")]
    runtime = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin")
    own += [*(["--runtime", runtime] if runtime else []), "--cgroup-manager", "cgroupfs", "--events-backend", "file"]
    registries = place / "registries.conf"
    elsewhere = f'[[registry]]\nprefix = "docker.io"\nlocation = "{docker_hub.address}"\ninsecure = true\n'
    registries.write_text(elsewhere + '[[registry]]\nlocation = "127.0.0.1"\ninsecure = true\n')
    exported = f"export CONTAINERS_REGISTRIES_CONF='{registries}'"
    engine = ContainerEngine(wrapper(place / "engine", ["podman", *own], place / "notes", exported), place / "notes")
    try:
        for name, file in image_files.items():
            if name not in RECIPES:
                engine.run("import", str(file), name)
        yield engine
    finally:
        for words in (["rm", "-af", "--time", "0"], ["rmi", "-af"]):
            subprocess.run([engine.program, *words], check=False, capture_output=True)
        clear_away(place, "libpod_parent")


def clear_away(place: Path, cgroup: str) -> None:
    """What engines leave behind: mounts below their directory, and empty cgroups."""
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        if line.split()[4].startswith(str(place)):
            subprocess.run(["umount", "-l", line.split()[4]], check=False)
    shutil.rmtree(place)
    for root in [*Path("/sys/fs/cgroup").glob(f"*/{cgroup}"), Path("/sys/fs/cgroup", cgroup)]:
        for path, _, _ in os.walk(root, topdown=False):
            with suppress(OSError):
                Path(path).rmdir()


class ContainerStage(local.Stage):
    """One test's directory and jobs, in containers."""

    engine: ContainerEngine

    def has(self, image: str) -> bool:
        return image in self.engine.run("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def configure(self, **settings: Any) -> None:
        local_settings = {"container": str(self.engine.program), "container_options": OPTIONS, **settings}
        (self.path / "petctl.yaml").write_text(json.dumps({"clusters": {"local": local_settings}}))

    def start(self, *words: str, **fields: Any) -> JobHandle:
        return super().start(*words, **{"image": PYTHON, "code": "none", **fields})

    def running(self, world: int, after: int = 0) -> int:
        return int(until(lambda: self._round_of(world, after), f"a round with {world} workers", SECONDS))

    def _round_of(self, world: int, after: int) -> int:
        rounds = sorted({mark.round for mark in self.marks() if mark.round > after and mark.world == world})
        stepping = [n for n in rounds if all(self.steps(n, rank) for rank in range(world))]
        return stepping[0] if stepping else 0


@contextmanager
def staged(
    path: Path, monkeypatch: pytest.MonkeyPatch, engine: ContainerEngine, kind: type[ContainerStage] = ContainerStage
) -> Iterator[ContainerStage]:
    """A place for one test's jobs; afterwards their processes and containers must be gone."""
    monkeypatch.setenv("PETCTL_HOME", str(path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(path / "config"))
    monkeypatch.setenv("VIRTUAL_ENV", str(ROOT / ".venv"))  # which no container may know of
    monkeypatch.chdir(path)
    stage = kind(path)
    stage.engine = engine
    stage.configure()
    try:
        yield stage
    finally:
        left = local.end_all(list_jobs())
        containers = engine.containers()
        if containers:
            engine.run("rm", "-f", *containers)
    assert not left, f"processes were left behind: {left}"
    assert not containers, f"containers were left behind: {containers}"


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, podman: ContainerEngine) -> Iterator[ContainerStage]:
    with staged(tmp_path, monkeypatch, podman) as stage:
        yield stage
