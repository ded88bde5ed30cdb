"""No thread of a worker is left waiting in gloo."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.integration.elastic.harness import IMPORTS, environment

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


def test_a_wait_for_a_peer_that_never_comes_is_ended(torch_python: str, tmp_path: Path) -> None:
    argv = [torch_python, str(Path(__file__).with_name("gloo_script.py")), str(tmp_path / "store")]
    with subprocess.Popen([*argv, "1"], env=environment()) as peer:
        try:
            told = subprocess.run([*argv, "0"], env=environment(), capture_output=True, text=True, timeout=IMPORTS)
        finally:
            peer.kill()
    ways = ("receive", "send", "reduce", "reduce much", "barrier")
    assert told.stdout.splitlines() == [f"{way} came back" for way in ways], told.stderr
