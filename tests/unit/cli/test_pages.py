"""`petctl help`: the documentation, offline."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from petctl.cli.main import main
from petctl.cli.pages import pages
from petctl.cli.verbs import VERBS

ROOT = Path(__file__).parents[3]


def run(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["help", *words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_the_list_names_every_page_and_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    told = capsys.readouterr().out
    assert {page.name for page in pages().values()} == {page.name for page in (ROOT / "docs").glob("*.md")}
    assert all(f"\n  {name}" in told for name in [*VERBS, *pages()])
    assert "  first-ten-minutes     The first ten minutes\n" in told


@pytest.mark.parametrize("name", ["guide", "guide.md", "data.md", "operator.md"])
def test_a_page_is_plain_text_where_no_person_reads(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / f"{name.removesuffix('.md')}.md").read_text()


def test_the_name_of_a_command_means_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("data", "up") == 0
    assert capsys.readouterr().out.startswith("Usage: petctl data up ")


@pytest.mark.parametrize(
    ("name", "near"), [("gide", "guide"), ("first-ten", "first-ten-minutes"), ("statsu", "status")]
)
def test_an_unknown_topic_names_what_is_near(name: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name) == 2
    error = capsys.readouterr().err
    assert f"unknown page or command '{name}'. Did you mean " in error and near in error


def shown_on_a_terminal(page: str, **environment: str) -> str:
    parent, child = pty.openpty()
    command = [sys.executable, "-m", "petctl", "help", page]
    with os.fdopen(parent, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, stdout=child, env={**os.environ, "TERM": "xterm", **environment})
        os.close(child)
        text = b""
        try:
            while block := terminal.read(65536):
                text += block
        except OSError:  # so a terminal ends
            pass
        assert process.wait(30) == 0
    return text.decode()


def test_a_page_is_formatted_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    told = shown_on_a_terminal("queue")
    assert "\x1b[" in told and "\\x1b" not in told
    assert "# Many jobs" not in told and "Many jobs on one machine" in told
    assert "# Many jobs" in shown_on_a_terminal("queue", NO_COLOR="1")


def test_the_pages_travel_in_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    names = set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())
    assert {f"petctl/docs/{page.name}" for page in pages().values()} <= names
    assert {"petctl/__init__.py", "petctl/causes.ini", "petctl/cli/main.py"} <= names
    assert all(name.startswith(("petctl/", "petctl-")) for name in names)
