"""The `az` stand-in: installed only when asked for, never in a real one's way."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from petctl.cli.failures import run_to_exit_code


def petctl(*words: str) -> int:
    return run_to_exit_code(["compat", *words])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for programs that is the whole PATH, but for the system's own."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'real'}{os.pathsep}{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin")
    return tmp_path / "bin"


def real_az(folder: Path) -> Path:
    path = folder.parent / "real" / "az"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\necho the real one\n")
    path.chmod(0o755)
    return path


def test_it_is_a_program_that_says_what_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert petctl("install", "az", "--dir", str(folder)) == 0
    assert capsys.readouterr().out.strip() == str(folder / "az")
    done = subprocess.run([folder / "az", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("az of petctl ")
    assert petctl("install", "az", "--dir", str(folder)) == 0  # again: its own it may replace
    assert petctl("uninstall", "az", "--dir", str(folder)) == 0
    assert not (folder / "az").exists()


def test_it_refuses_to_hide_a_real_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = real_az(folder)
    assert petctl("install", "az", "--dir", str(folder)) == 2
    assert str(real) in capsys.readouterr().err
    assert not (folder / "az").exists()
    assert petctl("install", "az", "--dir", str(real.parent), "--force", "--dir", str(folder)) == 0
    assert str(real) in capsys.readouterr().err
    assert petctl("uninstall", "az", "--dir", str(real.parent)) == 2
    assert real.read_text().endswith("echo the real one\n")


def test_list_says_whose_each_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert petctl("list", "--dir", str(folder), "-o", "json") == 0
    assert {row["name"]: row["is"] for row in json.loads(capsys.readouterr().out)}["az"] == "none"
    real_az(folder)
    assert petctl("list", "--dir", str(folder), "-o", "json") == 0
    assert {row["name"]: row["is"] for row in json.loads(capsys.readouterr().out)}["az"] == "not petctl's"
