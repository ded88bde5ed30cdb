"""What to do about one ElasticJob, from its objects alone. Pure: no clock, no server, no memory of earlier looks.

    decide(seen, now) -> Decision
        status    as it should be; written before pods are made or removed: numbers and outcomes must be on record first
        steps     what to do, in this order
        look_at   when to look again if nothing happens before

Whoever is killed in the middle is replaced by one that looks at what there is then. So every step may be repeated, and
none depends on an earlier one of the same decision having been done.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from petctl.clusters.kubernetes import looking
from petctl.clusters.kubernetes.names import COORDINATOR, INDEX, NODE, selector
from petctl.errors import InternalError, UsageError
from petctl.operator import conditions as c
from petctl.operator import pods as make
from petctl.operator.elasticjob import ElasticJob, Object
from petctl.operator.lives import ended_at, is_live, is_stuck, lived, may_retry, runs, stuck_since, terminates
from petctl.operator.moments import seconds, written
from petctl.operator.pods import number_of, role_of
from petctl.operator.record import record_of

GIVE_UP = 10.0
"""Seconds after which a pod that no machine takes is given up, where the size follows the room there is."""
TRY_AGAIN = 60.0
"""... and seconds until it is tried again, if nothing says sooner that there is room."""
LONG_LIFE = 60.0
"""Seconds: a pod that ended before was no success, and its successor waits."""
FIRST_PAUSE, LONGEST_PAUSE = 2.0, 300.0
LINGER = 10.0
"""Seconds in which nodes that were told of the job's end go by themselves: what a deleted pod printed is gone."""


class Told(NamedTuple):
    """What a coordinator answered: which nodes it can spare."""

    wanted: int
    nodes: tuple[str, ...]
    release: tuple[str, ...]


class Seen(NamedTuple):
    """All that is known of one job."""

    job: ElasticJob
    pods: Sequence[Object] = ()  # those that it owns
    service: bool = False  # is there one?
    taken: frozenset[int] = frozenset()  # indices of which an earlier job of that name still has a pod
    room_at: float = 0.0  # when a machine may have got room last
    told: Told | None = None  # just now


class Prepare(NamedTuple):
    """Secret, ConfigMaps and Service, as far as they are missing: nothing is counted before they are there."""

    wanted: int


class CreateCoordinator(NamedTuple):
    """A pod."""

    number: int
    alone: bool  # no node runs


class CreateService(NamedTuple):
    """The one address of the coordinator."""


class CreateNode(NamedTuple):
    """A pod."""

    node: int
    number: int


class Delete(NamedTuple):
    """One pod, with its grace."""

    pod: Object


class DeleteService(NamedTuple):
    """The job is over, and nobody asks its coordinator any more."""


class DeleteJob(NamedTuple):
    """The ElasticJob, and all that it owns."""


class Tell(NamedTuple):
    """The coordinator, how many nodes are wanted, and which there are; then decide again with its answer."""

    wanted: int
    nodes: tuple[str, ...]


class Announce(NamedTuple):
    """An event for people. It may be lost."""

    reason: str
    message: str
    warning: bool = False


Step = Prepare | CreateCoordinator | CreateService | CreateNode | Delete | DeleteService | DeleteJob | Tell | Announce


class Decision(NamedTuple):
    """What a look led to."""

    status: Mapping[str, Any]
    steps: tuple[Step, ...] = ()
    look_at: float | None = None


def decide(seen: Seen, now: float) -> Decision:
    """What to do about a job that looks like this."""
    job = seen.job
    if job.going:
        return Decision(job.status)
    if c.has_ended(job.status):
        return _cleaned(seen, now)
    message = _ended(seen, now)
    if message is not None:
        return _closed(seen, message, now)
    return _Look(seen, now).asleep() if job.suspended else _Look(seen, now).at_work()


# -- the end -----------------------------------------------------------------------------------------------------------


def _ended(seen: Seen, now: float) -> Mapping[str, Any] | None:
    """How the job ended, in the form of a coordinator's last words; None while it goes on."""
    job, coordinators = seen.job, _of(seen, COORDINATOR)
    message = looking.ended(job.object, coordinators)
    if message is not None:
        return message
    if any(pod.get("status", {}).get("phase") == "Succeeded" for pod in coordinators):
        sentence = "its coordinator ended without saying how the job ended"
        return _message("lost", InternalError.code, sentence, now)
    deadline = job.spec.get("activeDeadlineSeconds")
    started = seconds(job.status.get("startTime"))
    if deadline and started and not job.suspended and now >= started + deadline:
        return _message("failed", 124, f"over its activeDeadlineSeconds ({deadline})", now)
    if not job.status.get("coordinators"):
        try:
            make.coordinator_pod(job, record_of(job, job.most), 0, alone=True)
            make.node_pod(job, 0, 0)
        except UsageError as error:
            return _message("failed", UsageError.code, str(error), now)
    return None


def _message(state: str, code: int, sentence: str, now: float) -> dict[str, Any]:
    return {"outcome": {"state": state, "code": code, "sentence": sentence}, "finished": now}


def _closed(seen: Seen, message: Mapping[str, Any], now: float) -> Decision:
    """Puts the outcome on record; what is left is cleaned at the next look."""
    job, outcome = seen.job, message["outcome"]
    well, sentence = outcome["state"] == "succeeded", str(outcome["sentence"])
    conditions = c.Conditions(job.status, now, _generation(job))
    reason = "ElasticJobSucceeded" if well else _why(outcome)
    conditions.set(c.RUNNING, False, reason, sentence)
    conditions.set(c.RESTARTING, False, reason, sentence)
    conditions.set(c.SUSPENDED, False, reason, sentence)
    conditions.set(c.SUCCEEDED if well else c.FAILED, True, reason, sentence)
    status = {
        **job.status,
        **_counts(seen),
        "phase": c.SUCCEEDED if well else c.FAILED,
        "message": f"{outcome['state']}: {sentence}",
        "conditions": conditions.all(),
        "exitCode": int(outcome["code"]),
        "outcome": json.dumps(message),
        "completionTime": written(float(message.get("finished") or now)),
        "observedGeneration": _generation(job),
    }
    return Decision(status, (Announce(reason, sentence, not well),), now)


def _why(outcome: Mapping[str, Any]) -> str:
    if outcome["state"] == "cancelled":
        return "Cancelled"
    return {124: "DeadlineExceeded", UsageError.code: "Invalid"}.get(int(outcome["code"]), "ElasticJobFailed")


def _cleaned(seen: Seen, now: float) -> Decision:
    """Removes what its policy says, and in the end the job itself."""
    job, policy = seen.job, seen.job.spec.get("cleanPodPolicy") or "Running"
    ttl = job.spec.get("ttlSecondsAfterFinished")
    due = None if ttl is None else seconds(job.status.get("completionTime")) + ttl
    if due is not None and now >= due:
        return Decision(job.status, (DeleteJob(),))
    doomed: list[Object] = []
    live, coordinators = [pod for pod in seen.pods if is_live(pod)], _of(seen, COORDINATOR)
    told = looking.last_words(coordinators) is not None  # and so were the nodes
    by_then = max(ended_at(pod) for pod in coordinators) + LINGER if told else now
    if policy == "All":
        doomed = [pod for pod in seen.pods if not terminates(pod)]
    elif policy == "Running" or not told:
        if now >= by_then:
            doomed = live
        elif live:
            due = min(by_then, due or by_then)
    steps: list[Step] = [Delete(pod) for pod in doomed]
    if policy == "All" and seen.service:
        steps.append(DeleteService())
    return Decision({**job.status, **_counts(seen)}, tuple(steps), due)


# -- a job that goes on ------------------------------------------------------------------------------------------------


class _Look:
    """One look at a job that has not ended: collects what to do and what to say."""

    def __init__(self, seen: Seen, now: float) -> None:
        self.seen, self.job, self.now = seen, seen.job, now
        self.status: dict[str, Any] = {**seen.job.status, **_counts(seen), "observedGeneration": _generation(self.job)}
        self.conditions = c.Conditions(seen.job.status, now, _generation(self.job))
        self.steps: list[Step] = []
        self.later: list[float] = []
        self.coordinators = sorted(_of(seen, COORDINATOR), key=number_of)
        self.nodes = sorted(_of(seen, NODE), key=_index)
        self.live = [pod for pod in self.nodes if is_live(pod)]
        standing = [pod for pod in self.coordinators if is_live(pod)]
        self.coordinator = standing[-1] if standing else None

    def asleep(self) -> Decision:
        """No pods: nodes leave first, while there is somebody to leave."""
        left = [pod for pod in self.nodes if not terminates(pod)]
        if not self.nodes:
            left = [pod for pod in self.coordinators if not terminates(pod)]
        self.steps += [Delete(pod) for pod in left]
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
        self.conditions.set(c.CREATED, True, "ElasticJobCreated", "seen by the operator")
        self.conditions.set(c.SUSPENDED, False, "ElasticJobResumed", "spec.suspend is false")
        deadline = self.job.spec.get("activeDeadlineSeconds")
        if deadline:
            self.later.append(seconds(self.status["startTime"]) + deadline)
        if not self.status.get("coordinators"):
            self.status["wanted"] = self._wanted  # its record says so
        self._coordinate()
        self._follow_room()
        self._fill()
        self._agree()
        return self._decision(*self._phase())

    def _decision(self, phase: str, message: str) -> Decision:
        before = self.job.status.get("phase")
        if phase != before:
            self.steps.append(Announce(f"ElasticJob{phase}", message))
        self.status |= {"phase": phase, "message": message, "conditions": self.conditions.all()}
        return Decision(self.status, tuple(self.steps), min(self.later, default=None))

    # coordinator

    def _coordinate(self) -> None:
        """One that runs or will; those that ended are removed when it is there."""
        ended = [pod for pod in self.coordinators if not is_live(pod) and not terminates(pod)]
        if self.coordinator is not None:
            if not self.seen.service:
                self.steps.append(CreateService())
            self.steps += [Delete(pod) for pod in ended]
            return
        number = int(self.status.get("coordinators") or 0)
        due = max((ended_at(pod) + self._pause(pod, number) for pod in ended), default=0.0)
        if self.now < due:
            self.later.append(due)
            return
        self.status["coordinators"] = number + 1
        self.steps.append(Prepare(int(self.status.get("wanted") or self.job.most)))
        self.steps.append(CreateCoordinator(number, alone=not self.nodes))

    def _pause(self, pod: Object, generation: int) -> float:
        """How long the successor of an ended pod waits: not at all after a long life or an end that others made."""
        if may_retry(pod) or lived(pod) >= LONG_LIFE:
            return 0.0
        return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(generation, 16)))

    # size

    @property
    def _wanted(self) -> int:
        """What the coordinator should know: without `replicas` it takes whoever comes."""
        return self.job.replicas if self.job.replicas is not None else self.job.most

    @property
    def _target(self) -> int:
        """How many pods there should be."""
        room = self.status.get("room")
        return int(room["size"]) if self.job.replicas is None and room else self._wanted

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
                self.steps.append(Tell(self._wanted, _names(self.live)))

    # nodes

    def _fill(self) -> None:
        """As many pods as there should be; one whose index is still taken by an earlier pod gets another."""
        held = 0
        for pod in self.nodes:
            if is_live(pod) or terminates(pod):
                continue
            due = self._due(pod)
            if self.now >= due:
                self.steps.append(Delete(pod))
            else:
                held += 1
                if due != float("inf"):
                    self.later.append(due)
        missing = self._target - len(self.live) - held
        taken = self.seen.taken | {_index(pod) for pod in self.nodes}
        free = (index for index in range(len(taken) + max(missing, 0)) if index not in taken)
        number = int(self.status.get("nodes") or 0)
        for index, _ in zip(free, range(missing)):
            self.steps.append(CreateNode(index, number))
            number += 1
        self.status["nodes"] = number

    def _due(self, pod: Object) -> float:
        """When an ended node's successor may come."""
        if pod.get("status", {}).get("phase") == "Succeeded":  # it was told that the job is over, which will show
            newer = self.coordinator is not None and number_of(self.coordinator) > 0
            return ended_at(pod) + LONG_LIFE if newer else float("inf")
        return ended_at(pod) + self._pause(pod, int(self.status.get("nodes") or 0) // max(self._target, 1))

    def _agree(self) -> None:
        """Has the coordinator know the size; whom it can spare best, go."""
        surplus = len(self.live) - self._target
        if surplus <= 0 and self._wanted == self.status.get("wanted"):
            return
        if self.coordinator is None or not runs(self.coordinator):
            if surplus > 0:  # nobody trains now: those that run nowhere first, then the last
                self._let_go(sorted(self.live, key=lambda pod: (not is_stuck(pod), -_index(pod)))[:surplus])
            return
        coming = [str(step.node) for step in self.steps if isinstance(step, CreateNode)]
        nodes, told = (*_names(self.live), *coming), self.seen.told
        if told is None or (told.wanted, told.nodes) != (self._wanted, nodes):
            self.steps.append(Tell(self._wanted, nodes))
            return
        self.status["wanted"] = self._wanted
        if surplus > 0:
            self._let_go([pod for pod in self.live if str(_index(pod)) in told.release][:surplus])

    def _let_go(self, pods: Sequence[Object]) -> None:
        self.steps += [Delete(pod) for pod in pods]
        self.live = [pod for pod in self.live if pod not in pods]

    # words

    def _phase(self) -> tuple[str, str]:
        running = [pod for pod in self.live if runs(pod)]
        why = [reason for pod in (self.coordinator, *self.live) if pod and (reason := looking.why_not_running(pod))]
        sentence = "; ".join([f"{len(running)} of {self._target} nodes run", *why[:1]])
        if self.coordinator is not None and runs(self.coordinator) and len(running) >= self.job.least:
            self.conditions.set(c.RUNNING, True, "ElasticJobRunning", "enough nodes run")
            self.conditions.set(c.RESTARTING, False, "ElasticJobRunning", "enough nodes run")
            return c.RUNNING, sentence
        began = c.holds(self.job.status, c.RUNNING) or c.holds(self.job.status, c.RESTARTING)
        if began:
            lacks = "its coordinator is being replaced" if self.coordinator is None else "fewer nodes run than it needs"
            self.conditions.set(c.RUNNING, False, "ElasticJobRestarting", lacks)
            self.conditions.set(c.RESTARTING, True, "ElasticJobRestarting", lacks)
            return "Recovering", f"{lacks}; {sentence}"
        return "Starting", f"waiting: {sentence}"


# -- small questions ---------------------------------------------------------------------------------------------------


def _of(seen: Seen, role: str) -> list[Object]:
    """The job's pods of that role that the operator made."""
    return [pod for pod in seen.pods if role_of(pod) == role and number_of(pod) >= 0]


def _index(pod: Object) -> int:
    return number_of(pod, INDEX)


def _names(pods: Sequence[Object]) -> tuple[str, ...]:
    return tuple(str(_index(pod)) for pod in pods)


def _generation(job: ElasticJob) -> int:
    return int(job.object["metadata"].get("generation") or 0)


def _counts(seen: Seen) -> dict[str, Any]:
    """How many pods of nodes are in which state."""
    nodes = _of(seen, NODE)
    live = [pod for pod in nodes if is_live(pod)]
    phases = [pod.get("status", {}).get("phase") for pod in nodes]
    ready = sum(runs(pod) for pod in live)
    return {
        "replicas": len(live),
        "readyReplicas": ready,
        "replicaStatuses": {
            "active": ready,
            "pending": len(live) - ready,
            "succeeded": phases.count("Succeeded"),
            "failed": phases.count("Failed"),
        },
    }
