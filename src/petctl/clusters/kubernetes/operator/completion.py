"""How a job ends, what is put on record about it, and what is removed then. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from petctl import causes
from petctl.clusters.kubernetes import job_status
from petctl.clusters.kubernetes.names import COORDINATOR, NODE
from petctl.clusters.kubernetes.operator import conditions as c
from petctl.clusters.kubernetes.operator import pods as make
from petctl.clusters.kubernetes.operator.actions import (
    Announce,
    Decision,
    Delete,
    DeleteBudget,
    DeleteJob,
    DeleteService,
    Step,
)
from petctl.clusters.kubernetes.operator.elasticjob import Object
from petctl.clusters.kubernetes.operator.failure_history import Noted, last_cause, noted
from petctl.clusters.kubernetes.operator.observation import Seen, counts_of, generation_of, of_role
from petctl.clusters.kubernetes.operator.record import record_of
from petctl.errors import InternalError, UsageError
from petctl.kube.objects import KILLED, ended_at, is_live, seconds, terminates, written

LINGER = 10.0
"""Seconds in which nodes that were told of the job's end go by themselves: what a deleted pod printed is gone."""


def ended(seen: Seen, now: float) -> Mapping[str, Any] | None:
    """How the job ended, in the form of a coordinator's last words; None while it goes on."""
    job, coordinators = seen.job, of_role(seen, COORDINATOR)
    message = job_status.ended(job.object, coordinators)
    if message is not None:
        return message
    if any(pod.get("status", {}).get("phase") == "Succeeded" for pod in coordinators):
        sentence = "its coordinator ended without reporting the job's outcome"
        return _message("lost", InternalError.code, sentence, now)
    if seen.malformed:
        return _message("failed", UsageError.code, seen.malformed, now)
    deadline = job.spec.get("activeDeadlineSeconds")
    started = seconds(job.status.get("startTime"))
    if deadline and started and not job.suspended and now >= started + deadline:
        return _message("failed", 124, f"over the time limit of {deadline} s (activeDeadlineSeconds)", now)
    found = _noted(seen)
    if found.kill is not None and found.status["kills"] > job.restarts and not job.suspended:
        return _message("failed", KILLED, f"{found.kill.sentence}, after {job.restarts} restarts", now)
    if not job.status.get("coordinators"):
        try:
            job.check_size()
            make.coordinator_pod(job, record_of(job, job.most), 0, alone=True)
            make.node_pod(job, 0, 0)
        except UsageError as error:
            return _message("failed", UsageError.code, str(error), now)
    return None


def _message(state: str, code: int, sentence: str, now: float) -> dict[str, Any]:
    return {"outcome": {"state": state, "code": code, "sentence": sentence}, "finished": now}


def closed(seen: Seen, message: Mapping[str, Any], now: float) -> Decision:
    """Puts the outcome on record; what is left is cleaned at the next look."""
    job, outcome, found = seen.job, message["outcome"], _noted(seen)
    well, sentence = outcome["state"] == "succeeded", str(outcome["sentence"])
    conditions = c.Conditions(job.status, now, generation_of(job))
    reason = "ElasticJobSucceeded" if well else _why(outcome)
    conditions.set(c.RUNNING, False, reason, sentence)
    conditions.set(c.RESTARTING, False, reason, sentence)
    conditions.set(c.SUSPENDED, False, reason, sentence)
    conditions.set(c.SUCCEEDED if well else c.FAILED, True, reason, sentence)
    status = {
        **job.status,
        **counts_of(seen, failed=not well),
        **found.status,
        "phase": c.SUCCEEDED if well else c.FAILED,
        "message": f"{outcome['state']}: {sentence}",
        "conditions": conditions.all(),
        "exitCode": int(outcome["code"]),
        "outcome": json.dumps(message),
        "completionTime": written(float(message.get("finished") or now)),
        "observedGeneration": generation_of(job),
    }
    status.pop("cause", None)
    before = last_cause(found.status) if found.new else str(job.status.get("cause") or "")
    if cause := _cause(outcome, before):
        status["cause"] = cause
    return Decision(status, (*found.told(), Announce(reason, sentence, not well)), now)


def _noted(seen: Seen) -> Noted:
    return noted(seen.job.status, (*of_role(seen, COORDINATOR), *of_role(seen, NODE)))


def _cause(outcome: Mapping[str, Any], before: str) -> str:
    """That of the failed worker; where none failed what the sentence shows, or else what became of pods before."""
    if outcome["state"] in ("succeeded", "cancelled"):
        return ""
    found, failure = causes.find(str(outcome["sentence"])), outcome.get("failure")
    if failure:
        return str(failure.get("cause") or found)
    return before or found if found in ("", "nodes-missing") else found


def _why(outcome: Mapping[str, Any]) -> str:
    if outcome["state"] == "cancelled":
        return "Cancelled"
    return {124: "DeadlineExceeded", UsageError.code: "Invalid"}.get(int(outcome["code"]), "ElasticJobFailed")


def cleaned(seen: Seen, now: float) -> Decision:
    """Removes what its policy says, and in the end the job itself."""
    job, policy = seen.job, seen.job.spec.get("cleanPodPolicy") or "Running"
    ttl = job.spec.get("ttlSecondsAfterFinished")
    due = None if ttl is None else seconds(job.status.get("completionTime")) + ttl
    if due is not None and now >= due:
        return Decision(job.status, (DeleteJob(),))
    doomed: list[Object] = []
    live, coordinators = [pod for pod in seen.pods if is_live(pod)], of_role(seen, COORDINATOR)
    told = job_status.last_words(coordinators) is not None  # and so were the nodes
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
    if seen.kept:
        steps.append(DeleteBudget())
    counts = counts_of(seen, failed=c.holds(job.status, c.FAILED))
    return Decision({**job.status, **counts}, tuple(steps), due)
