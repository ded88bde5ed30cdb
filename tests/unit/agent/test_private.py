"""The node's private directory: whose it is, and that nothing of it stays."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import petctl
from petctl.agent.node import runtime_dir

parents = runtime_dir._parents  # the real one


@pytest.mark.parametrize(
    ("said", "first"), [("", "/tmp"), ("/var/tmp", "/var/tmp"), ("/my files", "/tmp"), (".", "/tmp")]
)
def test_its_path_is_one_word_whatever_the_users_is(monkeypatch: pytest.MonkeyPatch, said: str, first: str) -> None:
    monkeypatch.setenv("TMPDIR", said)
    assert parents()[0] == first


@pytest.fixture(autouse=True)
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where it is made; short, as the name of a socket has to be."""
    parent = tmp_path / "t"
    parent.mkdir()
    monkeypatch.setattr(runtime_dir, "_parents", lambda: [str(parent)])
    monkeypatch.setattr(runtime_dir, "_LONGEST", len(os.fsencode(parent)) + 30)
    return parent


def test_it_is_closed_to_others_and_removed_with_all_that_is_in_it(parent: Path) -> None:
    path = runtime_dir.make("")
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    Path(path, runtime_dir.SOCKET).touch()
    assert runtime_dir.library(path, "")
    runtime_dir.remove(path)
    assert not list(parent.iterdir())


def test_a_node_finds_what_its_last_life_left(parent: Path) -> None:
    path = runtime_dir.make("/nodes/0")
    Path(path, runtime_dir.SOCKET).touch()
    assert runtime_dir.make("/nodes/0") == path and not list(Path(path).iterdir())
    assert runtime_dir.make("/nodes/1") != path
    runtime_dir.remove_of("/nodes/0")
    runtime_dir.remove_of("/nodes/1")
    runtime_dir.remove_of("/nodes/2")
    assert not list(parent.iterdir())


def test_a_directory_that_others_can_enter_is_not_taken(parent: Path) -> None:
    (parent / runtime_dir.name_of("/nodes/0")).mkdir()
    (parent / runtime_dir.name_of("/nodes/0")).chmod(0o755)
    (parent / runtime_dir.name_of("/nodes/1")).symlink_to("/etc")
    assert runtime_dir.make("/nodes/0") == "" == runtime_dir.make("/nodes/1")
    runtime_dir.remove_of("/nodes/0")
    runtime_dir.remove_of("/nodes/1")
    assert len(list(parent.iterdir())) == 2


def test_where_the_path_would_be_too_long_another_place_is_taken(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = parent / ("long" * 20)
    long.mkdir()
    monkeypatch.setattr(runtime_dir, "_parents", lambda: ["/no/such", str(long), str(parent)])
    assert Path(runtime_dir.make("")).parent == parent
    monkeypatch.setattr(runtime_dir, "_parents", lambda: [str(long)])
    assert runtime_dir.make("") == ""
    runtime_dir.remove("")


def test_workers_find_this_petctl_and_nothing_that_is_installed_beside_it(parent: Path) -> None:
    path = runtime_dir.library(runtime_dir.make(""), "/no/such/python")
    program = "import petctl, importlib.util as u; print(petctl.__version__, u.find_spec('click'))"
    environment = {"PYTHONPATH": path, "PATH": os.environ["PATH"]}
    bare = [sys.executable, "-S", "-c", program]
    out = subprocess.run(bare, env=environment, capture_output=True, text=True, check=True, timeout=30, cwd="/")
    assert out.stdout.split() == [petctl.__version__, "None"]


def test_an_environment_that_has_this_petctl_is_left_alone(tmp_path: Path) -> None:
    python = tmp_path / "venv/bin/python"
    packages = tmp_path / "venv/lib/python3.12/site-packages"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    other = packages / "petctl-0.0.1.dist-info"
    other.mkdir(parents=True)
    assert runtime_dir.library(runtime_dir.make(""), str(python))
    other.rename(packages / f"petctl-{petctl.__version__}.dist-info")
    assert runtime_dir.library(runtime_dir.make(""), str(python)) == ""
