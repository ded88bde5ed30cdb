"""Figures of jobs, in the format of Prometheus: how many there are in which state, and how each of them fares.

What an ElasticJob's status says is told at once. Rounds, losses and lost seconds only its coordinator knows: it is
asked after somebody has read the figures, at most every EVERY seconds, and the next reader finds the answers. So nobody
is asked where nobody reads. However many jobs there are, at most MOST have figures of their own.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, read_job
from petctl.clusters.kubernetes.operator.runtime.cache import Cache, Object
from petctl.errors import PetctlError

MOST = 500
"""Jobs that have figures of their own, the first by their names."""
EVERY = 30.0  # seconds between two questions to a coordinator
STATES = ("pending", "starting", "running", "recovering", "suspended", "succeeded", "failed")
_KNOWN = {
    "nodes_wanted": ("gauge", "Nodes that the job should have."),
    "nodes_running": ("gauge", "Nodes whose pods run."),
    "coordinators_total": ("counter", "Coordinators created for the job; each but the first replaced one."),
    "rounds_total": ("counter", "Rounds that have run."),
    "nodes_lost_total": ("counter", "Nodes that were lost without having left."),
    "failures_total": ("counter", "Failures of workers that count against backoffLimit."),
    "seconds_lost_total": ("counter", "Seconds in which no round ran, after one did."),
}
_ASKED = {
    "rounds_total": "rounds_run",
    "nodes_lost_total": "nodes_lost",
    "failures_total": "spent",
    "seconds_lost_total": "seconds_lost",
}


class JobMetrics:
    """Those of the jobs in a cache. `ask` has a job's coordinator tell its totals; it may raise a PetctlError."""

    def __init__(self, jobs: Cache, ask: Callable[[ElasticJob], Mapping[str, Any]]) -> None:
        self._jobs, self._ask = jobs, ask
        self._told: dict[str, Mapping[str, Any]] = {}  # uid of a job -> what its coordinator told last
        self._read, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        """Begins to ask, once somebody reads."""
        self._thread.start()

    def stop(self) -> None:
        """Asks no longer; one that is being asked is not waited for."""
        self._stopped.set()
        self._read.set()

    def text(self) -> str:
        """All figures, as of now."""
        self._read.set()
        jobs = self._jobs.all()
        states = Counter(_state(job) for job in jobs)
        lines = ["# HELP petctl_jobs ElasticJobs by their state.", "# TYPE petctl_jobs gauge"]
        lines += [f'petctl_jobs{{state="{state}"}} {states[state]}' for state in STATES]
        found = [(job, self._figures(job)) for job in _shown(jobs)]
        for name, (kind, meaning) in _KNOWN.items():
            lines += [f"# HELP petctl_job_{name} {meaning}", f"# TYPE petctl_job_{name} {kind}"]
            lines += [f"petctl_job_{name}{_labels(job)} {own[name]}" for job, own in found if name in own]
        return "\n".join(lines) + "\n"

    def ask_all(self) -> None:
        """Every coordinator that may know something, one after the other."""
        jobs = list(_shown(self._jobs.all()))
        told = {}
        for job in jobs:
            uid = job["metadata"]["uid"]
            try:
                if _state(job) in ("running", "recovering") and not self._stopped.is_set():
                    told[uid] = _never_less(self._told.get(uid, {}), self._ask(read_job(job)))
            except PetctlError:  # it is being replaced, or of a version that has no totals
                pass
            if uid in self._told:
                told.setdefault(uid, self._told[uid])
        self._told = told

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._read.wait()
            self._read.clear()
            if not self._stopped.is_set():
                self.ask_all()
                self._stopped.wait(EVERY)

    def _figures(self, job: Object) -> dict[str, Any]:
        status = job.get("status") or {}
        told = self._told.get(job["metadata"]["uid"]) or {}
        return {
            "nodes_wanted": int(status.get("wanted") or 0),
            "nodes_running": int(status.get("readyReplicas") or 0),
            "coordinators_total": int(status.get("coordinators") or 0),
            **{name: told[field] for name, field in _ASKED.items() if isinstance(told.get(field), (int, float))},
        }


def _never_less(before: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newer totals; a new coordinator counts from 0 until its nodes have told it more."""
    fields = [
        name for name in now if isinstance(now[name], (int, float)) and isinstance(before.get(name), (int, float))
    ]
    return {**now, **{name: max(before[name], now[name]) for name in fields}}


def _shown(jobs: list[Object]) -> Iterator[Object]:
    """Those that go on and have figures of their own."""
    going = (job for job in jobs if _state(job) not in ("succeeded", "failed"))
    return islice(sorted(going, key=lambda job: (job["metadata"]["namespace"], job["metadata"]["name"])), MOST)


def _state(job: Object) -> str:
    phase = str((job.get("status") or {}).get("phase") or "").lower()
    return phase if phase in STATES else "pending"


def _labels(job: Object) -> str:
    about = job["metadata"]
    return f'{{namespace="{about["namespace"]}",job="{about["name"]}"}}'
