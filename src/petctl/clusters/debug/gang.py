"""One job of the debug cluster: a gang of processes that are started together, and restarted together.

It stands for the coordinator too, and answers the same calls. There is no agent and no node process: only workers can
be lost, nobody joins from elsewhere, the first worker that ends badly is the root cause, and a worker has ended when
nothing writes its output any more.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from petctl.agent.health.root_cause import from_stderr, signal_name
from petctl.agent.launchers.launchers import command
from petctl.agent.node.native import die_with_parent
from petctl.agent.workers.environment import RoundContext, worker_environment
from petctl.agent.workers.processes import signal_group
from petctl.clusters.backend import COORDINATOR, Inspection
from petctl.clusters.printed import Item, Printed
from petctl.controller.journals.records import History, close_status, first_status
from petctl.errors import PetctlError, UsageError
from petctl.job.events import new_event
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus, NodeStatus
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, SUCCEEDED, Failure, Outcome, Place
from petctl.text import scaling


class Gang(Inspection):
    """A job from its submission to its end; `changed` guards all that is known of it, and wakes who waits for news."""

    over = False

    def __init__(self, record: JobRecord, secrets: Mapping[str, str]) -> None:
        self.record, self.job_id, self.asks = record, record.id, True
        self.task = replace(record.task, secrets=dict(secrets))
        self.changed = threading.Condition()
        self._status, self._version, self._wanted = first_status(record), 0, record.config.wanted
        self.printed: dict[str, list[Item]] = {"node": [], COORDINATOR: []}
        self._end: Outcome | None = None  # as somebody wants it, or the time limit
        self._killed = False
        self._history = History()
        self._ended: list[tuple[int, int]] = []  # rank and code of the round's workers that have, in order
        threading.Thread(target=self._live, daemon=True).start()

    # -- as a coordinator ----------------------------------------------------------------------------------------------

    def status(self) -> JobStatus:
        return self._status

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        calls: dict[str, Callable[..., Any]] = {"watch": self._watch, "scale": self._scale, "cancel": self._cancel}
        with self.changed:
            return calls[call](**params)

    def _watch(self, seen: int, within: float) -> dict[str, Any]:
        self.changed.wait_for(lambda: self.over or self._version != seen, within)
        return {"version": self._version, "status": self._status.pack()}

    def _scale(self, wanted: int) -> str:
        least, most = self._status.size.min, self._status.size.max
        if not least <= wanted <= most:
            raise UsageError(f"{self.job_id} may have {least} to {most} nodes, not {wanted}")
        before, self._wanted = self._wanted, wanted
        self.changed.notify_all()
        return scaling(before, wanted)

    def _cancel(self, kill: bool) -> str:
        self._killed = self._killed or kill
        self.finish(Outcome(CANCELLED, 130, "killed by the user" if kill else "cancelled by the user"))
        return "killing" if kill else "cancelling"

    def finish(self, outcome: Outcome) -> None:
        """Ends the job, unless something else has begun to."""
        with self.changed:
            self._end = self._end or outcome
            self.changed.notify_all()

    # -- its life ------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        """All of its life, in one thread, with which its workers would die."""
        outcome = None
        try:
            with self.changed:
                self.changed.wait_for(lambda: self._end, self.record.request["start_delay"])
                outcome = self._end
            if outcome is None:
                self._tell("started", "started: a debug cluster has no queue", state="starting")
            while outcome is None:
                outcome = self._round(self._history.round + 1, self._wanted)
        except (PetctlError, OSError) as error:
            outcome = Outcome(ENDED_FAILED, 127, f"it cannot be started: {error}")
        with self.changed:
            self._tell("closing", f"{outcome.state}: {outcome.sentence}")
            self._status, self.over, self.asks = close_status(self._status, outcome, time.time()), True, False
            self.changed.notify_all()

    def _round(self, number: int, size: int) -> Outcome | None:
        """From the start of its workers until none of them is left; an outcome if it was the last."""
        self._tell("round", f"round {number} begins", round=number, reason=f"{size} wanted")
        workers: list[subprocess.Popen[bytes]] = []
        self._ended = []
        try:
            self._start(workers, number, size)
            with self.changed:
                self._runs(number, size)
                limit, started = self.record.max_time, self._status.started or time.time()
                left = max(0.0, started + limit - time.time()) if limit else None
                if not self.changed.wait_for(lambda: self._end or self._over(workers) or self._wanted != size, left):
                    self._end = Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")
                failed = next((ended for ended in self._ended if ended[1]), None)
                if self._end or not (failed or self._over(workers)):
                    return self._end
                if failed:
                    return self._charged(number, *failed)
                return Outcome(SUCCEEDED, 0, "all workers finished successfully")
        finally:
            self._stop(workers)

    def _start(self, workers: list[subprocess.Popen[bytes]], number: int, size: int) -> None:
        procs, with_us = int(self.task.procs), die_with_parent()
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        for rank in range(size * procs):
            node, local_rank = divmod(rank, procs)
            place = Place(node, size, node * procs, size * procs, "127.0.0.1", port)
            context = RoundContext(str(node), f"{self.task.job}/{node}/1", 1, number, place, self._history.spent, procs)
            env = worker_environment(os.environ, self.task, context, local_rank, "")
            worker = subprocess.Popen(
                command(self.task, env),
                cwd=self.task.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=with_us,
            )
            workers.append(worker)
            threading.Thread(target=self._read, args=(worker, number, rank, str(node)), daemon=True).start()

    def _read(self, worker: subprocess.Popen[bytes], number: int, rank: int, node: str) -> None:
        """Takes in what a worker writes, then its end."""
        for text in worker.stdout or ():
            with self.changed:
                self.printed["node"].append((node, b"[%d.%d] %s" % (rank, number, text)))
                self.changed.notify_all()
        code = worker.wait()
        with self.changed:
            self._ended.append((rank, code))
            self.changed.notify_all()

    def _charged(self, number: int, rank: int, code: int) -> Outcome | None:
        """Charges a failure; the job's end where nothing is left to be charged to."""
        own = b"[%d.%d] " % (rank, number)
        written = b"".join(line.removeprefix(own) for _, line in self.printed["node"] if line.startswith(own))
        node, local_rank = divmod(rank, int(self.task.procs))
        name, shown = (signal_name(-code), 128 - code) if code < 0 else ("", code)
        said = from_stderr(written, killed=code < 0)
        failure = Failure(str(node), rank, local_rank, shown, name, *said, time=time.time())
        spent = self._history.spent + 1
        if spent > self.task.restarts:
            return Outcome(ENDED_FAILED, shown, failure.sentence(), failure)
        self._tell("failure", failure.sentence(), state="recovering", failure=asdict(failure), spent=spent)
        return None

    def _stop(self, workers: list[subprocess.Popen[bytes]]) -> None:
        """SIGTERM, the job's grace, SIGKILL: afterwards nothing of the round is left."""
        with self.changed:
            for worker in workers if len(self._ended) < len(workers) else ():
                signal_group(worker.pid, signal.SIGTERM)
            self.changed.wait_for(lambda: self._killed or len(self._ended) == len(workers), self.task.grace)
            for worker in workers if len(self._ended) < len(workers) else ():
                signal_group(worker.pid, signal.SIGKILL)
            self.changed.wait_for(lambda: len(self._ended) == len(workers))

    def _over(self, workers: list[subprocess.Popen[bytes]]) -> bool:
        return len(self._ended) == len(workers) or any(code for _, code in self._ended)

    def _runs(self, number: int, size: int) -> None:
        procs = int(self.task.procs)
        ranks = {node: list(range(node * procs, (node + 1) * procs)) for node in range(size)}
        members = {str(node): [of[0], procs] for node, of in ranks.items()}
        data = {"round": number, "members": members, "nodes": list(members), "world_size": size * procs}
        self._tell("running", f"round {number} runs, {size * procs} workers", state="running", **data)
        rows = [NodeStatus(str(node), "running", rank=node, ranks=of) for node, of in ranks.items()]
        self._status = replace(self._status, nodes=rows, world_size=size * procs)

    def _tell(self, kind: str, sentence: str, state: str = "", **data: Any) -> None:
        """Writes down an event, and what follows from it for the status."""
        with self.changed:
            event, past, now = new_event(kind, sentence, **data), self._history, self._status
            self.printed[COORDINATOR].append(("", json.dumps(event).encode()))
            past.take(event)
            self._version += 1
            if state not in ("", now.state):
                now = replace(now, state=state, since=time.time())
            self._status = replace(
                now,
                sentence=sentence,
                epoch=1,
                size=replace(now.size, wanted=self._wanted),
                round=past.round,
                spent=past.spent,
                started=past.started,
                seconds_lost=past.seconds_lost,
                last_failure=past.last_failure,
                rounds=list(past.rounds),
                rounds_run=past.ran,
            )
            self.changed.notify_all()


class GangPrinted(Printed):
    """What a gang's workers, or the gang itself, have printed."""

    def __init__(self, gang: Gang, role: str) -> None:
        self._gang, self._lines, self._past = gang, gang.printed[role], 0

    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        self._past = len(self._lines)
        return iter(self._lines[: self._past])

    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        while True:
            with self._gang.changed:
                self._gang.changed.wait_for(lambda: len(self._lines) > self._past or over())
                new = self._lines[self._past :]
            if not new:
                return
            self._past += len(new)
            yield from new
