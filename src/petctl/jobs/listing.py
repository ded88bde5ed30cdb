"""Lists jobs: of one cluster, or of every cluster that the user configured or submitted to from here.

Clusters are asked at once, each in a thread of its own, and one that is silent for `SILENCE` seconds is given up: the
others' jobs are shown, and the caller hears which cluster did not answer. Threads are daemons, so a cluster that never
answers does not keep the process from ending.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.clusters.base import Cluster, Listed, find_cluster
from petctl.config.settings import cluster_names, cluster_settings, resource_settings
from petctl.errors import InternalError, PetctlError, UsageError
from petctl.home import petctl_home
from petctl.jobs.registry import Registry
from petctl.jobs.status import Status, damaged_status
from petctl.kinds import DEFAULT, KINDS, canonical_kind
from petctl.text import counted
from petctl.unattended import unattended

if TYPE_CHECKING:
    from queue import SimpleQueue

SILENCE = 2.0  # seconds without a word after which a cluster is given up, where others are asked too

Unanswered = Callable[[str, PetctlError], None]


def list_jobs(cluster: str | None = None, unanswered: Unanswered | None = None) -> list[Status]:
    """The jobs of a cluster, newest first; without a name those of this machine and of every other cluster that is
    configured or has been submitted to from here.

    With a name, a cluster that does not answer raises its error. Without, it is left out: `unanswered` is called with
    its name and the error; where there is no `unanswered`, a RuntimeWarning says so.
    """
    if cluster is not None:
        home = petctl_home()
        return _newest_first(_all_jobs(find_cluster(cluster, home), Registry(home)))
    by_cluster = list_by_cluster(unanswered or _warn)
    return _newest_first(status for jobs in by_cluster.values() for status in jobs)


def list_by_cluster(unanswered: Unanswered) -> dict[str, list[Status]]:
    """The jobs of every cluster that answers, by the cluster's name; those of this machine first, under its name also
    those of clusters that were made on it."""
    home = petctl_home()
    registry = Registry(home)
    here, others = find_cluster(DEFAULT, home), other_clusters(home)
    if not others:
        return {DEFAULT: _all_jobs(here, registry)}
    from queue import SimpleQueue

    told: SimpleQueue[tuple[str, Any]] = SimpleQueue()
    answers = {name: _Answer(registry.ended(name)) for name in others}
    for name, answer in answers.items():
        _start(_ask, name, home, set(answer.known), told)
    found = {DEFAULT: _all_jobs(here, registry)}
    _gather(answers, told)
    for name, answer in answers.items():
        registry.keep(status for status in answer.fresh if status.submitted)
        if answer.error is None:
            registry.forget(name, set(answer.known) - answer.ids)
        else:
            unanswered(name, answer.error)
        if answer.error is None or answer.ids:
            found[name] = answer.jobs()
    return found


def other_clusters(home: Path) -> list[str]:
    """The clusters whose jobs are not on this machine: configured ones, and those that were submitted to from here. Of
    two names for the same cluster only the first."""
    found: dict[tuple[str, str], str] = {}
    for name in sorted({*cluster_names(), *Registry(home).clusters()} - {DEFAULT}):
        try:
            settings = cluster_settings(name) or ({} if name in KINDS else resource_settings(home, name))
        except UsageError:  # made on this machine and being deleted
            continue
        kind = canonical_kind(str(settings.pop("kind", name)))
        if kind != DEFAULT:
            found.setdefault((kind if kind in KINDS else name, repr(sorted(settings.items()))), name)
    return sorted(found.values())


class _Answer:
    """What one cluster has said so far."""

    def __init__(self, known: Mapping[str, Status]) -> None:
        self.known = known  # ended jobs, from the registry
        self.ids: set[str] = set()
        self.fresh: list[Status] = []
        self.error: PetctlError | None = None
        self.complete = False
        self.heard = time.monotonic()

    def take(self, word: Any) -> None:
        """Takes in what its thread tells: one job after the other, then None; or an error."""
        self.heard = time.monotonic()
        if isinstance(word, PetctlError):
            self.fail(word)
        elif word is None:
            self.complete = True
        else:
            job_id, status = word
            self.ids.add(job_id)
            self.fresh += [status] if status is not None else []

    def jobs(self) -> list[Status]:
        """All that are known of it."""
        return self.fresh + [status for job_id, status in self.known.items() if job_id in self.ids]

    def fail(self, error: PetctlError) -> None:
        """Ends the wait for it; what was heard of its jobs is shown, and that some are missing."""
        self.complete = True
        self.error = PetctlError(f"only {counted(len(self.ids), 'job')} listed: {error}") if self.ids else error


def _gather(answers: Mapping[str, _Answer], told: SimpleQueue[tuple[str, Any]]) -> None:
    from queue import Empty

    while waiting := [answer for answer in answers.values() if not answer.complete]:
        first = min(waiting, key=lambda answer: answer.heard)
        try:
            name, word = told.get(timeout=max(0.0, first.heard + SILENCE - time.monotonic()))
        except Empty:
            first.fail(PetctlError(f"no answer within {SILENCE:g} s"))
        else:
            if not answers[name].complete:
                answers[name].take(word)


def _start(target: Callable[..., None], *words: Any) -> None:
    import threading

    threading.Thread(target=target, args=words, daemon=True).start()


def _ask(name: str, home: Path, known: set[str], told: SimpleQueue[tuple[str, Any]]) -> None:
    """Asks one cluster for its jobs, and tells each thing as soon as it is known."""
    try:
        with unattended():
            where = find_cluster(name, home)
            for listed in where.statuses(lambda job_id: job_id not in known):
                told.put((name, (listed.id, _status(where, listed))))
        told.put((name, None))
    except PetctlError as error:
        told.put((name, error))
    except Exception as error:  # of one cluster: it must not hide the others' jobs
        told.put((name, InternalError(f"unexpected {type(error).__name__}: {error}".rstrip(": "))))


def _all_jobs(where: Cluster, registry: Registry) -> list[Status]:
    known = registry.ended(where.name)
    found = {listed.id: _status(where, listed) for listed in where.statuses(lambda job_id: job_id not in known)}
    fresh = [status for status in found.values() if status is not None]
    registry.keep(status for status in fresh if status.submitted)
    registry.forget(where.name, set(known) - set(found))
    return fresh + [status for job_id, status in known.items() if job_id in found]


def _status(cluster: Cluster, listed: Listed) -> Status | None:
    if listed.error is not None:
        return damaged_status(listed.id, cluster.name, str(listed.error))
    return listed.status


def _newest_first(statuses: Iterable[Status]) -> list[Status]:
    return sorted(statuses, key=lambda status: status.submitted, reverse=True)


def _warn(name: str, error: PetctlError) -> None:
    import warnings

    message = f"cannot list the jobs of cluster {name}: {error}"
    warnings.warn(message, RuntimeWarning, stacklevel=4)  # of the caller of list_jobs
