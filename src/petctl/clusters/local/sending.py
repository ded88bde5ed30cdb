"""The supervisor's part in a job's results: signs for the nodes, hears of their trouble, sends what is left at the end.

Stores are asked in threads of its own, never in the coordinator's loop. Trouble with a store costs the results' way
there, never the job: what is not sent stays in the job's directory, and the status says so.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Sequence, Set

from petctl.clusters.local.jobdir import JobDirectory
from petctl.errors import PetctlError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from petctl.clusters.results import CurrentGrants

LOCK_PATIENCE = 60.0  # seconds for somebody else who sends from the same directory
LOCK_STEP = 0.1
_OWN = ""  # among problems: the supervisor's
_KILLED = "the user killed the job, and what was not sent by then stays in its directory"

log = logging.getLogger("petctl.supervisor")


class Sending:
    """One job's results, as its supervisor sees them. `event` writes down; `changed` wants a new status."""

    def __init__(
        self,
        directory: JobDirectory,
        record: Mapping[str, Any],
        event: Callable[..., None],
        changed: Callable[[], None],
    ) -> None:
        self._directory, self._task = directory, record["plan"]["task"]
        self._places: Mapping[str, Mapping[str, Any]] = record["plan"].get("grants") or {}
        self._event, self._changed = event, changed
        self._grants: Optional[CurrentGrants] = None
        self._pool: Optional[ThreadPoolExecutor] = None
        self._problems: Dict[str, str] = {}
        self._told: Set[str] = set()
        self._given_up = threading.Event()
        self.busy = False

    @property
    def wanted(self) -> bool:
        """Does this job send anything?"""
        return bool(self._task.get("results") or self._task.get("folders"))

    def calls(self) -> Dict[str, Callable[..., object]]:
        """What nodes may ask."""
        return {"sign": self._sign, "page": self._page, "results": self._hear} if self._places else {}

    def sentence(self) -> str:
        """Why something is not sent, for the status; empty when all is well."""
        return "; ".join(dict.fromkeys(f"not sent: {problem}" for problem in self._problems.values()))

    async def _sign(self, grant: str, requests: Sequence[Mapping[str, Any]]) -> object:
        return await self._in_thread(lambda: self._current().sign(grant, requests))

    async def _page(self, grant: str, after: str) -> object:
        return await self._in_thread(lambda: self._current().page(grant, after))

    def _hear(self, node: str, problem: str) -> None:
        """A node says why it cannot send, or (empty) that it can again."""
        self._note(str(node)[:100], str(problem)[:1000])

    def _note(self, who: str, problem: str) -> None:
        if problem:
            self._problems[who] = problem
        else:
            self._problems.pop(who, None)
        if problem and problem not in self._told:
            self._told.add(problem)
            self._event("results", f"results are not sent: {problem}", node=who)
        self._changed()

    def give_up(self) -> None:
        """The user does not want to wait for it."""
        self._given_up.set()

    async def send_the_rest(self) -> None:
        """What nodes that were killed have left in this machine's directories. Nobody else may be sending by now."""
        if not self.wanted or not self._places:
            return
        self.busy = True
        self._changed()
        try:
            problem = _KILLED if self._given_up.is_set() else await self._in_thread(self._last_look)
        except Exception as error:  # whatever it is: the job must end
            log.exception("petctl's own fault: the last results were not sent")
            problem = f"petctl's own fault: {error!r}"
        self.busy = False
        for node in self._directory.node_names():  # theirs was the same directory
            self._problems.pop(node, None)
        self._note(_OWN, problem)

    def _last_look(self) -> str:
        from petctl.agent.outbox import Outbox, lock_path
        from petctl.depot.files import Depot
        from petctl.errors import GivenUp

        base = str(self._directory.path)
        problems = []
        lock = os.open(lock_path(base), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if not _taken(lock):
                return "another process of this machine still sends from the job's directory"
            if self._task.get("results"):
                directories = (str(self._directory.outputs), str(self._directory.logs))
                depot = Depot(self._current().ask, self._given_up)
                outbox = Outbox(depot, base, *directories, self._task["results"], self._given_up.is_set)
                outbox.look(last=True)
                problems += outbox.problems[:3]
            if self._task.get("folders"):
                from petctl.agent.folders import send_left
                from petctl.agent.task import decode_task

                send_left(decode_task(self._task), self._current().ask, problems.append, self._given_up)
        except GivenUp:
            problems.append(_KILLED)
        except (PetctlError, OSError) as error:
            problems.append(str(error))
        finally:
            os.close(lock)
        return "; ".join(dict.fromkeys(problems))

    def _current(self) -> CurrentGrants:
        if self._grants is None:
            from petctl.clusters.results import CurrentGrants  # few jobs have a store

            self._grants = CurrentGrants(self._places, self._directory.home)
        return self._grants

    async def _in_thread(self, act: Callable[[], Any]) -> Any:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(4, "petctl-stores")
        return await asyncio.get_running_loop().run_in_executor(self._pool, act)


def _taken(lock: int) -> bool:
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() > end:
                return False
            time.sleep(LOCK_STEP)  # a lock that can be given up cannot be waited for
