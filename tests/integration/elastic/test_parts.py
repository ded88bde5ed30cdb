"""What a State does with torch's own objects; the script says what it checks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.elastic.harness import IMPORTS, environment


@pytest.mark.torch
@pytest.mark.timeout(180)
def test_torch_parts_go_back_to_their_last_commit(torch_python: str) -> None:
    script = Path(__file__).with_name("parts_script.py")
    done = subprocess.run(
        [torch_python, str(script)], env=environment(), capture_output=True, text=True, timeout=IMPORTS
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
