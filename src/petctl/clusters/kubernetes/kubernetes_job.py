"""One job of a namespace, read from its objects: asked for alone, or as one of all in a list.

What happens inside a job only its coordinator knows, and asking each would be a connection per job. A summary tells
what Kubernetes knows: how the job ended, why it waits, which nodes' pods are ready (that is: their workers have been in
a round for a moment, `agent/health/readiness.py`). It leaves out what only the job itself knows: rounds, ranks,
progress.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from petctl.clusters.backend import Inspection
from petctl.clusters.kubernetes import elastic_jobs, job_status
from petctl.clusters.kubernetes.names import ABOUT, CONTAINER, COORDINATOR, NODE, node_of, selector
from petctl.clusters.kubernetes.pods import pod_events
from petctl.clusters.kubernetes.pods.pod_termination import End, ends_of
from petctl.clusters.managed import not_over
from petctl.clusters.node_ends import may_have_lost, with_ends
from petctl.clusters.printed import final_status, printed_status
from petctl.controller.journals.records import first_status
from petctl.errors import NotFound
from petctl.job.record import JobRecord
from petctl.job.status import JobStatus, NodeStatus
from petctl.kube.api import Items
from petctl.kube.objects import (
    Object,
    annotations_of,
    by_age,
    containers,
    is_ready,
    phase,
    ready_since,
    running,
    runs,
    seconds,
)
from petctl.kube.pod_logs import last_lines
from petctl.rendezvous.core.decide import natural

if TYPE_CHECKING:
    from petctl.clusters.kubernetes.backend import KubernetesBackend
    from petctl.clusters.kubernetes.job_owner import Owner

_LAST_LINES = 5  # of a coordinator's log: its process may have said something behind its last status
_PHASES = {"Starting": "starting", "Running": "running", "Recovering": "recovering"}


class KubernetesJob(Inspection):
    """A job's owner and its coordinator's pods, as they were when they were read; in a list with those of its nodes."""

    over = False

    def __init__(
        self, backend: KubernetesBackend, owner: Owner, coordinators: Items, nodes: Sequence[Object] | None = None
    ) -> None:
        self._backend, self.job_id, self.owner = backend, owner.job_id, owner
        self._coordinators, self._listed = coordinators, nodes
        self._message = job_status.ended(owner.object, coordinators)
        self.over, self.asks, self.suspended = self._message is not None, bool(running(coordinators)), owner.suspended
        self.begun = job_status.was_replaced(owner.object, coordinators)

    def status(self) -> JobStatus:
        place, record = self._backend.place, self._record()
        if self._message is not None:
            status = final_status(record, self._message, self._printed(self._coordinators))
            return self._named(self.with_ends(status))
        printed = self._printed(
            running(self._coordinators)
        )  # its coordinator has said its last word, or is yet to come
        if printed:
            return self._named(not_over(printed))
        refused = (
            pod_events.trouble_of(*place, self._coordinators) if self._coordinators else self.owner.refusal(COORDINATOR)
        )
        return job_status.waiting_status(record, self.owner.object, self._coordinators, refused, self._nodes)

    def summary(self) -> JobStatus:
        """The status as far as the objects alone tell it."""
        owner, nodes = self.owner, self._nodes()
        told = job_status.told_record(self.job_id, self._backend.name, owner.object)
        record = told or self._record()
        if self._message is not None:
            status = final_status(record, self._message)
            status = with_ends(status, self.ends()) if may_have_lost(status) else status
        else:
            status = going_status(record, owner.object, self._coordinators, nodes, owner.wanted(record))
            if not owner.whole:
                sentence = f"{status.sentence}; {pod_events.NOBODY_MAKES_IT}"
                status = replace(status, sentence=sentence, cut_short=True)
        if ABOUT in annotations_of(owner.object):  # what a record would tell beside that
            status = replace(status, cwd="", code="")
        return replace(self._named(status), summary=True)

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        return self._backend.coordinators.ask(self.job_id, self._coordinators, call, patience, **params)

    def wait(self, timeout: float) -> None:
        self._backend.coordinators.wait_for_pods(self.job_id, self._coordinators.version, timeout)

    def explain(self, status: JobStatus) -> JobStatus:
        status = self._named(super().explain(status))
        cut_short = any(node.sentence == pod_events.NOBODY_MAKES_IT for node in status.nodes)
        return replace(status, cut_short=True) if cut_short else status

    def absent(self, status: JobStatus) -> dict[str, str]:
        come, troubles = {node.name for node in status.nodes}, partial(pod_events.troubles, *self._backend.place)
        refused = partial(self.owner.refusal, NODE)
        return pod_events.absent(self._nodes(), come, status.size.wanted, refused, troubles)

    def ends(self, gone: bool = False) -> list[End]:
        failed = [pod for pod in self._nodes("status.phase=Failed") if phase(pod) == "Failed"]
        ends = ends_of(failed, self.owner.object)
        if gone:
            known = {end.uid for end in ends}  # an operator remembers what is an event too
            ends += [end for end in pod_events.vanished(*self._backend.place, self.job_id) if end.uid not in known]
        return ends

    def _named(self, status: JobStatus) -> JobStatus:
        return replace(status, cluster=self._backend.name)

    def _nodes(self, *fields: str) -> Sequence[Object]:
        return self._backend.pods(selector(self.job_id, NODE), *fields) if self._listed is None else self._listed

    def _printed(self, coordinators: Iterable[Object]) -> JobStatus | None:
        """The status that a coordinator printed as it ended."""
        told = last_lines(*self._backend.place, coordinators, CONTAINER, _LAST_LINES)
        return next(filter(None, map(printed_status, told)), None)

    def _record(self) -> JobRecord:
        """The job's, or what stands for it where its submission was cut short."""
        try:
            return self._backend.record(self.job_id)
        except NotFound:
            return job_status.bare_record(self.job_id, self._backend.name, self.owner.object)


def going_status(
    record: JobRecord, owner: Object, coordinators: Sequence[Object], nodes: Sequence[Object], wanted: int
) -> JobStatus:
    """The status of a job that has not ended, as its pods show it."""
    if owner["spec"].get("suspend") or not running(coordinators):
        status = job_status.waiting_status(record, owner, coordinators, "", lambda: nodes)
    else:
        status = replace(first_status(record), **_state(owner, coordinators, nodes, wanted))
    return replace(status, nodes=_rows(nodes), size=replace(status.size, wanted=wanted))


def _state(owner: Object, coordinators: Sequence[Object], nodes: Sequence[Object], wanted: int) -> dict[str, Any]:
    """State and sentence of a job whose coordinator runs."""
    newest = _newest(nodes)
    told = owner.get("status") or {}
    if elastic_jobs.is_elastic(owner) and told.get("phase") in _PHASES:  # its operator knows
        return {"state": _PHASES[told["phase"]], "sentence": str(told.get("message") or told["phase"])}
    ready = [pod for pod in newest if is_ready(pod)]
    if ready:
        since = min(map(ready_since, ready))
        return {"state": "running", "sentence": f"{len(ready)} of {wanted} nodes are ready", "since": since}
    why = next((why for pod in newest if (why := job_status.why_not_running(pod))), "")
    sentence = f"waiting: 0 of {wanted} nodes are ready{f'; {why}' if why else ''}"
    recovers = any(map(_was_ready, nodes)) or job_status.was_replaced(owner, coordinators)
    return {"state": "recovering" if recovers else "starting", "sentence": sentence}


def _was_ready(pod: Object) -> bool:
    """Whether a node's workers have been in a round before: its pod has changed since its container began."""
    for container in containers(pod):
        begun = container.get("state", {}).get("running", {}).get("startedAt")
        if container.get("name") == CONTAINER and begun:
            return not is_ready(pod) and ready_since(pod) > seconds(begun)
    return False


def _rows(nodes: Iterable[Object]) -> list[NodeStatus]:
    """The nodes whose pods have not ended."""
    rows = []
    for pod in _newest(nodes):
        state = "running" if is_ready(pod) else "starting" if runs(pod) else "pending"
        rows.append(NodeStatus(node_of(pod), state, sentence=job_status.why_blocked(pod, "it")))
    return sorted(rows, key=lambda row: natural(row.name))


def _newest(nodes: Iterable[Object]) -> list[Object]:
    """The newest pod of each node, of those that have not ended."""
    return list({node_of(pod): pod for pod in by_age(nodes) if phase(pod) in ("Pending", "Running")}.values())
