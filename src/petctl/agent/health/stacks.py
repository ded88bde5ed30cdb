"""What workers are doing when a round stands still: asks those that can answer for their stacks, and reads the answers.

A worker that uses petctl.elastic has a thread for this, which writes the stacks of all threads into a file next to the
worker's logs. Any other Python writes them to its stderr when it gets SIGURG (startup/sitecustomize/stacks.py), and
they are copied from there. Others cannot be asked. Whether the round has stalled is decided by the
coordinator; who fails for it, by the agent.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import Callable, Dict, List, Optional, Set

from petctl.agent.logs.log_files import read_end
from petctl.agent.workers import processes
from petctl.agent.workers.channel import Channel
from petctl.agent.workers.workers import Worker
from petctl.causes import HANG
from petctl.rendezvous.core.messages import Failure, Stall
from petctl.rendezvous.core.stall import names as rank_names

CODE = 124  # as `timeout` answers for a command that took too long
_ANSWER_WITHIN = 2.0  # seconds
_OTHERS = 0.2  # ... and more for the other nodes, which are asked in the same moment: the comparison tells most
_WINDOW = 65536
_BYTES = 8192
_FILE = re.compile(r"rank-(\d+)\.stacks\Z")
_ADDRESS = re.compile(r"\b0x[0-9a-f]+ ")
_LIBRARY = re.compile(r'"[^"]*/petctl/elastic/')  # each node has it elsewhere
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")


class StackDump:
    """One question at a time to the workers of a node."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._channel.on_dumped = self._answered
        self._waiting: Set[Worker] = set()
        self._signalled: Dict[Worker, int] = {}  # -> where in its stderr its answer begins
        self._then: Optional[Callable[[], None]] = None
        self._timer: Optional[asyncio.TimerHandle] = None

    def ask(self, workers: List[Worker], then: Callable[[], None]) -> None:
        """Has the stacks of these workers written; `then` when all have answered, or did not in time."""
        self._finish()
        self._then = then
        self._waiting = {worker for worker in workers if self._channel.stacks(worker, stacks_file(worker))}
        others = [worker for worker in workers if worker not in self._waiting]
        self._signalled = {worker: _size(worker.launch.err) for worker in others if catches(worker.pid, signal.SIGURG)}
        processes.signal_each([worker.pid for worker in self._signalled], signal.SIGURG)
        self._arm(_ANSWER_WITHIN if self._waiting or self._signalled else 0.0)

    def _answered(self, worker: Worker) -> None:
        if worker in self._waiting:
            self._waiting.remove(worker)
            if not self._waiting and not self._signalled:  # nothing tells when those have answered
                self._arm(_OTHERS)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._finish)

    def _finish(self) -> None:
        then, self._then = self._then, None
        if self._timer is not None:
            self._timer.cancel()
        signalled, self._signalled = self._signalled, {}
        for worker, begin in signalled.items():
            _copy_answer(worker.launch.err, begin, stacks_file(worker))
        if then is not None:
            then()


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for this signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _copy_answer(err: str, begin: int, path: str) -> None:
    """The stacks that a worker has written to its stderr since, into the file for them."""
    try:
        with open(err, "rb") as file:
            file.seek(begin)
            lines = file.read(_WINDOW).splitlines(keepends=True)
        first = next((k for k, line in enumerate(lines) if _THREAD.match(line.decode("utf-8", "replace"))), None)
        if first is not None:
            with open(path, "wb") as file:
                file.writelines(lines[first:])
    except OSError:
        pass  # a full disk costs the stacks, not the verdict


def stacks_file(worker: Worker) -> str:
    """Where the stacks of a worker are written."""
    return os.path.splitext(worker.launch.err)[0] + ".stacks"


def failure_of(worker: Worker, node: str, stall: Stall) -> Failure:
    """The failure for which this worker answers: it hangs, here."""
    launch = worker.launch
    return Failure(
        node=node,
        rank=launch.rank,
        local_rank=launch.local_rank,
        code=CODE,
        message=stall.sentence,
        traceback=compared(os.path.dirname(launch.err), launch.rank),
        time=time.time(),
        hung=True,
        task=worker.launch.task,
        cause=HANG,
    )


def compared(directory: str, blamed: int) -> str:
    """The stacks that can be seen from here, equal ones once; those of the fewest ranks first: it may hang there."""
    ranks: Dict[str, List[int]] = {}
    try:
        names = os.listdir(directory)
    except OSError:
        names = []
    for name in names:
        match = _FILE.match(name)
        if match:
            data = read_end(os.path.join(directory, name), _WINDOW)
            text = _ADDRESS.sub("", user_stacks(data.decode("utf-8", "replace").splitlines()))
            text = _LIBRARY.sub('"petctl/elastic/', text)
            ranks.setdefault(text, []).append(int(match.group(1)))
    ranks.pop("", None)
    groups = sorted((len(found), blamed not in found, sorted(found), text) for text, found in ranks.items())
    parts = [f"{rank_names(found)}:\n{text}" for _, _, found, text in groups]
    cut = "\n".join(parts).encode("utf-8", "replace")[:_BYTES].decode("utf-8", "ignore")
    return f"{cut}\nall stacks are in {directory}/rank-*.stacks" if parts else ""


def user_stacks(lines: List[str]) -> str:
    """The stacks as faulthandler writes them, without those of petctl's own threads, within bounds."""
    starts = [number for number, line in enumerate(lines) if _THREAD.match(line)]
    sections = [lines[start:end] for start, end in zip(starts, [*starts[1:], len(lines)])]
    theirs = [section for section in sections if not _is_own(section)]
    text = "\n".join(line for section in theirs or sections for line in section if line.strip())
    return text.encode("utf-8", "replace")[-_BYTES:].decode("utf-8", "ignore")


def _is_own(section: List[str]) -> bool:
    """Is it a thread that petctl.elastic started? The main thread has no bootstrap below it."""
    text = "\n".join(section)
    return "_bootstrap" in text and os.path.join("petctl", "elastic", "") in text
