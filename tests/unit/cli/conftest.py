"""No unit test of the command line touches the user's own jobs."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
