"""Why a worker failed, told from what it left behind: exit code or signal, torch's error file, the end of its stderr.

A known cause (`petctl.causes`) is named by the worker's own last exception; older lines only speak where it has none,
or one that merely passes on what happened elsewhere: a job that got over an error does not fail by it.

It only reads, and only the ends of files: a log may be huge, binary or missing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import List, Optional, Tuple

from petctl import causes
from petctl.agent.health.oom import MemoryWatch
from petctl.agent.health.stacks import user_stacks
from petctl.agent.logs.log_files import is_full, read_end
from petctl.agent.workers.workers import Worker
from petctl.rendezvous.core.messages import Failure
from petctl.text import amount

_LINES = 30
_BYTES = 8192
_MESSAGE = 500
_AFTER_EXCEPTION = 10  # lines: messages may have several, and what follows is rarely about it
_WINDOW = 65536
_TRACEBACK = "Traceback (most recent call last):"
_TIMEOUT = re.compile(r"Timeout \([\d:.]+\)!\Z")  # faulthandler's, before it ends the process
# "ValueError: text", "torch.cuda.OutOfMemoryError: text", "KeyboardInterrupt"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*)?\Z")
_ORIGINAL = f"Original {_TRACEBACK}"  # of another process or thread, behind an exception that passes it on
_PASSED_ON = re.compile(r"(\w+\.)*(CalledProcessError|ChildFailedError|Process\w*Exception|SystemExit)\b")
_CHILD_KILLED = re.compile(r"by signal: Killed|died with <Signals\.SIGKILL")  # of a DataLoader, of subprocess
# of Python, glog (torch) and TensorFlow; whoever is warned goes on, and so does who tries again
_WARNING = re.compile(r":\d+: \w*Warning: |(^|\[)[IW]\d{4} \d\d:|: [IW] tensorflow/|\b[Rr]etrying\b|retry loop")
_CHAINED = ("direct cause of the following exception", "During handling of the above exception")
_LAST_LINES = 100  # in which a cause is looked for
_SPEAKING = ("SIGABRT", "SIGBUS", "SIGTRAP")  # the program may have said why; other signals come unasked


def explain(worker: Worker, node: str, memory: Optional[MemoryWatch] = None) -> Failure:
    """The candidate root cause that the coordinator and the user will see."""
    launch, name = worker.launch, signal_name(worker.signal) if worker.signal else ""
    err = read_end(launch.err, _WINDOW)
    message, traceback = from_error_file(read_end(launch.error_file, 4 << 20)) if launch.error_file else ("", "")
    if not message:
        message, traceback = from_stderr(err, killed=worker.signal != 0)
    if not message and not worker.signal and is_full(os.path.dirname(launch.err)):
        message = f"it left no message: no space left on the disk of its log files ({os.path.dirname(launch.err)})"
    cause = cause_of(worker.code or 0, name, message, traceback, err, launch.out, memory)
    limit = memory.limit() if cause == causes.HOST_MEMORY and memory is not None else 0
    if limit and (worker.signal or _CHILD_KILLED.search(message)):
        told = f"killed: node {node} used more than its {amount(limit)} of memory"
        message = told if worker.signal else f"{message} ({told})"
    if cause == causes.MISSING_MODULE and os.path.basename(launch.argv[0]).startswith("python"):
        message += f" (the interpreter is {launch.argv[0]})"
    return Failure(
        node=node,
        rank=launch.rank,
        local_rank=launch.local_rank,
        code=worker.code or 0,
        signal=name,
        message=message,
        traceback=traceback,
        time=time.time(),
        task=launch.task,
        cause=cause,
    )


def cause_of(
    code: int,
    signal: str,
    message: str,
    traceback: str,
    err: bytes = b"",
    out: str = "",
    memory: Optional[MemoryWatch] = None,
) -> str:
    """The known cause of a failure, or an empty string. `out`: the file of its other stream."""
    ended_by = signal or (signal_name(code - 128) if 128 < code < 160 else "")  # as a shell tells it of its command
    if (ended_by == "SIGKILL" or _CHILD_KILLED.search(message)) and memory is not None and memory.killed():
        return causes.HOST_MEMORY
    if ended_by and ended_by not in _SPEAKING and causes.ended(ended_by, code):
        return causes.ended(ended_by, code)
    text, raised = err.decode("utf-8", "replace"), _TRACEBACK in traceback
    told = f"{message if raised else _words(message)}\n{_words(traceback)}"
    found = causes.find(told) if raised else ""
    if not found and (not raised or _PASSED_ON.match(message) or any(word in text for word in _CHAINED)):
        found = causes.find(f"{told}\n{_words(text)}")
        found = found or causes.find(_words(read_end(out, _WINDOW).decode("utf-8", "replace")))
    return found or causes.ended(ended_by, code)


def _words(text: str) -> str:
    """The last lines, without warnings and the frames of tracebacks, whose code may speak of anything; C++
    tells exceptions indented."""
    said = [line for line in text.splitlines() if line[:1].strip() or line.startswith("  what():")]
    said = [line for line in said if not _WARNING.search(line)]
    return "\n".join(said[-_LAST_LINES:])


def signal_name(number: int) -> str:
    """ "SIGKILL" for 9; real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def from_error_file(data: bytes) -> Tuple[str, str]:
    """Message and traceback as torch's `record` wrote them; empty when there is nothing usable."""
    try:
        content = json.loads(data)
        message = content["message"]
        call_stack = ""
        if isinstance(message, dict):
            extra = message.get("extraInfo") or {}
            call_stack = str(extra.get("py_callstack", "")) if isinstance(extra, dict) else ""
            message = message.get("message", "")
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", ""
    text = str(message).strip()
    return _one_line(text), _bounded((call_stack or text).splitlines())


def from_stderr(data: bytes, killed: bool = False) -> Tuple[str, str]:
    """The last traceback and its exception, else the last lines; of a killed worker these explain nothing."""
    lines = [line.rstrip() for line in data.decode("utf-8", "replace").replace("\0", "").splitlines()]
    start = next((i for i in range(len(lines) - 1, -1, -1) if lines[i].endswith(_TRACEBACK)), None)
    overrun = next((i for i in range(len(lines) - 1, -1, -1) if _TIMEOUT.match(lines[i])), -1)
    if overrun > (start or -1) and not killed:
        return "it overran a deadline of its own (elastic.expires)", user_stacks(lines[overrun:])
    if start is not None:
        prefix = 0 if lines[start] == _ORIGINAL else len(lines[start]) - len(_TRACEBACK)  # of torch: "[rank0]: "
        story = [line[prefix:] for line in lines[start:]]
        end = next((i for i in range(1, len(story)) if story[i] and not story[i].startswith(" ")), None)
        if end is not None and _EXCEPTION.match(story[end]):
            return _one_line(story[end]), _bounded(story[: end + _AFTER_EXCEPTION])
    words = [line for line in lines if line.strip()]
    fatal = next((line for line in reversed(words) if line.startswith("Fatal Python error:")), "")
    if fatal:
        return _one_line(fatal), _bounded(lines[lines.index(fatal) :], first=True)
    message = "" if killed or not words else _one_line(words[-1])
    return message, _bounded(words)


def _one_line(text: str) -> str:
    first = text.splitlines()[0].strip() if text else ""
    return first if len(first) <= _MESSAGE else first[: _MESSAGE - 1] + "…"


def _bounded(lines: List[str], first: bool = False) -> str:
    kept = lines[:_LINES] if first else lines[-_LINES:]
    data = "\n".join(kept).encode("utf-8", "replace")
    if len(data) > _BYTES:
        data = data[:_BYTES] if first else data[-_BYTES:]
    return data.decode("utf-8", "ignore").strip("\n")
