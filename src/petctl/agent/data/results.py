"""Sends a job's results from this node while it runs and before it goes: `uploader.py` in a thread of its own.

Where a directory belongs to several nodes (one machine), the one that holds its lock sends; the others wait for the
lock. A node that is to end makes a last look if it holds the lock; otherwise whoever holds it sends the rest. The
thread has its own connection to the coordinator and never touches the agent's: heartbeats depend on that.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import Callable, Iterator, Mapping, Optional

from petctl.agent.data.uploader import Outbox, lock_path
from petctl.errors import GivenUp, PetctlError
from petctl.files import hold, open_lock, release
from petctl.job.task import Task
from petctl.rendezvous.net.join_file import JoinFile
from petctl.storage.core.files import CoordinatorLine, Depot

EVERY = 10.0  # seconds between two looks
VARIABLE = "PETCTL_SEND_EVERY"  # ... or what the environment says
CALL = "results"  # tells the coordinator why nothing can be sent, or that it can

log = logging.getLogger(__name__)


def interval(environ: Mapping[str, str]) -> float:
    """Seconds between two looks."""
    try:
        return max(0.1, float(environ[VARIABLE]))
    except (KeyError, ValueError):
        return EVERY


class Results:
    """One node's share. Made inside the running loop."""

    def __init__(self, task: Task, join: JoinFile, node: str, log_dir: str) -> None:
        self._node = node
        self._base = os.path.dirname(log_dir)
        self._given_up = threading.Event()
        self._wake = threading.Event()
        self._line = CoordinatorLine(join, self._given_up)
        depot = Depot(self._line.ask, self._given_up)
        self._outbox = Outbox(depot, self._base, task.output_dir, log_dir, task.results, self._given_up.is_set)
        self._every = interval(os.environ)
        self._mutex = threading.Lock()
        self._waiting = False  # for the lock, which another node has
        self._ended = False
        self._then: Optional[Callable[[], None]] = None
        self._told = ""
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._work, name="petctl-results", daemon=True).start()

    def look_into(self, copy: str) -> None:
        """New files in the copy of the job's code are results too."""
        self._outbox.copy = copy

    def finish(self, then: Callable[[], None]) -> None:
        """Has a last look made, and calls `then` in the loop."""
        with self._mutex:
            idle = self._waiting or self._ended
            self._then = None if idle else then
        self._wake.set()
        if idle:
            self._given_up.set()
            then()  # whoever holds the lock sends the rest

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._given_up.set()
        self._wake.set()

    def _work(self) -> None:
        try:
            with self._locked() as alone:
                while alone and self._then is None and not self._given_up.is_set():
                    self._look(last=False)
                    self._wake.wait(self._every)
                if alone:
                    self._look(last=True)
        except GivenUp:
            pass
        except Exception as error:
            self._tell(f"cannot upload results: {error!r}")
        finally:
            self._line.close()
            with self._mutex:
                self._ended, then = True, self._then
            if then is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                    self._loop.call_soon_threadsafe(then)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Whether it is this node that sends; waits for that, unless the node is about to end."""
        descriptor = open_lock(lock_path(self._base))
        try:
            yield self._take(descriptor)
        finally:
            release(descriptor)

    def _take(self, descriptor: int) -> bool:
        if hold(descriptor, wait=False):
            return True
        with self._mutex:
            if self._then is not None:
                return False
            self._waiting = True
        hold(descriptor)
        with self._mutex:
            self._waiting = False
        return not self._given_up.is_set()

    def _look(self, last: bool) -> None:
        try:
            self._outbox.look(last)
            self._tell("; ".join(dict.fromkeys(self._outbox.problems[:3])))
        except PetctlError as error:
            self._tell(str(error))

    def _tell(self, problem: str) -> None:
        """Says it once, here and among the job's events."""
        if problem == self._told:
            return
        self._told = problem
        if problem:
            log.warning("cannot upload results yet: %s", problem)
        else:
            log.info("results are uploaded again")
        with contextlib.suppress(PetctlError, GivenUp):
            self._line.ask(CALL, {"node": self._node, "problem": problem})
