"""Why a worker failed, told from what it left behind: exit code or signal, torch's error file, the end of its stderr.

It only reads, and only the ends of files: a log may be huge, binary or missing.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from typing import List, Tuple

from petctl.agent.logfiles import is_full, read_end
from petctl.agent.stacks import user_stacks
from petctl.agent.workers import Worker
from petctl.rendezvous.messages import Failure

_LINES = 30
_BYTES = 8192
_MESSAGE = 500
_AFTER_EXCEPTION = 10  # lines: messages may have several, and what follows is rarely about it
_WINDOW = 65536
_TRACEBACK = "Traceback (most recent call last):"
_TIMEOUT = re.compile(r"Timeout \([\d:.]+\)!\Z")  # faulthandler's, before it ends the process
# "ValueError: text", "torch.cuda.OutOfMemoryError: text", "KeyboardInterrupt"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*)?\Z")


def explain(worker: Worker, node: str) -> Failure:
    """The candidate root cause that the coordinator and the user will see."""
    launch = worker.launch
    message, traceback = from_error_file(read_end(launch.error_file, 4 << 20)) if launch.error_file else ("", "")
    if not message:
        message, traceback = from_stderr(read_end(launch.err, _WINDOW), killed=worker.signal != 0)
    if not message and not worker.signal and is_full(os.path.dirname(launch.err)):
        message = f"it left no message: no space left on the disk of its log files ({os.path.dirname(launch.err)})"
    return Failure(
        node=node,
        rank=launch.rank,
        local_rank=launch.local_rank,
        code=worker.code or 0,
        signal=signal_name(worker.signal) if worker.signal else "",
        message=message,
        traceback=traceback,
        time=time.time(),
        task=launch.task,
    )


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
        prefix = len(lines[start]) - len(_TRACEBACK)  # torch writes "[rank0]: " before every line
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
