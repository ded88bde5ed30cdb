"""`petctl-agent keep`: a process is started again with the next number, until it need not be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from petctl.controller.kept_process import CHANGES, LEFT, kept_here, want
from petctl.files import locked

ENTRY = """\
import os, signal, sys, time
if sys.argv[1] == "keep":
    from petctl.controller.kept_process import main
    sys.exit(main(sys.argv[2:]))
with open("argv", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
print("prints", flush=True)
while not os.path.exists("code"):
    time.sleep(0.01)
code = open("code").read()
os.unlink("code")
sys.exit(int(code))
"""


class Scene:
    """A directory with something to keep, which ends when it is given a code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "entry.py").write_text(ENTRY)

    def keep(self, *options: str) -> subprocess.Popen[bytes]:
        words = [sys.executable, "entry.py", "keep", "x", *options, "--", "join", "--node", "x"]
        return subprocess.Popen(words, cwd=self.directory)

    def lives(self) -> list[str]:
        path = self.directory / "argv"
        return path.read_text().splitlines() if path.exists() else []

    def end(self, code: int) -> None:
        draft = self.directory / "draft"
        draft.write_text(str(code))
        draft.rename(self.directory / "code")

    def until(self, wanted: Callable[[], object]) -> None:
        deadline = time.monotonic() + 20
        while not wanted():
            assert time.monotonic() < deadline, (self.lives(), list(self.directory.iterdir()))
            time.sleep(0.01)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    yield Scene(tmp_path)
    for pid in kept_here(tmp_path).values():
        os.kill(pid, signal.SIGKILL)


def test_it_is_started_again_and_counted_by_whoever_keeps_it(scene: Scene) -> None:
    first = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    assert kept_here(scene.directory) == {"x": first.pid}
    scene.end(1)
    scene.until(lambda: len(scene.lives()) == 2)
    first.kill()
    first.wait()
    second = scene.keep()
    scene.until(lambda: len(scene.lives()) == 3)
    scene.end(0)
    assert second.wait(20) == 0
    assert scene.lives() == [f"join --node x --replacement {number}" for number in range(3)]
    assert kept_here(scene.directory) == {}
    assert (scene.directory / "x.out").read_text() == "prints\n" * 3
    assert "x has ended with code 1" in (scene.directory / "x.err").read_text()


def test_its_child_ends_with_it(scene: Scene) -> None:
    keeper = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    child = int(Path(f"/proc/{keeper.pid}/task/{keeper.pid}/children").read_text())
    keeper.kill()
    keeper.wait()
    scene.until(lambda: not Path(f"/proc/{child}/cmdline").exists() or not Path(f"/proc/{child}/cmdline").read_bytes())


def test_it_passes_a_signal_on_and_ends(scene: Scene) -> None:
    keeper = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    keeper.terminate()
    assert keeper.wait(20) == 128 + signal.SIGTERM
    assert len(scene.lives()) == 1 and kept_here(scene.directory) == {}


def test_two_do_not_keep_the_same(scene: Scene) -> None:
    first = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    assert scene.keep().wait(20) == 0
    assert scene.keep("--detach").wait(20) == 0
    assert kept_here(scene.directory) == {"x": first.pid} and len(scene.lives()) == 1
    first.kill()
    first.wait()


def test_what_is_detached_is_kept_when_its_starter_returns(scene: Scene) -> None:
    assert scene.keep("--detach").wait(20) == 0
    assert list(kept_here(scene.directory)) == ["x"]
    scene.until(lambda: len(scene.lives()) == 1)
    scene.end(0)
    scene.until(lambda: not kept_here(scene.directory))


def test_one_that_has_left_comes_back_only_where_it_is_wanted(scene: Scene) -> None:
    keeper = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    with locked(scene.directory / CHANGES):
        assert not want(scene.directory, "x", runs=True)
    scene.end(LEFT)
    scene.until(lambda: len(scene.lives()) == 2)
    (scene.directory / "x.wanted").unlink()
    scene.end(LEFT)
    assert keeper.wait(20) == 0


def test_whoever_changes_what_is_wanted_is_waited_for(scene: Scene) -> None:
    keeper = scene.keep()
    scene.until(lambda: len(scene.lives()) == 1)
    with locked(scene.directory / CHANGES):
        scene.end(LEFT)
        scene.until(lambda: not (scene.directory / "code").exists())
        assert not want(scene.directory, "x", runs=True)
    scene.until(lambda: len(scene.lives()) == 2)
    (scene.directory / "x.wanted").unlink()
    scene.end(LEFT)
    assert keeper.wait(20) == 0


def test_who_has_to_begin(tmp_path: Path) -> None:
    assert want(tmp_path, "x", runs=False)
    assert not want(tmp_path, "x", runs=True)  # its platform has accepted it, and it has not begun
    (tmp_path / "x.wanted").unlink()
    (tmp_path / "x.lock").write_text("")
    assert want(tmp_path, "x", runs=True)  # it has ended, and its platform does not know yet


def test_nothing_is_started_when_the_job_is_over(scene: Scene) -> None:
    keeper = scene.keep("--until", "message")
    scene.until(lambda: len(scene.lives()) == 1)
    (scene.directory / "message").touch()
    scene.end(1)
    assert keeper.wait(20) == 0
    assert scene.keep("--until", "message").wait(20) == 0
    assert len(scene.lives()) == 1


def test_quick_deaths_are_further_and_further_apart(scene: Scene) -> None:
    began = time.monotonic()
    (scene.directory / "code").write_text("3")
    keeper = scene.keep()
    while len(scene.lives()) < 4:
        scene.until(lambda: not (scene.directory / "code").exists())
        scene.end(3)
    assert time.monotonic() - began > 0.1 + 0.2 + 0.4
    keeper.terminate()
    keeper.wait(20)
