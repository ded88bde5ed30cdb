"""What to do about one ElasticJob, from its objects alone. Pure: no clock, no server, no memory of earlier looks.

    decide(seen, now) -> Decision
        status    as it should be; written before pods are made or removed: numbers and outcomes must be on record first
        steps     what to do, in this order
        look_at   when to look again if nothing happens before

Whoever is killed in the middle is replaced by one that looks at what there is then. So every step may be repeated, and
none depends on an earlier one of the same decision having been done.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, islice
from typing import Any

from petctl import causes
from petctl.clusters.kubernetes import job_status
from petctl.clusters.kubernetes.elastic_jobs import MOST_NODES
from petctl.clusters.kubernetes.names import COORDINATOR, NODE, selector
from petctl.clusters.kubernetes.operator import conditions as c
from petctl.clusters.kubernetes.operator.actions import (
    Announce,
    CreateCoordinator,
    CreateNode,
    CreateService,
    Decision,
    Delete,
    DeleteBudget,
    KeepNodes,
    Prepare,
    Step,
    Tell,
)
from petctl.clusters.kubernetes.operator.completion import cleaned, closed, ended
from petctl.clusters.kubernetes.operator.elasticjob import Object
from petctl.clusters.kubernetes.operator.failure_history import closed as closed_ends
from petctl.clusters.kubernetes.operator.failure_history import last_cause, noted
from petctl.clusters.kubernetes.operator.observation import Seen, counts_of, generation_of, index_of, names_of, of_role
from petctl.clusters.kubernetes.operator.pod_state import began_at, is_stuck, lived, may_retry, stuck_since
from petctl.clusters.kubernetes.operator.pods import number_of
from petctl.kube.objects import ended_at, is_live, runs, seconds, terminates, written

AT_ONCE = 100
"""Nodes that are made in one look; the next look follows when other jobs have had their turn."""
GIVE_UP = 10.0
"""Seconds after which a pod that no machine takes is given up, where the size follows the room there is."""
TRY_AGAIN = 60.0
"""... and seconds until it is tried again, if nothing says sooner that there is room."""
LONG_LIFE = 60.0
"""Seconds: a pod that ended before was no success, and its successor waits."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
BUDGET = "petctl.dev/disruption-budget"
"""Annotation of an ElasticJob; "none": it gets no PodDisruptionBudget."""


def decide(seen: Seen, now: float) -> Decision:
    """What to do about a job that looks like this."""
    job = seen.job
    if job.going:
        return Decision(job.status)
    if c.has_ended(job.status):
        return cleaned(seen, now)
    message = ended(seen, now)
    if message is not None:
        return closed(seen, message, now)
    return _Look(seen, now).asleep() if job.suspended else _Look(seen, now).at_work()


# -- a job that goes on ------------------------------------------------------------------------------------------------


class _Look:
    """One look at a job that has not ended: collects what to do and what to say."""

    def __init__(self, seen: Seen, now: float) -> None:
        self.seen, self.job, self.now = seen, seen.job, now
        generation = generation_of(seen.job)
        self.status: dict[str, Any] = {**seen.job.status, **counts_of(seen), "observedGeneration": generation}
        self.conditions = c.Conditions(seen.job.status, now, generation)
        self.steps: list[Step] = []
        self.later: list[float] = []
        self.coming: list[int] = []  # indices of nodes that are missing
        self.broken = False  # did a pod break at its start that is replaced now?
        self.coordinators = sorted(of_role(seen, COORDINATOR), key=number_of)
        self.nodes = sorted(of_role(seen, NODE), key=index_of)
        self.live = [pod for pod in self.nodes if is_live(pod)]
        standing = [pod for pod in self.coordinators if is_live(pod)]
        self.coordinator = standing[-1] if standing else None
        self.older = standing[:-1]  # made by a request that was late: its operator leads no longer

    def asleep(self) -> Decision:
        """No pods: nodes leave first, while there is somebody to leave."""
        left = [pod for pod in self.nodes if not terminates(pod)]
        if not self.nodes:
            left = [pod for pod in self.coordinators if not terminates(pod)]
        self.steps += [Delete(pod) for pod in left]
        self._keep(0)
        for forgotten in ("startTime", "wanted", "room"):
            self.status.pop(forgotten, None)
        sentence = "suspended: spec.suspend is true"
        for kind in (c.RUNNING, c.RESTARTING):
            self.conditions.set(kind, False, "ElasticJobSuspended", sentence)
        self.conditions.set(c.SUSPENDED, True, "ElasticJobSuspended", sentence)
        return self._decision(c.SUSPENDED, sentence)

    def at_work(self) -> Decision:
        """A coordinator, and as many nodes as are wanted."""
        self.status.setdefault("startTime", written(self.now))
        self.status.setdefault("selector", selector(self.job.id, NODE))
        self.conditions.set(c.CREATED, True, "ElasticJobCreated", "accepted by the operator")
        self.conditions.set(c.SUSPENDED, False, "ElasticJobResumed", "spec.suspend is false")
        deadline = self.job.spec.get("activeDeadlineSeconds")
        if deadline:
            self.later.append(seconds(self.status["startTime"]) + deadline)
        if not self.status.get("coordinators"):
            self.status |= {"wanted": self._wanted, "told": 0}  # the first coordinator's record says so
        self._remember()
        self._coordinate()
        self._follow_room()
        self._fill()
        self._count_broken()
        self._agree()
        self._keep(self._target - 1)
        return self._decision(*self._phase())

    def _decision(self, phase: str, message: str) -> Decision:
        before = self.job.status.get("phase")
        if phase != before:
            self.steps.append(Announce(f"ElasticJob{phase}", message))
        self.status |= {"phase": phase, "message": message, "conditions": self.conditions.all()}
        self.status.pop("cause", None)
        if cause := causes.find(message) or last_cause(self.status):
            self.status["cause"] = cause
        return Decision(self.status, tuple(self.steps), min(self.later, default=None))

    # pods that ended

    def _remember(self) -> None:
        """How they did, before they are removed."""
        found = noted(self.status, (*self.coordinators, *self.nodes))
        self.status |= found.status
        self.steps += found.told()

    # coordinator

    def _coordinate(self) -> None:
        """One that runs or will; those that ended are removed when it is there, older ones when it runs."""
        ended = [pod for pod in self.coordinators if not is_live(pod) and not terminates(pod)]
        if self.coordinator is not None:
            if not self.seen.service:
                self.steps.append(CreateService())
            self.steps += [Delete(pod) for pod in (*ended, *(self.older if runs(self.coordinator) else ()))]
            return
        number = int(self.status.get("coordinators") or 0)
        due = max((ended_at(pod) + self._pause(pod) for pod in ended), default=0.0)
        if self.now < due:
            self.later.append(due)
            return
        self.broken = any(self._pause(pod) for pod in ended)
        self.status["coordinators"] = number + 1
        self.steps.append(Prepare(int(self.status.get("wanted") or self.job.most)))
        self.steps.append(CreateCoordinator(number, alone=not self.nodes))

    def _pause(self, pod: Object) -> float:
        """How long the successor of an ended pod waits: not at all after a long life or an end that others made."""
        if may_retry(pod) or lived(pod) >= LONG_LIFE:
            return 0.0
        before = int(self.job.status.get("broken") or 0)
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(before, 16)))

    def _count_broken(self) -> None:
        """The next that breaks at its start waits longer, until all pods have lived long."""
        if self.broken:
            self.status["broken"] = int(self.job.status.get("broken") or 0) + 1
        elif self.coordinator is not None and len(self.live) >= self._target and self.now >= self._safe_at():
            self.status.pop("broken", None)

    def _safe_at(self) -> float:
        """When all pods will have lived long."""
        there = [pod for pod in (self.coordinator, *self.live) if pod is not None]
        return max(began_at(pod) + LONG_LIFE if runs(pod) else float("inf") for pod in there)

    def _close_ends(self) -> None:
        """All pods run: what ended earlier ones is no cause any more; what they did themselves, once all lived long."""
        ends, safe_at = self.status.get("ends") or (), self._safe_at()
        closed = closed_ends(ends, self.now >= safe_at)
        if ends:
            self.status["ends"] = closed
        if not all(entry.get("over") for entry in closed):
            self.later.append(safe_at)

    # size

    @property
    def _wanted(self) -> int:
        """What the coordinator should know: without `replicas` it takes whoever comes."""
        return self.job.replicas if self.job.replicas is not None else self.job.most

    @property
    def _target(self) -> int:
        """How many pods there should be."""
        room = self.status.get("room")
        return min(int(room["size"]) if self.job.replicas is None and room else self._wanted, MOST_NODES)

    def _follow_room(self) -> None:
        """Without `replicas`: gives pods up that no machine takes, and tries again later."""
        room = self.status.get("room")
        if self.job.replicas is not None:
            self.status.pop("room", None)
            return
        if room:
            again = seconds(room["since"]) + TRY_AGAIN
            if self.now >= again or self.seen.room_at > seconds(room["since"]):
                del self.status["room"]
            else:
                self.later.append(again)
            return
        stuck = [pod for pod in self.live if is_stuck(pod)]
        hopeless = [pod for pod in stuck if self.now >= stuck_since(pod) + GIVE_UP]
        size = max(self.job.least, len(self.live) - len(hopeless))
        given_up = hopeless[len(hopeless) - (len(self.live) - size) :] if size < len(self.live) else []
        self.later += [stuck_since(pod) + GIVE_UP for pod in stuck if pod not in hopeless]
        if given_up:
            self.status["room"] = {"size": size, "since": written(self.now)}
            self.later.append(self.now + TRY_AGAIN)
            self._let_go(given_up)
            if self.coordinator is not None and runs(self.coordinator):  # it need not wait for them
                self.steps.append(Tell(self._wanted, names_of(self.live)))

    # nodes

    def _fill(self) -> None:
        """As many pods as there should be; one whose index is still taken by an earlier pod gets another."""
        ended = [(pod, self._due(pod)) for pod in self.nodes if not is_live(pod) and not terminates(pod)]
        replaced = [pod for pod, due in ended if due <= self.now]
        self.steps += [Delete(pod) for pod in replaced]
        self.broken = self.broken or any(self._pause(pod) for pod in replaced)
        self.later += [due for _, due in ended if self.now < due < float("inf")]
        missing = self._target - len(self.live) - (len(ended) - len(replaced))
        own = {index_of(pod) for pod in self.nodes}
        free = (index for index in count() if index not in own and index not in self.seen.taken)
        self.coming = list(islice(free, max(missing, 0)))
        batch = self.coming[:AT_ONCE]
        if len(batch) < len(self.coming):
            if self.job.replicas is None and any(is_stuck(pod) for pod in self.live):
                return  # more would find no room either
            self.later.append(self.now)
        number = int(self.status.get("nodes") or 0)
        self.steps += [CreateNode(index, number + place) for place, index in enumerate(batch)]
        self.status["nodes"] = number + len(batch)

    def _due(self, pod: Object) -> float:
        """When an ended node's successor may come."""
        if pod.get("status", {}).get("phase") == "Succeeded":  # it was told that the job is over, which will show
            newer = self.coordinator is not None and number_of(self.coordinator) > 0
            return ended_at(pod) + LONG_LIFE if newer else float("inf")
        return ended_at(pod) + self._pause(pod)

    def _agree(self) -> None:
        """Has the coordinator know the size; whom it can spare best, go."""
        surplus, number = len(self.live) - self._target, number_of(self.coordinator) if self.coordinator else -1
        without = [int(name) for name in names_of([pod for pod in self.live if is_stuck(pod)])]
        heard = self.status.get("wanted"), self.status.get("told"), self.status.get("absent") or []
        if surplus <= 0 and (self._wanted, number, without) == heard:
            return
        if self.coordinator is None or not runs(self.coordinator):
            if surplus > 0:  # nobody trains now: those that run nowhere first, then the last
                self._let_go(sorted(self.live, key=lambda pod: (not is_stuck(pod), -index_of(pod)))[:surplus])
            return
        # Those that no machine takes are not waited for: they may take part whenever they come.
        coming = (
            name for name in (*names_of(self.live), *map(str, self.coming)) if surplus > 0 or int(name) not in without
        )
        nodes, told = tuple(sorted(coming, key=int)), self.seen.told
        if told is None or (told.wanted, told.nodes) != (self._wanted, nodes):
            self.steps.append(Tell(self._wanted, nodes))
            return
        self.status |= {
            "wanted": self._wanted,
            "told": number,
            "absent": without,
        }  # a later one may not have heard of it from any node
        if surplus > 0:
            self._let_go([pod for pod in self.live if str(index_of(pod)) in told.release][:surplus])

    def _keep(self, least: int) -> None:
        """Has whoever drains machines take one node at a time: the next when the replacement of the last takes part."""
        if (self.job.object["metadata"].get("annotations") or {}).get(BUDGET) == "none":
            least = 0  # where the cluster has budgets of its own: a pod of two cannot be evicted at all
        if self.seen.kept not in (None, least):
            self.steps.append(KeepNodes(least) if least else DeleteBudget())

    def _let_go(self, pods: Sequence[Object]) -> None:
        self.steps += [Delete(pod) for pod in pods]
        self.live = [pod for pod in self.live if pod not in pods]

    # words

    def _phase(self) -> tuple[str, str]:
        running = [pod for pod in self.live if runs(pod)]
        why = [reason for pod in (self.coordinator, *self.live) if pod and (reason := job_status.why_not_running(pod))]
        if not why and len(running) < self._target:
            there = {pod["metadata"]["uid"] for pod in (*self.coordinators, *self.nodes)}
            ends = [end for end in self.status.get("ends") or () if end["uid"] in there]
            why = [f"pod {end['pod']} {end['message']}" for end in ends[-1:]]
        sentence = "; ".join([f"{len(running)} of {self._target} nodes run", *why[:1]])
        if self.coordinator is not None and runs(self.coordinator) and len(running) >= self.job.least:
            self.conditions.set(c.RUNNING, True, "ElasticJobRunning", "enough nodes are running")
            self.conditions.set(c.RESTARTING, False, "ElasticJobRunning", "enough nodes are running")
            if len(running) >= self._target:
                self._close_ends()
            return c.RUNNING, sentence
        began = c.holds(self.job.status, c.RUNNING) or c.holds(self.job.status, c.RESTARTING)
        if began:
            lacks = "its coordinator is being replaced" if self.coordinator is None else "fewer nodes run than it needs"
            self.conditions.set(c.RUNNING, False, "ElasticJobRestarting", lacks)
            self.conditions.set(c.RESTARTING, True, "ElasticJobRestarting", lacks)
            return "Recovering", f"{lacks}; {sentence}"
        return "Starting", f"waiting: {sentence}"
