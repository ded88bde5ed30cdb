"""What becomes of a job, as its objects tell it: how it ended, and why it does not run yet. Objects in, words out.

What happens inside a running job is the coordinator's to tell; here is what Kubernetes knows when nobody answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from petctl.supervision.records import close_status, first_status

CONTAINER = "petctl"
OUTCOME = "petctl.dev/outcome"
"""Annotation of a job that was ended from outside, because its coordinator could not be asked."""

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
            return {"outcome": {"state": "lost", "code": 1, "sentence": sentence}, "finished": 0.0}
    return None


def final_status(record: Mapping[str, Any], message: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a job that has ended, from what its coordinator left."""
    status = first_status(dict(record))
    known = {key: message[key] for key in ("size", "spent", "round", "started") if message.get(key) is not None}
    return close_status({**status, **known}, dict(message["outcome"]), float(message.get("finished") or 0.0))


def waiting_status(record: Mapping[str, Any], coordinator: Object, pods: Sequence[Object]) -> dict[str, Any]:
    """The status of a job whose coordinator cannot be asked just now."""
    status = first_status(dict(record))
    if coordinator["spec"].get("suspend"):
        return {**status, "state": "queued", "sentence": "queued: its Job is suspended"}
    reasons = [reason for pod in pods if (reason := why_not_running(pod))]
    sentence = reasons[0] if reasons else "its coordinator is starting"
    return {**status, "state": "starting", "sentence": f"waiting: {sentence}"}


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
    try:
        message = json.loads(text)
    except ValueError:
        return None
    return message if isinstance(message, dict) and isinstance(message.get("outcome"), dict) else None
