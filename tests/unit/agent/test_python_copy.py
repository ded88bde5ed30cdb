"""A copy of an interpreter runs where nothing of the system that it came from is to be seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.agent.node.native import own_words, words_of
from petctl.agent.workers import python_copy
from petctl.clusters.agent_archive import build_agent
from petctl.clusters.local.containers.images import bring_python

USED = (
    "asyncio, ctypes, fcntl, hashlib, hmac, http.client, json, select, socket, ssl, subprocess, urllib.parse, zipfile"
)
ALONE = """
import os, sys
os.chroot(sys.argv[1])
os.chdir("/")
os.execve(sys.argv[2], sys.argv[2:], dict.fromkeys(("PYTHONHOME", "PYTHONPATH", "LD_LIBRARY_PATH"), "/nowhere"))
"""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of an otherwise empty file system."""
    root = tmp_path_factory.mktemp("root")
    bring_python(root / "python")
    assert sorted(path.name for path in root.iterdir()) == ["python", "python.lock"]
    build_agent(root / "agent.pyz")
    return root


def alone(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    if os.geteuid() != 0:
        pytest.skip("needs root, to see nothing but a directory")
    argv = [sys.executable, "-c", ALONE, str(root), *words_of("/python"), *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_all_that_an_agent_imports_is_there(copied: Path) -> None:
    done = alone(
        copied, "-c", f"import {USED}; import sys; print(sys.executable, socket.getaddrinfo('127.0.0.1', 1)[0][4])"
    )
    assert (done.returncode, done.stdout) == (0, "/python/bin/python3 ('127.0.0.1', 1)\n"), done.stderr
    done = alone(copied, "/agent.pyz", "version")
    assert done.returncode == 0 and done.stdout.startswith("petctl "), done.stderr


def test_a_copy_knows_how_to_start_itself(copied: Path) -> None:
    own = "from petctl.agent.node.native import own_words"
    ask = f"import sys; sys.path.insert(0, '/agent.pyz'); {own}; print(*own_words())"
    done = alone(copied, "-c", ask)
    assert done.stdout.split() == words_of("/python"), done.stderr
    assert own_words() == [sys.executable, "-I"], "this one is none"


def test_nothing_that_is_installed_comes_along(copied: Path) -> None:
    assert not list(copied.rglob("site-packages"))
    assert not (copied / "python" / "bin" / "pip").exists()


def test_the_agents_archive_makes_a_copy_of_whatever_python_runs_it(tmp_path: Path) -> None:
    archive = build_agent(tmp_path / "agent.pyz")
    words = [sys.executable, "-I", str(archive), "copy-python"]
    subprocess.run([*words, str(tmp_path / "python")], check=True, cwd=tmp_path)
    assert alone(tmp_path, "-c", "print(1)").stdout == "1\n"
    (tmp_path / "file").write_text("")
    refused = subprocess.run([*words, str(tmp_path / "file")], capture_output=True, text=True, check=False)
    assert refused.returncode == 2 and "cannot be copied to" in refused.stderr and "Traceback" not in refused.stderr
    for wrong in ([], ["--no"], ["a", "b"]):
        assert "Usage" in subprocess.run([*words, *wrong], capture_output=True, text=True, check=False).stdout


def test_a_copy_that_was_cut_short_is_made_again(copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python.draft" / "bin").mkdir(parents=True)

    def fail(program: Path) -> str:
        raise python_copy.CannotCopy("no reason")

    with monkeypatch.context() as patch:
        patch.setattr(python_copy, "loader_of", fail)
        with pytest.raises(python_copy.CannotCopy):
            bring_python(tmp_path / "python")
    assert [path.name for path in tmp_path.iterdir()] == ["python.lock"]
    bring_python(tmp_path / "python")
    assert alone(tmp_path, "-c", "print(1)").stdout == "1\n"


def test_the_copy_lies_where_no_other_user_can_change_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        bring_python(tmp_path / "cache" / "python" / "3.11-abc")
    finally:
        os.umask(before)
    for made in (tmp_path / "cache", tmp_path / "cache" / "python"):
        assert made.stat().st_mode & 0o777 == 0o700


def test_what_is_no_program_of_this_system_is_told(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n" * 20)
    with pytest.raises(python_copy.CannotCopy, match="not a 64-bit program"):
        python_copy.loader_of(tmp_path / "script")
    assert Path(python_copy.loader_of(Path(sys.executable).resolve())).exists()
