"""Drives a sweep: look at its jobs, decide, act, and again, until it is over or its driver leaves.

Whoever drives holds the sweep's lock. Everything is written down before it is done, and everything that is done can be
done twice: ids are known beforehand, and a cluster accepts an id once. So a driver that was killed at any moment is
replaced by one that goes on from there, and each point runs once. Without a driver the jobs that were submitted go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from petctl.clusters.patience import AWAY, Patience
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.jobs import AlreadyExists, JobHandle, submit
from petctl.sweeps.begin import KEY
from petctl.sweeps.decide import CANCELLED, Decision, Submission, decide, rules_of
from petctl.sweeps.history import CUT_SHORT, GOOD, REFUSED, History
from petctl.sweeps.looking import JobPoller
from petctl.sweeps.record import SweepDirectory
from petctl.sweeps.space import in_words

QUICK, SLOWEST = 0.2, 2.0  # seconds between two looks: after news, and when there is none for long
UNATTENDED = 86400.0  # ... that a driver waits for a cluster which is away, where nobody would start the next one
LEISURE = 4.0  # a pause without news is so many times as long as the look before it

Say = Callable[[str], None]


class Driver:
    """One sweep, from where it stands."""

    def __init__(self, folder: SweepDirectory, say: Say = lambda sentence: None) -> None:
        self.folder, self._say = folder, say
        self.sweep, self.limits = folder.sweep(), folder.limits()
        self.rules = rules_of(self.limits)
        self.history = History(len(self.sweep.points))
        self._eyes = JobPoller(self.sweep.cluster, self.limits, self.rules.metric, len(self.sweep.points))
        self._read = 0  # how much of the events
        self._code = folder.code(self.sweep)
        self._cancelled: set[str] = set()  # in this life: what an earlier one has asked for may have been cut off
        self.read()

    def run(
        self,
        shown: Callable[[], None] = lambda: None,
        leave: threading.Event | None = None,
        lock: int | None = None,
    ) -> bool:
        """Drives until the sweep is over; False when it was left before. `shown` is called whenever something may have
        changed; `lock`: its descriptor, where somebody has handed it on."""
        leave = leave or threading.Event()
        patience, waiting, pause = Patience(None if lock is None else UNATTENDED), False, QUICK
        with self.folder.driving(lock):
            while not leave.is_set():
                try:
                    busy, over = self._turn(shown, leave)
                except PetctlError as error:
                    if error.code != AWAY:
                        raise self._left(error) from None
                    if not waiting:
                        self._say(f"waiting for the cluster: {error}")
                    waiting = True
                    patience.wait_and_retry(self._left(error))
                    continue
                patience.restored()
                waiting = False
                shown()
                if over:
                    return True
                pause = QUICK if busy else min(SLOWEST, 1.2 * pause)
                leave.wait(max(pause, self._eyes.seconds * (1 if busy else LEISURE)))
        return False

    def read(self) -> None:
        """Takes in what was written down, by whomever."""
        events, self._read = self.folder.events(self._read)
        for event in events:
            self.history.take(event)

    def peek(self) -> None:
        """Looks at the jobs without writing anything down, for whoever only wants to know."""
        self._look(keep=False)

    def own(self, job_id: str) -> JobHandle | None:
        """The job of this id, if there is one and it is this sweep's."""
        handle = self._eyes.handle(job_id)
        try:
            labels = handle.record().job.get("labels", {})
        except NotFound:
            return None
        return handle if labels.get(KEY) == self.sweep.key else None

    # -- one turn ------------------------------------------------------------------------------------------------------

    def _turn(self, shown: Callable[[], None], leave: threading.Event) -> tuple[bool, bool]:
        """Whether something has happened, and whether the sweep is over."""
        self.read()
        self._find_unknown()
        news = self._look(keep=True)
        decision = decide(self.history, self.rules, time.time())
        self._act(decision, shown, leave)
        return news or bool(decision.submit or decision.stop), decision.over

    def _look(self, keep: bool) -> bool:
        news = False
        attempts = [attempt for attempt in self.history.open.values() if attempt.accepted]
        for event, worth in self._eyes.look(attempts, act=keep):
            news = news or worth
            if keep and worth:
                self._note(**event)
            else:
                self.history.take({"time": time.time(), **event})
            if keep and event["kind"] == "ended":
                self._tell_end(event)
                if event["state"] == CUT_SHORT:
                    self._clear_away(event["id"])
        return news

    def _act(self, decision: Decision, shown: Callable[[], None], leave: threading.Event) -> None:
        if decision.reached:
            self._note("reached", why=decision.reached)
            self._say(f"{decision.reached}; stopping the others")
        for job_id in decision.drop:
            self._note("ended", id=job_id, state=CUT_SHORT, sentence="it was never submitted")
        for job_id, why in decision.stop:
            self._stop(job_id, why)
        for submission in decision.submit:
            if leave.is_set():
                return
            self._submit(submission)
            shown()

    def _submit(self, submission: Submission) -> None:
        job_id = self.sweep.id_of(*submission)
        self._note("submit", id=job_id, point=submission.point)
        try:
            submit(self.sweep.job_of(submission.point), self.sweep.cluster, job_id, self._code)
        except AlreadyExists:
            if self.own(job_id) is None:
                self._note("ended", id=job_id, state=REFUSED, sentence=f"another job is called {job_id}")
                return
        except UsageError as error:  # this point's own fault: the others may do
            self._note("ended", id=job_id, state=REFUSED, sentence=str(error))
            self._say(f"{job_id} was refused: {error}")
            return
        self._note("accepted", id=job_id)

    def _stop(self, job_id: str, why: str) -> None:
        if job_id in self._cancelled:
            return
        if not self.history.attempts[job_id].stop and why != CANCELLED:
            self._note("stop", id=job_id, why=why)
            self._say(f"stopped {job_id}: {why}")
        with suppress(NotFound):  # the next look tells
            self._eyes.handle(job_id).cancel()
        self._cancelled.add(job_id)

    def _find_unknown(self) -> None:
        """Jobs of which nobody knows whether they were accepted: their submitter was killed before it could write that
        down, or the cluster went away."""
        for attempt in self.history.open.values():
            if attempt.accepted:
                continue
            try:
                status = self._eyes.handle(attempt.id).status()
            except NotFound:
                continue  # it will be submitted again
            if status.cut_short:
                self._note("ended", id=attempt.id, state=CUT_SHORT, sentence=status.sentence)
                self._clear_away(attempt.id)
            elif self.own(attempt.id) is not None:
                self._note("accepted", id=attempt.id)

    def _clear_away(self, job_id: str) -> None:
        """What is left of a job that never ran; whatever keeps it is no reason to stop."""
        with suppress(PetctlError, TimeoutError):
            self._eyes.handle(job_id).remove(force=True)

    def _left(self, error: PetctlError) -> PetctlError:
        """What keeps a driver from going on, with what to do then."""
        name = self.folder.name
        left = PetctlError(f"{error}\nJobs of {name} keep running; after fixing this: petctl sweep resume {name}")
        left.code = error.code
        return left

    def _note(self, kind: str, **facts: Any) -> None:
        self.folder.note(kind, **facts)
        self.read()

    def _tell_end(self, event: dict[str, Any]) -> None:
        attempt = self.history.attempts[event["id"]]
        values = in_words(self.sweep.points[attempt.point - 1].values)
        metric = self.rules.metric
        found = f": {metric} {attempt.metrics[metric]:.6g}" if metric in attempt.metrics else ""
        why = (
            ""
            if attempt.shown_state in GOOD
            else "".join(f": {one}" for one in (attempt.cause, attempt.sentence) if one)
        )
        self._say(f"{attempt.id} {attempt.shown_state}{found} ({values}){why}")


def go_there(folder: SweepDirectory) -> None:
    """Changes to the directory that the sweep was begun in: its settings, and relative words, mean what they meant."""
    directory = folder.sweep().cwd
    try:
        os.chdir(directory)
    except OSError as error:
        raise UsageError(
            f"the sweep {folder.name} was started in {directory} and cannot continue from elsewhere: {error.strerror}"
        ) from None


def drive_detached(folder: SweepDirectory) -> None:
    """Starts a driver that outlives this process; what it says is in driver.log. It has the lock from the beginning, so
    that whoever looks next sees that the sweep is driven."""
    go_there(folder)
    lock = folder.take()
    try:
        with (folder.path / "driver.log").open("ab") as log:
            subprocess.Popen(
                # Not with the user's own random.py.
                [sys.executable, "-P", "-m", "petctl.sweeps", folder.name, str(lock)],
                pass_fds=[lock],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    finally:
        os.close(lock)  # the driver holds it, too
