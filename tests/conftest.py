"""For all tests."""

from __future__ import annotations

import os
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says more about what else the machine does than about the example.
settings.register_profile("petctl", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("petctl")


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `petctl.files` writes from now on meets a disk without room: the drafts are made, and stay empty."""
    open_file = os.fdopen

    def without_room(descriptor: int, mode: str) -> IO[Any]:
        os.close(descriptor)
        return open_file(os.open("/dev/full", os.O_WRONLY | os.O_CLOEXEC), mode)

    monkeypatch.setattr(os, "fdopen", without_room)
