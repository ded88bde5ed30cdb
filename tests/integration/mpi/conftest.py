"""Jobs under a real mpirun, each in a $PETCTL_HOME of its own; what Open MPI leaves behind is looked for as well."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.agent.node import runtime_dir
from tests.integration.local.conftest import Stage, stage

__all__ = ["mpi", "stage"]

PATIENCE = 60.0  # seconds for a round to begin: mpirun, its daemons and all ranks have to start


@pytest.fixture
def mpi(stage: Stage) -> Iterator[Stage]:
    """A stage on whose nodes nothing of mpirun is left after the test."""
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun here; apt install openmpi-bin")
    yield stage
    nodes = [str(path) for path in stage.path.glob("home/jobs/*/nodes/*")]
    places = [Path(parent, runtime_dir.name_of(node) + end) for node in nodes for parent, end in _PLACES]
    assert not [place for place in places if place.exists()]


_PLACES = (("/tmp", ""), ("/dev/shm", ""), ("/dev/shm", "-mpi"))
