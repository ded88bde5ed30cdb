"""The local supervisor's part in a job's results: signs for the nodes, and sends what is left at the end.

What is not sent stays in the job's directory, and the status says so.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Callable, Optional

from petctl.agent.data.new_files import keep_new_files
from petctl.clusters.local.job_directory import JobDirectory
from petctl.controller.signing import Signing
from petctl.errors import PetctlError
from petctl.files import release, take_lock
from petctl.job.record import JobRecord

if TYPE_CHECKING:
    from petctl.submission.results import CurrentGrants

LOCK_PATIENCE = 60.0  # seconds for somebody else who sends from the same directory
_OWN = ""  # among problems: the supervisor's
_KILLED = "the user killed the job; results not uploaded by then stay in its directory"

log = logging.getLogger(__name__)


class Sending(Signing):
    """One job's results, as its supervisor sees them. `event` writes down; `changed` wants a new status."""

    def __init__(
        self,
        directory: JobDirectory,
        record: JobRecord,
        event: Callable[..., None],
        changed: Callable[[], None],
    ) -> None:
        super().__init__(bool(record.grants), self._current, event, changed)
        self._directory, self._record = directory, record
        self._grants: Optional[CurrentGrants] = None
        self._given_up = threading.Event()

    def give_up(self) -> None:
        self._given_up.set()

    async def send_the_rest(self) -> None:  # no other process may be sending by now
        task = self._record.task
        self.kept = keep_new_files(str(self._directory.unpacked), str(self._directory.outputs))
        if self.kept:
            self._event("kept", self.kept)
        if not self._record.grants or not (task.results or task.folders):
            return
        self.busy = True
        self._changed()
        try:
            problem = _KILLED if self._given_up.is_set() else await self.in_thread(self._last_look)
        except Exception as error:  # whatever it is: the job must end
            log.exception("internal error: the last results were not uploaded")
            problem = f"internal error: {error!r}"
        self.busy = False
        for node in self._directory.node_names():  # theirs was the same directory
            self.forget(node)
        self.note(_OWN, problem)

    def _last_look(self) -> str:
        from petctl.agent.data.uploader import Outbox, lock_path
        from petctl.errors import GivenUp
        from petctl.storage.core.files import Depot

        base, task = str(self._directory.path), self._record.task
        problems = []
        lock = take_lock(lock_path(base), within=LOCK_PATIENCE)
        if lock is None:
            return "another process of this machine still sends from the job's directory"
        try:
            if task.results:
                directories = (str(self._directory.outputs), str(self._directory.logs))
                depot = Depot(self._current().ask, self._given_up)
                outbox = Outbox(depot, base, *directories, task.results, self._given_up.is_set)
                outbox.look(last=True)
                problems += outbox.problems[:3]
            if task.folders:
                from petctl.agent.data.folders import send_left

                send_left(task, self._current().ask, problems.append, self._given_up)
        except GivenUp:
            problems.append(_KILLED)
        except (PetctlError, OSError) as error:
            problems.append(str(error))
        finally:
            release(lock)
        return "; ".join(dict.fromkeys(problems))

    def _current(self) -> CurrentGrants:
        if self._grants is None:
            from petctl.submission.results import CurrentGrants  # few jobs have a store

            self._grants = CurrentGrants(self._record.grants, self._directory.home)
        return self._grants
