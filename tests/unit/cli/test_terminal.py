"""Nothing that steers a terminal gets there in petctl's own words; files and pipes get them as they are."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.console.terminal import OwnWords, shown

TITLE = "\x1b]0;gotcha\x07"
CLEAR = "\x1b[2J"


@pytest.mark.parametrize(
    ("text", "spelt"),
    [
        ("plain \u00e9 \u4e2d text\twith\nlines\r\n", "plain \u00e9 \u4e2d text\twith\nlines\r\n"),
        (f"a{CLEAR}b", "a\\x1b[2Jb"),
        (TITLE, "\\x1b]0;gotcha\\x07"),
        ("over\rwritten", "over\\x0dwritten"),
        ("\x9b2J", "\\x9b2J"),
        ("gpj\u202e.exe", "gpj\\u202e.exe"),
        ("a\x08b\x7f", "a\\x08b\\x7f"),
    ],
)
def test_spelling(text: str, spelt: str) -> None:
    assert shown(text) == spelt


def test_own_colours_pass_and_nothing_else(tmp_path: Path) -> None:
    with (tmp_path / "seen").open("w+", newline="") as file:
        OwnWords(file).write(f"\x1b[31mred\x1b[0m \x1b[1;32mok\x1b[0m {CLEAR} \x1b[8mhidden {TITLE}")
        file.seek(0)
        assert file.read() == "\x1b[31mred\x1b[0m \x1b[1;32mok\x1b[0m \\x1b[2J \\x1b[8mhidden \\x1b]0;gotcha\\x07"


def on_terminal(*words: str, cwd: Path, home: Path) -> str:
    """What a command shows on a terminal of its own."""
    master, slave = pty.openpty()
    environment = {**os.environ, "PETCTL_HOME": str(home), "TERM": "xterm", "COLUMNS": "200", "NO_COLOR": ""}
    environment.pop("NO_COLOR")
    process = subprocess.Popen(
        [sys.executable, "-m", "petctl", *words], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment
    )
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the last one has closed it
        while data := os.read(master, 65536):
            seen += data
    os.close(master)
    process.wait(60)
    return seen.decode()


def test_names_of_files_and_words_of_errors(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"data{CLEAR}{TITLE}.bin").write_text("x")
    listed = on_terminal("data", "ls", str(folder), cwd=tmp_path, home=tmp_path / "home")
    assert "data\\x1b[2J\\x1b]0;gotcha\\x07.bin" in listed and CLEAR not in listed and "\x07" not in listed
    told = on_terminal("status", f"job{TITLE}", cwd=tmp_path, home=tmp_path / "home")
    assert "gotcha" in told and "\x1b]" not in told and "\x07" not in told


def test_a_pipe_gets_names_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / f"data{CLEAR}.bin").write_text("x")
    words = [sys.executable, "-m", "petctl", "data", "ls", str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PETCTL_HOME": str(tmp_path / "h")})
    assert f"data{CLEAR}.bin" in done.stdout
