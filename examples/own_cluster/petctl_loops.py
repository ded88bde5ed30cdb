"""Clusters of shell loops: a platform as small as it can be. It starts again what ends, on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from petctl.clusters.agent_archive import AGENT
from petctl.clusters.base import Cluster
from petctl.clusters.directory_jobs import LEFT, DirectoryBackend, DirectoryJob
from petctl.clusters.managed import ManagedCluster

LOOP = f'n=0; while "$@" --replacement $n; code=$?; [ $code != 0 ] && [ $code != {LEFT} ]; do n=$((n + 1)); done'


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What the entry point names."""
    return ManagedCluster(LoopBackend(home, settings))


class LoopBackend(DirectoryBackend):
    """Each process has a loop around it, whose process id is in NAME.pid."""

    def start(self, directory: Path, name: str, words: Sequence[str]) -> None:
        argv = ["sh", "-c", LOOP, name, sys.executable, AGENT, *words]
        out, errors = (directory / f"{name}.{kind}" for kind in ("out", "err"))
        with out.open("ab") as stdout, errors.open("ab") as stderr, open(os.devnull) as nothing:
            loop = subprocess.Popen(
                argv, cwd=directory, stdin=nothing, stdout=stdout, stderr=stderr, start_new_session=True
            )
        (directory / f"{name}.pid").write_text(str(loop.pid))

    def running(self, directory: Path) -> dict[str, int]:
        files = {path.stem: path.read_text() for path in directory.glob("*.pid")}
        return {name: int(pid) for name, pid in files.items() if pid and _is_loop(pid, name)}

    def kill(self, job: DirectoryJob) -> None:
        for group in self.running(job.directory).values():
            os.killpg(group, signal.SIGKILL)


def _is_loop(pid: str, name: str) -> bool:
    """Whether that process is still the loop of this name, and not another one that has its number."""
    try:
        return f"\0{name}\0" in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False
