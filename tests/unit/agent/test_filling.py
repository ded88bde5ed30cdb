"""A step that fills a shared directory: done once, whoever asks, however many ask, and whoever dies over it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import List

import pytest

from petctl.agent.data import volume_prefetch
from petctl.agent.data.volume_prefetch import fill
from tests.integration.waiting import until

FAST = {"beat": 0.02, "patience": 0.3}
FILL = (
    "import sys; from petctl.agent.data.volume_prefetch import fill; "
    "sys.exit(fill(*sys.argv[2:], 0.02, float(sys.argv[1])))"
)


def started(directory: Path, line: str, patience: float = FAST["patience"]) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", FILL, str(patience), str(directory), line]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def marks(directory: Path) -> List[str]:
    return sorted(path.read_text() for path in (directory / ".petctl").iterdir())


def test_it_is_done_once(tmp_path: Path) -> None:
    line = 'echo once >> "$PETCTL_VOLUME/done"'
    assert [fill(str(tmp_path), line, **FAST) for _ in range(3)] == [0, 0, 0]
    assert (tmp_path / "done").read_text() == "once\n"
    assert marks(tmp_path) == ["done"]
    assert (tmp_path / ".petctl").stat().st_mode == tmp_path.stat().st_mode


def test_another_step_is_another_matter(tmp_path: Path) -> None:
    for word in ("a", "b", "a"):
        assert fill(str(tmp_path), f"echo {word} >> {tmp_path}/done", **FAST) == 0
    assert (tmp_path / "done").read_text() == "a\nb\n"


def test_of_many_at_once_one_does_it_and_all_come_back(tmp_path: Path) -> None:
    line = f"echo begun >> {tmp_path}/done; read wait < {tmp_path}/go; echo ended >> {tmp_path}/done"
    os.mkfifo(tmp_path / "go")
    crowd = [started(tmp_path, line, patience=60) for _ in range(5)]
    with (tmp_path / "go").open("w") as go:  # opens when the step reads
        waiting = [one for one in crowd if one.stdout is not None]
        said: List[str] = []
        readers = [threading.Thread(target=lambda one=one: said.append(one.stdout.readline())) for one in waiting]
        for reader in readers:
            reader.start()
        while sum("waiting" in text for text in said) < 4:
            readers[0].join(0.01)
            assert all(one.poll() is None for one in crowd)
        go.write("go\n")
    assert [one.wait(30) for one in crowd] == [0] * 5
    for reader in readers:
        reader.join(10)
    assert (tmp_path / "done").read_text() == "begun\nended\n"
    for one in crowd:
        one.communicate()


def test_it_shows_that_it_goes_on_while_what_was_written_goes_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: List[int] = []

    def slow_sync() -> None:
        def risen() -> bool:
            (mark,) = (tmp_path / ".petctl").iterdir()
            counts.extend(map(int, mark.read_text().split()))  # nothing, while it is written
            return bool(counts) and max(counts) > counts[0] + 5

        until(risen, "the attempt to count on")

    monkeypatch.setattr(os, "sync", slow_sync)
    assert fill(str(tmp_path), "true", **FAST) == 0
    assert max(counts) > counts[0] + 5
    assert marks(tmp_path) == ["done"]


def test_a_step_that_fails_is_told_and_tried_again_by_the_next(tmp_path: Path) -> None:
    line = f"test -e {tmp_path}/ready || exit 7"
    assert fill(str(tmp_path), line, **FAST) == 7
    assert marks(tmp_path) == ["failed"]
    (tmp_path / "ready").touch()
    assert fill(str(tmp_path), line, **FAST) == 0
    assert marks(tmp_path) == ["done", "failed"]


def test_a_step_that_is_killed_has_its_signals_code(tmp_path: Path) -> None:
    assert fill(str(tmp_path), "kill -9 $$", **FAST) == 137


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_is_ended_over_it_is_replaced(tmp_path: Path, number: signal.Signals) -> None:
    os.mkfifo(tmp_path / "begun")
    line = f"if test -e {tmp_path}/second; then exit 0; fi; echo $$ > {tmp_path}/begun; exec sleep 600"
    first = started(tmp_path, line)
    step = int((tmp_path / "begun").read_text())
    (tmp_path / "second").touch()
    try:
        first.send_signal(number)
        assert first.wait(10) == (143 if number == signal.SIGTERM else -9)
        assert fill(str(tmp_path), line, **FAST) == 0
        if number == signal.SIGTERM:
            assert marks(tmp_path) == ["done", "failed"]  # nobody had to wait for silence
            with pytest.raises(ProcessLookupError):
                os.kill(step, 0)
        else:
            assert marks(tmp_path)[1] == "done"
    finally:
        if number == signal.SIGKILL:  # in a pod the node's guardian does this
            os.kill(step, signal.SIGKILL)
        first.communicate()


def test_one_that_was_too_slow_gives_way(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    line = f"if test -e {tmp_path}/second; then exit 0; fi; echo $$ > {tmp_path}/begun; exec sleep 600"
    slow = started(tmp_path, line)
    step = int((tmp_path / "begun").read_text())
    slow.send_signal(signal.SIGSTOP)
    (tmp_path / "second").touch()
    assert fill(str(tmp_path), line, **FAST) == 0
    slow.send_signal(signal.SIGCONT)
    assert slow.wait(30) == 0
    assert "another node has taken over" in slow.communicate()[0]
    with pytest.raises(ProcessLookupError):
        os.kill(step, 0)
    assert marks(tmp_path)[1] == "done"


def test_a_volume_that_nobody_may_write_to_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / ".petctl").write_text("a file where a directory should be")
    assert volume_prefetch.main([str(tmp_path), "true"]) == 1
    assert f"cannot fill {tmp_path}: " in capfd.readouterr().err


def test_words(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert volume_prefetch.main(["--help"]) == 0 and volume_prefetch.main(["x"]) == 2
    assert volume_prefetch.main([str(tmp_path), "true"]) == 0
