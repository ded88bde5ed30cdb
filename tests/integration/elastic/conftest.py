"""Fixtures of the elastic library's tests with real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.elastic.harness import ROOT, Fleet, Nursery


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch, as `make test` provides it."""
    python = os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"no PyTorch: {python} does not exist; `make test` installs it")
    return python


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
