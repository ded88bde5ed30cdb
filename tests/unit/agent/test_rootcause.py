"""What is told about a failed worker, from what it may have left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from petctl.agent.rootcause import explain, from_error_file, from_stderr, signal_name
from petctl.agent.workers import Launch, Worker


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


def test_names_of_signals() -> None:
    assert (signal_name(9), signal_name(11)) == ("SIGKILL", "SIGSEGV")
    if sys.platform.startswith("linux"):
        assert signal_name(40) == "signal 40"
