"""Resources of each test's own, and the front ends as a shell would call them, within this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.compat.batchai.cli.base_command import VerbGroup, spread
from petctl.compat.batchai.cli.verbs import OWN


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """petctl's own directory, and no word of the user's configuration or environment."""
    for name in ("AZURE_BATCHAI_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


class FrontEnd:
    """One of the command lines."""

    def __init__(self, program: str, capture: pytest.CaptureFixture[str]) -> None:
        self.program, self.capture, self.said = program, capture, ""

    def __call__(self, line: str, code: int = 0) -> str:
        """Runs one line of words; its stdout. What it said on stderr is in `said`."""
        root = VerbGroup(self.program, verbs=OWN[self.program])
        self.capture.readouterr()
        ended = run_to_exit_code(spread(line.split()), root, self.program)
        out, self.said = self.capture.readouterr()
        assert ended == code, f"exit code {ended}\n{out}{self.said}"
        return out

    def json(self, line: str) -> Any:
        return json.loads(self(line))


@pytest.fixture
def batchai(capsys: pytest.CaptureFixture[str]) -> FrontEnd:
    return FrontEnd("batchai", capsys)


@pytest.fixture
def az(capsys: pytest.CaptureFixture[str]) -> FrontEnd:
    return FrontEnd("az", capsys)
