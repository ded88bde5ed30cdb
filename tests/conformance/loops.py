"""The cluster of docs/adding-a-cluster.md, as a package that is installed beside petctl."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import ClassVar

import tomllib

from petctl import kinds
from petctl.jobs import JobHandle
from tests.conformance import backend as has
from tests.conformance.backend import ROOT, Backend

EXAMPLE = ROOT / "examples" / "own_cluster"


class LoopsBackend(Backend):
    """Found by its entry point, by this process and those that it starts."""

    name = cluster = "loops"
    lacks: ClassVar = {
        has.WAITING: "there is no queue",
        has.UNREACHABLE: "files are always there",
        has.TOKEN: "it does not offer that",
    }

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._installed = directory / "installed"
        install(EXAMPLE, self._installed)
        sys.path[:0] = self._places()
        kinds._brought.cache_clear()

    def close(self) -> None:
        for place in self._places():
            sys.path.remove(place)
        kinds._brought.cache_clear()

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *self._places()])}

    def _places(self) -> list[str]:
        return [str(EXAMPLE), str(self._installed)]

    def _job(self, job_id: str) -> Path:
        return self.directory / "home" / self.name / job_id

    def left(self, job_id: str) -> list[str]:
        return [str(path) for path in [self._job(job_id)] if path.exists()]

    def lose_node(self, handle: JobHandle, node: str) -> None:
        os.kill(self.process(handle, node), signal.SIGKILL)

    def lose_controller(self, handle: JobHandle) -> None:
        os.kill(self.process(handle, "coordinator"), signal.SIGKILL)

    def keeper(self, handle: JobHandle, name: str) -> int:
        """The process id of what keeps one running."""
        return int((self._job(handle.id) / f"{name}.lock").read_text())

    def process(self, handle: JobHandle, name: str) -> int:
        """The process id of what is kept."""
        keeper = self.keeper(handle, name)
        return int(Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])


def install(project: Path, place: Path) -> None:
    """What an installation leaves of a project's entry points; its modules stay where they are."""
    described = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    metadata = place / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    metadata.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    (metadata / "METADATA").write_text(text)
    points = described["entry-points"]
    lines = [line for group in points for line in (f"[{group}]", *(f"{k} = {v}" for k, v in points[group].items()))]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
