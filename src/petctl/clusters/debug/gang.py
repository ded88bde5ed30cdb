"""One job of the debug cluster: a gang of processes that are started together, and restarted together.

It stands for the coordinator too, and answers the same calls. There is no agent and no node process: only workers can
be lost, nobody joins from elsewhere, and the first worker that ends badly is the root cause.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace

from petctl.agent.health.root_cause import explain
from petctl.agent.launchers.launchers import Launcher
from petctl.agent.logs.stream import forwarded
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.processes import signal_group
from petctl.agent.workers.spawn import Worker, start_process
from petctl.clusters.printed import CoordinatedHere
from petctl.errors import PetctlError, UsageError
from petctl.job.record import JobRecord
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, SUCCEEDED, Outcome, Place
from petctl.text import counted, scaling


class Gang(CoordinatedHere):
    """A job from its submission to its end."""

    def __init__(self, record: JobRecord, secrets: Mapping[str, str]) -> None:
        super().__init__(record)
        self.task, self.procs = replace(record.task, secrets=dict(secrets)), int(record.task.procs)
        self._wanted, self._killed = record.config.wanted, False
        self._end: Outcome | None = None  # as somebody wants it, or the time limit
        self._ended: list[Worker] = []  # those of the round that have, in order
        threading.Thread(target=self._live, daemon=True).start()

    def scale(self, wanted: int) -> str:
        size = self.status().size
        if not size.min <= wanted <= size.max:
            raise UsageError(f"{self.job_id} may have {size.min} to {size.max} nodes, not {wanted}")
        before, self._wanted = self._wanted, wanted
        self.changed.notify_all()
        return scaling(before, wanted)

    def cancel(self, kill: bool) -> str:
        self._killed = self._killed or kill
        self.finish(Outcome(CANCELLED, 130, "killed by the user" if kill else "cancelled by the user"))
        return "killing" if kill else "cancelling"

    def finish(self, outcome: Outcome) -> None:
        """Ends the job, unless something else has begun to."""
        with self.changed:
            self._end = self._end or outcome
            self.changed.notify_all()

    def _live(self) -> None:
        """All of its life, in one thread, with which its workers would die."""
        with ExitStack() as self._printing:
            try:
                with self.changed:
                    outcome = self.changed.wait_for(lambda: self._end, self.record.request["start_delay"])
                if outcome is None:
                    self.tell("started", "started: a debug cluster has no queue")
                while outcome is None:
                    outcome = self._round(self.history.round + 1, self._wanted)
            except (PetctlError, OSError) as error:
                outcome = Outcome(ENDED_FAILED, 127, f"it cannot be started: {error}")
        self.end(outcome)

    def _round(self, number: int, size: int) -> Outcome | None:
        """From the start of its workers until none of them is left; an outcome if it was the last."""
        self.tell("round", f"round {number} begins", round=number, reason=f"{size} wanted", wanted=size)
        self._ended, workers = [], list[Worker]()
        try:
            self._start(workers, number, size)
            with self.changed:
                limit, started = self.record.max_time, self.status().started or time.time()
                left = max(0.0, started + limit - time.time()) if limit else None
                if not self.changed.wait_for(lambda: self._end or self._over(workers) or self._wanted != size, left):
                    self._end = Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")
                if self._end or not self._over(workers):
                    return self._end
                failed = next((worker for worker in self._ended if worker.code), None)
                return self._charged(failed) if failed else Outcome(SUCCEEDED, 0, "all workers finished successfully")
        finally:
            self._stop(workers)

    def _start(self, workers: list[Worker], number: int, size: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        procs, members = self.procs, {str(node): [node * self.procs, self.procs] for node in range(size)}
        for node in range(size):
            place = Place(node, size, node * procs, size * procs, "127.0.0.1", port)
            key, log_dir = f"{self.job_id}/{node}/1", f"{self.task.log_dir}/{node}"
            context = RoundContext(str(node), key, 1, number, place, self.history.spent, procs)
            for launch in Launcher().plan(self.task, context, os.environ, log_dir):
                process = start_process(launch, launch.env)
                workers.append(Worker(launch, process))
                threading.Thread(target=self._wait_for, args=(workers[-1], process), daemon=True).start()
            if not (output := self.directory / f"{node}.out").exists():
                self._printing.enter_context(forwarded(log_dir, output))
        data = {"round": number, "members": members, "nodes": list(members), "world_size": len(workers)}
        self.tell("running", f"round {number}: {counted(size, 'node')}, {counted(len(workers), 'worker')}", **data)

    def _wait_for(self, worker: Worker, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with self.changed:
            worker.reap()
            self._ended.append(worker)
            self.changed.notify_all()

    def _charged(self, worker: Worker) -> Outcome | None:
        """Charges a failure; the job's end where nothing is left to be charged to."""
        failure, spent = explain(worker, str(worker.launch.rank // self.procs)), self.history.spent + 1
        if spent > self.task.restarts:
            return Outcome(ENDED_FAILED, failure.code, failure.sentence(), failure)
        self.tell("failure", failure.sentence(), failure=asdict(failure), spent=spent)
        return None

    def _stop(self, workers: list[Worker]) -> None:
        """SIGTERM, the job's grace, SIGKILL: afterwards nothing of the round is left."""
        with self.changed:
            for worker in workers:
                signal_group(worker.pid, signal.SIGTERM)
            self.changed.wait_for(lambda: self._killed or len(self._ended) == len(workers), self.task.grace)
            for worker in workers:
                signal_group(worker.pid, signal.SIGKILL)
            self.changed.wait_for(lambda: len(self._ended) == len(workers))

    def _over(self, workers: list[Worker]) -> bool:
        return len(self._ended) == len(workers) or any(worker.code for worker in self._ended)
