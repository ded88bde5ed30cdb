"""The objects that a job consists of on Kubernetes, as plain data. Pure: nothing here reads, asks or creates.

    Job NAME-coordinator    owns all the others: deleting it deletes them
    Service NAME            leads to its pod, whichever it is just now
    Job NAME-node           one pod per node, numbered
    Secret NAME             token and certificate; nodes see only the join file
    ConfigMap NAME          the agent and the job's record
    ConfigMap NAME-code-K   the code's archive, in pieces

No pod may use the API. Of Kubernetes it takes what any user of a namespace may create, and these promises:

- An Indexed Job with `backoffLimitPerIndex` numbers the pods that it makes for an index (an annotation). That makes
  epochs and incarnations rise, without a pod asking anybody.
- A node that leaves ends with a code of its own, which its Job ignores: it makes another one, unless it was scaled in.
- The coordinator is replaced as soon as its pod is being deleted, also on a machine that nobody reaches. That excludes
  a policy for exit codes, so its Job ends well whenever the job has ended; how, the pod's termination message says.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.names import COORDINATOR, ID, NODE, labels, object_name

PORT = 7700
LEFT = 91
"""Exit code of a node that left; the job goes on without it, or with another in its place."""
PIECE = 900 << 10
"""Bytes of code in one ConfigMap, which holds less than a MiB."""
MOST_PIECES = 24
SECRETS = "petctl-secrets"
"""The Secret that `petctl secret set` fills."""
AWAY = 10
"""Seconds for which a pod may stay on a machine that nobody reaches."""
_FOREVER = (1 << 31) - 1
_STATE, _AGENT, _JOB, _JOIN = "/petctl/state", "/petctl/agent", "/petctl/job", "/petctl/join"
_PYZ = "petctl-agent.pyz"
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Wishes(NamedTuple):
    """What the user and the cluster's settings say about pods."""

    image: str
    pull_policy: str = ""
    pull_secrets: Sequence[str] = ()
    python: str = "python3"  # in the image, for the agent itself
    gpus: int = 0
    grace: float = 30.0
    annotations: Mapping[str, str] = {}


def coordinator_job(job_id: str, wishes: Wishes, pieces: int, secrets: Sequence[str], suspend: bool) -> dict[str, Any]:
    """The coordinator's Job, which owns everything else."""
    name = object_name(job_id)
    files: list[dict[str, Any]] = [
        {"configMap": {"name": name, "items": _items("job.json")}},
        {"secret": {"name": name, "items": _items("token", "tls.crt", "tls.key")}},
    ]
    for number in range(pieces):
        piece = [{"key": "piece", "path": f"code/part-{number:05d}"}]
        files.append({"configMap": {"name": f"{name}-code-{number}", "items": piece}})
    if secrets:
        values = [{"key": secret, "path": f"secrets/{secret}"} for secret in sorted(set(secrets))]
        files.append({"secret": {"name": SECRETS, "items": values}})
    words = ["coordinate", "--job", _JOB, "--state", _STATE, "--replacement", "$(PETCTL_REPLACEMENT)"]
    words += ["--listen", "0.0.0.0", "--port", str(PORT), "--message", "/dev/termination-log"]
    pod = _pod(job_id, COORDINATOR, wishes, words, {"job": (_JOB, {"projected": {"sources": files}})})
    container = pod["spec"]["containers"][0]
    container["ports"] = [{"containerPort": PORT}]
    container["securityContext"] = {**_RESTRICTED, "runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534}
    container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    pod["spec"]["terminationGracePeriodSeconds"] = 5
    return _job(
        f"{name}-{COORDINATOR}",
        job_id,
        COORDINATOR,
        pod,
        1,
        wishes,
        {"podReplacementPolicy": "TerminatingOrFailed", **({"suspend": True} if suspend else {})},
    )


def node_job(job_id: str, wishes: Wishes, nodes: int) -> dict[str, Any]:
    """The nodes' Job: as many pods as nodes are wanted."""
    rules = [
        {"action": "Ignore", "onExitCodes": {"containerName": "petctl", "operator": "In", "values": [LEFT]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    ]
    name = f"{object_name(job_id)}-{NODE}"
    replacing = {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": rules}}  # only when it has left
    return _job(name, job_id, NODE, node_pod(job_id, wishes), nodes, wishes, replacing)


def node_pod(job_id: str, wishes: Wishes) -> dict[str, Any]:
    """What every node's pod is made from; one that is made from it by hand takes part too."""
    words = ["join", "--file", f"{_JOIN}/join.json", "--node", "$(PETCTL_INDEX)", "--address", "$(PETCTL_ADDRESS)"]
    words += ["--state-dir", _STATE, "--replacement", "$(PETCTL_REPLACEMENT)", "--leave-code", str(LEFT)]
    words += ["--stream", "--tagged"]
    files = {"join": (_JOIN, {"secret": {"secretName": object_name(job_id), "items": _items("join.json")}})}
    pod = _pod(job_id, NODE, wishes, words, files)
    container = pod["spec"]["containers"][0]
    container["env"] += [
        _field("PETCTL_INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        _field("PETCTL_ADDRESS", "status.podIP"),
    ]
    if wishes.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": str(wishes.gpus)}}
    pod["spec"]["terminationGracePeriodSeconds"] = int(wishes.grace) + 10
    return pod


def service(job_id: str) -> dict[str, Any]:
    """The one address under which the coordinator is found."""
    spec = {"selector": labels(job_id, COORDINATOR), "ports": [{"name": "petctl", "port": PORT, "targetPort": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(object_name(job_id), job_id), "spec": spec}


def service_name(job_id: str, namespace: str) -> str:
    """The name under which pods of the cluster find it."""
    return f"{object_name(job_id)}.{namespace}.svc"


def secret(job_id: str, values: Mapping[str, bytes]) -> dict[str, Any]:
    """Token, certificate and join file."""
    metadata = _metadata(object_name(job_id), job_id)
    data = {name: base64.b64encode(value).decode() for name, value in values.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "immutable": True,
        "metadata": metadata,
        "data": data,
    }


def config(job_id: str, agent: bytes, record: str) -> dict[str, Any]:
    """The agent, and what it is to do."""
    metadata = _metadata(object_name(job_id), job_id)
    binary = {_PYZ: base64.b64encode(agent).decode()}
    known = {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata}
    return {**known, "data": {"job.json": record}, "binaryData": binary}


def code_directory(code: Mapping[str, Any]) -> str:
    """Where a node's pod has the job's code."""
    return f"{_STATE}/code/{code['id'][:16]}/{code['inside']}"


def code_pieces(job_id: str, archive: bytes) -> Iterator[dict[str, Any]]:
    """The code's archive, cut so that each piece fits into an object."""
    for number, start in enumerate(range(0, len(archive), PIECE)):
        metadata = _metadata(f"{object_name(job_id)}-code-{number}", job_id)
        binary = {"piece": base64.b64encode(archive[start : start + PIECE]).decode()}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata, "binaryData": binary}


def owned(manifest: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """The same, and it goes when its owner goes."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", **{key: owner["metadata"][key] for key in ("name", "uid")}}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def _job(
    name: str,
    job_id: str,
    role: str,
    pod: dict[str, Any],
    size: int,
    wishes: Wishes,
    more: dict[str, Any],
) -> dict[str, Any]:
    metadata = _metadata(name, job_id, role)
    metadata["annotations"] |= dict(wishes.annotations)
    spec = {
        "completionMode": "Indexed",
        "parallelism": size,
        "completions": size,
        "backoffLimitPerIndex": _FOREVER,
        "template": pod,
        **more,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def _pod(
    job_id: str, role: str, wishes: Wishes, words: list[str], files: Mapping[str, tuple[str, dict[str, Any]]]
) -> dict[str, Any]:
    agent = {"configMap": {"name": object_name(job_id), "items": _items(_PYZ)}}
    volumes = {"agent": (_AGENT, agent), **files, "state": (_STATE, {"emptyDir": {}})}
    container: dict[str, Any] = {
        "name": "petctl",
        "image": wishes.image,
        **({"imagePullPolicy": wishes.pull_policy} if wishes.pull_policy else {}),
        "command": [wishes.python, f"{_AGENT}/{_PYZ}", *words],
        "env": [
            _field("PETCTL_FAILED", "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"),
            _field("PETCTL_IGNORED", "metadata.annotations['batch.kubernetes.io/job-index-ignored-failure-count']"),
            {"name": "PETCTL_REPLACEMENT", "value": "$(PETCTL_FAILED)+$(PETCTL_IGNORED)"},
        ],
        "volumeMounts": [
            {"name": name, "mountPath": path, **({} if name == "state" else {"readOnly": True})}
            for name, (path, _) in volumes.items()
        ],
    }
    away = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": name, **source} for name, (_, source) in volumes.items()],
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY} for key in away
        ],
        **({"imagePullSecrets": [{"name": name} for name in wishes.pull_secrets]} if wishes.pull_secrets else {}),
    }
    metadata = {"labels": labels(job_id, role), "annotations": {ID: job_id}}
    return {"metadata": metadata, "spec": spec}


def _metadata(name: str, job_id: str, role: str = "") -> dict[str, Any]:
    return {"name": name, "labels": labels(job_id, role), "annotations": {ID: job_id}}


def _items(*keys: str) -> list[dict[str, str]]:
    return [{"key": key, "path": key} for key in keys]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
