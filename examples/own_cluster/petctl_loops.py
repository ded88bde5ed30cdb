"""Clusters that are this machine: a platform as small as it can be."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from petctl.agent.workers.processes import extinguish
from petctl.clusters.agent_archive import AGENT
from petctl.clusters.base import Cluster
from petctl.clusters.directory_jobs import DirectoryBackend, DirectoryJob
from petctl.clusters.managed import ManagedCluster
from petctl.controller.kept_process import kept_here


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What the entry point names."""
    return ManagedCluster(LoopBackend(home, settings))


class LoopBackend(DirectoryBackend):
    """What is started goes on by itself, and says that it does in its directory."""

    detached = True

    def start(self, directory: Path, name: str, words: Sequence[str]) -> None:
        subprocess.run([sys.executable, AGENT, *words], cwd=directory, check=True)

    def running(self, directory: Path) -> dict[str, int]:
        return kept_here(directory)

    def kill(self, job: DirectoryJob) -> None:
        extinguish(lambda: set(kept_here(job.directory).values()), seconds=10)
