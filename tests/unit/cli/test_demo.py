"""What `make demo` itself shows on a terminal, beside the job's own lines."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

DEMO = Path(__file__).parents[3] / "examples" / "demo.py"
SAYS = f"""
import runpy, sys
demo = runpy.run_path({str(DEMO)!r})
sys.stderr.write("the status line of petctl"), sys.stderr.flush()
demo["say"]("killing node 1 (pid 42)")
steps = [(1, 1, 3), (2, 2, 3), (3, 3, 3), (9, 2, 2), (10, 3, 2), (18, 4, 3)]
metrics = [{{"time": time, "step": step, "ranks": ranks, "loss": 0.5}} for time, step, ranks in steps]
demo["say"]("the loss of a node cost " + demo["cost"](metrics, 3.5, 4.0))
"""


def on_a_terminal(columns: int) -> bytes:
    """The bytes that a terminal of this width gets."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    words = [sys.executable, "-c", SAYS]
    with subprocess.Popen(words, stdout=theirs, stderr=theirs, env={**env, "TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 65536):
                shown += data
        except OSError:  # EIO: the other side is closed
            pass
        assert process.wait() == 0, shown
    os.close(ours)
    return shown


def test_its_lines_take_the_place_of_the_status_line() -> None:
    first, *rest = on_a_terminal(80).decode().split("\r\n")
    assert first == "the status line of petctl\r\x1b[2Kdemo: killing node 1 (pid 42)"
    assert rest[-1] == "", "the last line is whole"
    assert all(len(line.removeprefix("\r\x1b[2K")) < 80 for line in rest)


def test_its_last_line_tells_the_pauses_apart_and_counts_what_was_done_twice() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "demo: the loss of a node cost 5.5 s from the kill to the next step of 2 ranks (the start of the job "
        "took 4.0 s), 8.0 s when its replacement was taken in, and 2 steps were repeated from the last checkpoint"
    )
