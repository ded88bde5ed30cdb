"""The rendezvous told as short stories whose traces a reader can follow (see script.py)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.simulation.script import Script

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text()
    now = Script().run(text)
    if os.environ.get("PETCTL_REWRITE_TRACES"):
        path.write_text(now)
    assert now == text
