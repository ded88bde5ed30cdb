"""Fixtures of the elastic library's tests with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.elastic.harness import Fleet, Nursery


@pytest.fixture(scope="session")
def nursery(torch_python: str) -> Iterator[Nursery]:
    """Where workers with torch come from."""
    nursery = Nursery(torch_python)
    try:
        yield nursery
    finally:
        nursery.close()


@pytest.fixture
def fleet(tmp_path: Path, nursery: Nursery) -> Iterator[Fleet]:
    """Workers of `training.py`; none is left afterwards."""
    fleet = Fleet(tmp_path, nursery, Path(__file__).with_name("training.py"))
    try:
        yield fleet
    finally:
        fleet.close()
