"""What becomes of a job, as its objects tell it: how it ended, and why it does not run yet. Objects in, words out.

What happens inside a running job is the coordinator's to tell; here is what Kubernetes knows when nobody answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from petctl.errors import InternalError, ProtocolError
from petctl.rendezvous.messages import decode_outcome
from petctl.supervision.records import close_status, first_status

OUTCOME = "petctl.dev/outcome"
"""Annotation of a job that was ended from outside, because its coordinator could not be asked."""
FAILED, IGNORED = (f"batch.kubernetes.io/job-index-{kind}failure-count" for kind in ("", "ignored-"))
"""Annotations of a pod: how many there were before it."""

Object = Mapping[str, Any]


def ended(coordinator: Object, pods: Iterable[Object]) -> dict[str, Any] | None:
    """The last words of the coordinator, or whatever stands for them; None while the job goes on."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        for container in pod.get("status", {}).get("containerStatuses", ()):
            message = _parsed(container.get("state", {}).get("terminated", {}).get("message", ""))
            if message is not None:
                return message
    message = _parsed(coordinator["metadata"].get("annotations", {}).get(OUTCOME, ""))
    if message is not None:
        return message
    for condition in coordinator.get("status", {}).get("conditions", ()):
        if condition["status"] == "True" and condition["type"] in ("Complete", "Failed"):
            sentence = "its coordinator's pod is gone, and with it how the job ended"
            if condition["type"] == "Failed":
                sentence = f"Kubernetes gave its coordinator up: {condition.get('message') or condition.get('reason')}"
            outcome = {"state": "lost", "code": InternalError.code, "sentence": sentence}
            return {"outcome": outcome, "finished": _seconds(condition.get("lastTransitionTime"))}
    return None


def was_replaced(coordinator: Object, pods: Iterable[Object]) -> bool:
    """Whether the job's coordinator is not its first one, so that workers may be at work without it."""
    if coordinator.get("status", {}).get("failed"):
        return True
    return any(
        pod["metadata"].get("deletionTimestamp") or _number(pod, FAILED) or _number(pod, IGNORED) for pod in pods
    )


def final_status(
    record: Mapping[str, Any], message: Mapping[str, Any], printed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The status of a job that has ended: the message tells how, what its coordinator `printed` the rest."""
    status = first_status(dict(record))
    if printed and printed.get("state") == message["outcome"]["state"]:
        status |= {key: printed[key] for key in status.keys() & printed.keys()}
        return close_status(status, {**message["outcome"], "failure": printed.get("error")}, _finished(message))
    known = {key: message[key] for key in ("size", "spent", "round", "started") if message.get(key) is not None}
    return close_status({**status, **known}, dict(message["outcome"]), _finished(message))


def waiting_status(record: Mapping[str, Any], coordinator: Object, pods: Sequence[Object]) -> dict[str, Any]:
    """The status of a job whose coordinator cannot be asked just now."""
    status = first_status(dict(record))
    if coordinator["spec"].get("suspend"):
        sentence = "queued: its Job is suspended"
        if not record["command"]:
            sentence = "its submission was cut short; remove what is left with petctl rm --force"
        return {**status, "state": "queued", "sentence": sentence}
    reasons = [reason for pod in pods if (reason := why_not_running(pod))]
    if was_replaced(coordinator, pods):
        sentence = "its coordinator is being replaced, and its workers go on meanwhile"
        return {**status, "state": "recovering", "sentence": "; ".join([sentence, *reasons[:1]])}
    sentence = reasons[0] if reasons else "its coordinator is starting"
    return {**status, "state": "starting", "sentence": f"waiting: {sentence}"}


def bare_record(job_id: str, cluster: str, coordinator: Object) -> dict[str, Any]:
    """What stands for the record of a job whose submission was cut short before there was one."""
    size = {"min_nodes": 0, "wanted": 0, "max_nodes": 0, "restarts": 0}
    return {
        "id": job_id,
        "name": job_id.rpartition("-")[0],
        "cluster": cluster,
        "submitted": _seconds(coordinator["metadata"].get("creationTimestamp")),
        "command": "",
        "cwd": "",
        "directory": "",
        "plan": {"config": size},
    }


def why_not_running(pod: Object) -> str:
    """Why a pod does not run, in plain words; empty when it does."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if status.get("phase") not in (None, "Pending"):
        return ""
    for container in status.get("containerStatuses", ()):
        waits = container.get("state", {}).get("waiting", {})
        if waits.get("reason") in ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"):
            return f"the image {container.get('image')} cannot be had ({waits.get('message') or waits['reason']})"
        if waits.get("reason") and waits["reason"] != "ContainerCreating":
            return f"the container of {name} cannot start: {waits.get('message') or waits['reason']}"
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return f"no machine of the cluster can take {name}: {condition.get('message') or condition.get('reason')}"
    return f"{name} is being created"


def _parsed(text: str) -> dict[str, Any] | None:
    """A coordinator's message; None for whatever else a container, or Kubernetes about it, may have said."""
    try:
        message: dict[str, Any] = json.loads(text)
        decode_outcome(message["outcome"])
        float(message.get("finished") or 0.0)
    except (ValueError, KeyError, TypeError, ProtocolError):
        return None
    return message


def _finished(message: Mapping[str, Any]) -> float:
    return float(message.get("finished") or 0.0)


def _number(pod: Object, annotation: str) -> int:
    text = str(pod["metadata"].get("annotations", {}).get(annotation, ""))
    return int(text) if text.isdecimal() else 0


def _seconds(time: object) -> float:
    """A time of the API, in seconds; 0.0 where it tells none."""
    if not time:
        return 0.0
    from datetime import datetime

    return datetime.fromisoformat(str(time)).timestamp()
