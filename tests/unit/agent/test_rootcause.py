"""What is told about a failed worker, from what it may have left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from petctl.agent.health.root_cause import explain, from_error_file, from_stderr, signal_name
from petctl.agent.health.stacks import compared, user_stacks
from petctl.agent.workers.workers import Launch, Worker


def trace(depth: int, prefix: str = "") -> str:
    lines = ["Traceback (most recent call last):"]
    for level in range(depth):
        lines += [f'  File "train.py", line {level}, in step', f"    step({level})"]
    return "".join(f"{prefix}{line}\n" for line in [*lines, "ValueError: bad step"])


def test_the_last_traceback_and_its_exception() -> None:
    message, text = from_stderr((trace(1) + "noise\n" + trace(2) + "a warning after it\n").encode())
    assert message == "ValueError: bad step"
    assert text.startswith("Traceback") and "line 1" in text and "noise" not in text


def test_a_deep_traceback_keeps_its_end() -> None:
    message, text = from_stderr(trace(200).encode())
    assert message == "ValueError: bad step"
    assert len(text.splitlines()) <= 30 and text.endswith("ValueError: bad step") and "line 199" in text


def test_torchs_rank_prefix_is_taken_off() -> None:
    message, text = from_stderr(trace(1, "[rank3]: ").encode())
    assert message == "ValueError: bad step" and "[rank3]" not in text


def test_without_a_traceback_the_last_lines() -> None:
    assert from_stderr(b"one\n\ntwo\n\n") == ("two", "one\ntwo")
    assert from_stderr(b"") == ("", "")


def test_the_last_words_of_a_killed_worker_are_not_the_cause() -> None:
    assert from_stderr(b"just a warning\n", killed=True) == ("", "just a warning")
    message, text = from_stderr(
        b"noise\nFatal Python error: Segmentation fault\n\nCurrent thread:\n  File x\n", killed=True
    )
    assert message == "Fatal Python error: Segmentation fault" and text.endswith("File x") and "noise" not in text


def test_binary_and_giant_lines_stay_bounded() -> None:
    message, text = from_stderr(bytes(range(256)) * 40 + b"x" * 50_000)
    assert len(message) <= 500 and len(text.encode()) <= 8192 and "\0" not in text


def test_the_error_file_of_torch() -> None:
    inner = {
        "message": "RuntimeError: boom\nsecond line",
        "extraInfo": {"py_callstack": "Traceback\n  x", "timestamp": "1"},
    }
    assert from_error_file(json.dumps({"message": inner}).encode()) == ("RuntimeError: boom", "Traceback\n  x")
    assert from_error_file(b'{"message": "plain"}') == ("plain", "plain")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"other": 1}', b'"text"', b"\xff\xfe", b"[" * 100_000])
def test_an_unusable_error_file_is_as_none(data: bytes) -> None:
    assert from_error_file(data) == ("", "")


@pytest.mark.parametrize(("room", "told"), [(0, "no space left on the disk of its log files"), (1, "")])
def test_a_silent_failure_on_a_full_disk_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int, told: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=room))
    launch = Launch(0, 0, ["true"], {}, None, str(tmp_path / "out"), str(tmp_path / "err"))
    with subprocess.Popen(["true"]) as process:
        worker = Worker(launch, process)
    worker.code = 1
    message = explain(worker, "0").message
    assert told in message and bool(told) == bool(message)


def test_the_original_of_an_exception_that_was_passed_on() -> None:
    """As PyTorch passes on what a worker process of a DataLoader raised."""
    passed_on = trace(1).replace("ValueError: bad step", "KeyError: Caught KeyError in DataLoader worker process 0.")
    message, text = from_stderr((passed_on + f"Original {trace(2)}\n").encode())
    assert message == "ValueError: bad step"
    assert text.startswith("Original Traceback") and 'File "train.py", line 1, in step' in text


def test_the_known_cause_is_told_with_the_failure(tmp_path: Path) -> None:
    launch = Launch(0, 0, ["true"], {}, None, str(tmp_path / "out"), str(tmp_path / "err"))
    with subprocess.Popen(["true"]) as process:
        worker = Worker(launch, process)
    worker.code = 1
    assert explain(worker, "0").cause == ""
    (tmp_path / "out").write_text("fatal: Connection refused\n")
    assert explain(worker, "0").cause == "network"
    (tmp_path / "err").write_text(trace(1).replace("ValueError: bad", "OSError: [Errno 28] No space left on device: "))
    assert explain(worker, "0").cause == "no-space"


def test_names_of_signals() -> None:
    assert (signal_name(9), signal_name(11)) == ("SIGKILL", "SIGSEGV")
    if sys.platform.startswith("linux"):
        assert signal_name(40) == "signal 40"


def test_an_overrun_deadline_is_told_with_the_users_stacks() -> None:
    program = """
import threading, time, faulthandler
def train():
    faulthandler.dump_traceback_later(0.05, exit=True)
    time.sleep(60)
train()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False)
    message, text = from_stderr(trace(1).encode() + b"and went on\n" + ended.stderr)
    assert message == "it overran a deadline of its own (elastic.expires)"
    assert "in train" in text and "ValueError" not in text
    later, _ = from_stderr(ended.stderr + trace(1).encode())
    assert later == "ValueError: bad step", "what came last counts"


def test_stacks_are_compared_and_the_odd_one_comes_first(tmp_path: Path) -> None:
    for rank in range(12):
        where = "load" if rank == 7 else "all_reduce"
        frames = [
            f'  File "train.py", line 3 in {where}',
            f'  File "/tmp/{rank}/petctl/elastic/runner.py", line 1 in run',
        ]
        text = "\n".join([f"Thread 0x{rank:08x} (most recent call first):", *frames])
        (tmp_path / f"rank-{rank}.stacks").write_text(text)
    (tmp_path / "rank-12.stacks").write_text("")
    (tmp_path / "rank-3.err").write_text("not this")
    lines = compared(str(tmp_path), 0).splitlines()
    assert lines[:3] == ["rank 7:", "Thread (most recent call first):", '  File "train.py", line 3 in load']
    assert lines[4] == "11 ranks (the first is 0):" and "all_reduce" in lines[6]
    assert lines[-1] == f"all stacks are in {tmp_path}/rank-*.stacks"
    assert compared(str(tmp_path / "none"), 0) == ""


def test_threads_of_petctls_own_are_left_out_of_stacks() -> None:
    own = [
        "Current thread 0x00007f01 (most recent call first):",
        '  File "/x/petctl/elastic/channel.py", line 90 in _write_stacks',
        '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
        "",
    ]
    loader = [
        "Thread 0x00007f02 (most recent call first):",
        '  File "/x/site-packages/loader.py", line 1 in fetch',
        '  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap',
        "",
    ]
    main = [
        "Thread 0x00007f03 (most recent call first):",
        '  File "/x/train.py", line 7 in step',
        '  File "/x/petctl/elastic/runner.py", line 40 in run',
    ]
    text = user_stacks([*own, *loader, *main])
    assert "channel.py" not in text and "fetch" in text and text.endswith("in run")
    assert user_stacks(own), "better those than none"
    assert len(user_stacks([*main[:1], *(f"  File {k}" for k in range(10_000))])) <= 8192
