"""A petctl of its own for every test, as those of the command line have it; no driver is left behind either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.sweeps.record import SweepDirectory
from tests.integration.cli.conftest import Petctl


@pytest.fixture
def petctl(tmp_path: Path) -> Iterator[Petctl]:
    program = Petctl(tmp_path)
    try:
        yield program
    finally:
        for folder in (program.home / "sweeps").glob("[a-z]*"):
            if SweepDirectory(folder).driven():
                program("sweep", "cancel", folder.name, code=None)
                program("sweep", "status", "--watch", folder.name, code=None)
        program.clean_up()
