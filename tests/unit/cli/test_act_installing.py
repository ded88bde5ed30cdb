"""`act`, `a` and the package for `python -m act.aml_client`: written where asked for, removed without a trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from petctl.cli.failures import run_to_exit_code


def petctl(*words: object) -> int:
    return run_to_exit_code(["compat", *map(str, words)])


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=60, cwd="/", env={**os.environ, **environment}
    )


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for programs, and an interpreter without petctl that is the only `python`."""
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    folders = (tmp_path / "real", tmp_path / "bin", tmp_path / "venv/bin", "/bin")
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, folders)))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return tmp_path / "bin"


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() or path.is_symlink()}


def test_both_programs_and_the_package_work_and_go_again(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files(programs.parent)
    assert petctl("install", "act", "--dir", programs) == 0
    package = next(programs.parent.glob("venv/lib/python3*/site-packages")) / "act"
    assert capsys.readouterr().out.split() == [str(programs / "act"), str(programs / "a"), str(package)]
    assert run(programs / "act", "--version").stdout.startswith("act of petctl ")
    assert run(programs / "a", "--version").stdout.startswith("a of petctl ")
    assert run("python", "-m", "act.aml_client", "--version").stdout.startswith("act of petctl ")
    assert petctl("install", "act", "--dir", programs) == 0  # again: its own it may replace

    told = run("python", "-c", "from act.aml_client import create_aml_client").stderr.splitlines()[-1]
    assert told.startswith("ImportError: create_aml_client needs petctl")
    assert sys.executable in told
    found = run("python", "-c", "import act.aml_client as it; print(it.PYTHON)", PYTHONPATH=os.pathsep.join(sys.path))
    assert found.stdout.strip() == sys.executable, found.stderr

    assert petctl("uninstall", "act", "--dir", programs) == 0
    assert files(programs.parent) == before
    assert petctl("uninstall", "act", "--dir", programs) == 2


def test_a_package_goes_to_a_directory_of_the_users_own(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = programs.parent / "mine"
    assert petctl("install", "act", "--dir", programs, "--package-dir", mine) == 0
    assert f"export PYTHONPATH={mine}" in capsys.readouterr().err
    assert run("python", "-m", "act.aml_client", "--version", PYTHONPATH=str(mine)).returncode == 0
    (mine / "act" / "notes.txt").write_text("the user's")
    assert petctl("uninstall", "act", "--dir", programs, "-o", "json") == 0
    assert str(mine / "act") in json.loads(capsys.readouterr().out)["all"]
    assert [path.name for path in files(mine)] == ["notes.txt"]


def test_it_hides_and_replaces_nothing(programs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = programs.parent / "real" / "a"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    assert petctl("install", "act", "--dir", programs) == 2
    assert str(real) in capsys.readouterr().err
    real.unlink()

    package = next(programs.parent.glob("venv/lib/python3*/site-packages")) / "act"
    package.mkdir()
    (package / "__init__.py").write_text("mine = 1\n")
    assert petctl("install", "act", "--dir", programs, "--force") == 2
    assert str(package) in capsys.readouterr().err
    assert not programs.exists()
    assert petctl("install", "act", "--dir", programs, "--package-dir", programs.parent / "mine") == 0
    assert petctl("uninstall", "act", "--dir", programs) == 0
    assert (package / "__init__.py").read_text() == "mine = 1\n"


def test_only_the_programs(programs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert petctl("install", "act", "--dir", programs, "--no-package", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["package"] == ""
    monkeypatch.setenv("PATH", str(programs))
    assert petctl("install", "act", "--dir", programs) == 0
    assert "no `python` on the PATH" in capsys.readouterr().err
    assert petctl("install", "act", "--dir", programs, "--python", "/nowhere/python") == 2
    assert "/nowhere/python" in capsys.readouterr().err
    assert petctl("install", "az", "--dir", programs, "--no-package") == 2


def test_what_a_killed_install_left_is_no_obstacle(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = next(programs.parent.glob("venv/lib/python3*/site-packages")) / "act"
    package.mkdir()
    assert petctl("install", "act", "--dir", programs) == 0

    def killed(draft: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", killed)
    assert petctl("install", "act", "--dir", programs) == 130
    monkeypatch.undo()
    assert "petctl" in (package / "__init__.py").read_text()


def test_a_home_of_nobody_is_no_directory(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(programs.parent)
    assert petctl("install", "az", "--dir", "~nobody-of-this-name/bin") == 0
    assert Path("~nobody-of-this-name/bin/az").is_file()
