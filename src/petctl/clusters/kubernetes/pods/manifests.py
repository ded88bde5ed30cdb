"""The objects that a job consists of on Kubernetes, as plain data. Pure: nothing here reads, asks or creates.

    Job NAME-coordinator    owns all the others: deleting it deletes them
    Service NAME            leads to its pod, whichever it is just now
    Job NAME-node           one pod per node, numbered
    Secret NAME             token and certificate; nodes see only the join file
    ConfigMap NAME          the job's record
    ConfigMap petctl.agent-DIGEST
                            petctl's agent, one for all jobs of the namespace that were submitted with it, which all own
                            it; NAME.agent and NAME.agent-rest where `petctl render` prints it, or an operator makes it
    ConfigMap NAME.size     the size that was asked for last, once somebody has scaled the job
    ConfigMap NAME-code-K   the code's archive, in pieces

`kubectl apply` keeps a copy of each object in an annotation of it, which has to fit into 256 KiB. That is why the agent
has two ConfigMaps of its own, and why code is cut smaller where kubectl is to create it.

No pod may use the API. Of Kubernetes it takes what any user of a namespace may create, and these promises:

- An Indexed Job with `backoffLimitPerIndex` numbers the pods that it makes for an index (an annotation). That makes
  epochs and incarnations rise, without a pod asking anybody.
- A node that leaves ends with a code of its own, which its Job ignores: it makes another one, unless it was scaled in.
- The back-off of a Job doubles with every pod that an index loses, and has no end. A coordinator is lost again and
  again with the machines of a long job, so it has many indices, one after the other: each is given up after a few
  losses, and the next begins without a back-off. One that ends well ends the Job (`successPolicy`).
- The coordinator is replaced as soon as its pod is being deleted, also on a machine that nobody reaches. That excludes
  a policy for exit codes, so its Job ends well whenever the job has ended; how, the pod's termination message says.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from petctl.agent.node.native import words_of
from petctl.clusters.kubernetes.names import COORDINATOR, ID, MANAGED, NODE, labels, object_name
from petctl.clusters.kubernetes.pods.template_merge import patched
from petctl.controller.job_files import GRANTS, JOIN
from petctl.job.task import Code

PORT = 7700
LEFT = 91
"""Exit code of a node that left; the job goes on without it, or with another in its place."""
MOST_CODE = 21 << 20
"""Bytes of code that a job may have without a store: each is kept in the cluster's own database."""
PIECE = 900 << 10
"""Bytes of code in one ConfigMap, which holds less than a MiB."""
SMALL_PIECE = 180 << 10
"""The same for `kubectl apply`: as base64, with all that is around it, it fits into an annotation."""
RECOVERY = 15.0
"""Seconds in which all nodes find a new coordinator: some still try the address of the old one's pod, in vain."""
CREDENTIALS = ("token", "tls.crt", "tls.key", JOIN)
"""In the job's Secret, whether or not there are grants."""
SECRETS = "petctl-secrets"
"""The Secret that `petctl secret set` fills."""
WITHHELD = "<left out: petctl render --with-secrets prints it>"
"""Stands for a secret value. It is not base64, so the server does not take it for one."""
AWAY = 10
"""Seconds for which a pod may stay on a machine that nobody reaches."""
_FOREVER = (1 << 31) - 1
COORDINATORS = 1000
"""Indices of a coordinator's Job."""
LOSSES = 3
"""Coordinators that each of them has: the Job's back-off is 10 s, then 20 s, and then the next index comes at once."""
STATE, _AGENT, _JOB, _JOIN = "/petctl/state", "/petctl/agent", "/petctl/job", "/petctl/join"
_PYTHON = "/petctl/python"
_READY = f"{STATE}/ready"
AGENT_FILES = {"petctl-agent.pyz": "agent", "petctl-agent.rest": "agent-rest"}
"""The agent's archive and the rest of it -> how the ConfigMap's name ends that holds it for one job alone."""
ARCHIVE = f"{_AGENT}/petctl-agent.pyz"
"""Where a pod has the agent."""
_SHARED = ("tolerations", "priorityClassName")
_OWNERS = ("suspend", "ttlSecondsAfterFinished")  # in the spec of what owns the rest
_RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_NOBODY = {**_RESTRICTED, "runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534}
_SHARED_IN_TURN = ("cpu", "memory", "ephemeral-storage")  # what a pod has for one container after the other


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


COUNTED = (
    _field("PETCTL_FAILED", "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"),
    _field("PETCTL_IGNORED", "metadata.annotations['batch.kubernetes.io/job-index-ignored-failure-count']"),
    {"name": "PETCTL_REPLACEMENT", "value": "$(PETCTL_FAILED)+$(PETCTL_IGNORED)"},
)
"""How many pods an Indexed Job made before this one."""
INDEX = _field("PETCTL_INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']")
"""Which one of an Indexed Job's pods this is."""
COORDINATOR_COUNTED = (
    INDEX,
    *COUNTED[:2],
    {"name": "PETCTL_REPLACEMENT", "value": "+".join(["$(PETCTL_INDEX)"] * LOSSES + [COUNTED[2]["value"]])},
)
"""How many coordinators there were before this one: those of earlier indices, and those of its own."""


class PodSettings(NamedTuple):
    """What the user and the cluster's settings say about pods."""

    image: str
    pull_policy: str = ""
    pull_secrets: Sequence[str] = ()
    agent_image: str = ""  # has the agent's Python; otherwise `image` has it
    python: str = "python3"  # in that image, for the agent itself
    gpus: int = 0
    gpu_resource: str = ""  # what the cluster calls them, if not nvidia.com/gpu
    grace: float = 30.0
    patches: Sequence[tuple[str, Mapping[str, Any]]] = ()  # where it is written, a piece of the nodes' pod template
    coordinator: Mapping[str, Any] = {}  # a piece of the coordinator's
    agent: str = ""  # the ConfigMap that holds the agent, if it is not the job's own
    ttl: float | None = None  # seconds after its end until the job is deleted


def coordinator_job(
    job_id: str, wishes: PodSettings, pieces: int, secrets: Sequence[str], stores: bool, suspend: bool
) -> dict[str, Any]:
    """The coordinator's Job, which owns everything else."""
    pod = coordinator_pod(job_id, wishes, pieces, secrets, stores, COORDINATOR_COUNTED)
    return _job(
        job_id,
        COORDINATOR,
        pod,
        1,
        completions=COORDINATORS,
        backoffLimitPerIndex=LOSSES - 1,
        successPolicy={"rules": [{"succeededCount": 1}]},
        podReplacementPolicy="TerminatingOrFailed",
        **({"suspend": True} if suspend else {}),
        **({} if wishes.ttl is None else {"ttlSecondsAfterFinished": math.ceil(wishes.ttl)}),
    )


def coordinator_pod(
    job_id: str,
    wishes: PodSettings,
    pieces: int,
    secrets: Sequence[str],
    stores: bool,
    numbers: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """What the coordinator's pods are made from; `numbers`: the variables that tell how many there were before."""
    name = object_name(job_id)
    files: list[dict[str, Any]] = [
        {"configMap": {"name": name, "items": _items("job.json")}},
        {"secret": {"name": name, "items": _items(*CREDENTIALS, *([GRANTS] if stores else []))}},
    ]
    size = {"name": size_name(job_id), "items": _items("wanted"), "optional": True}
    files.append({"configMap": size})
    for number in range(pieces):
        piece = [{"key": "piece", "path": f"code/part-{number:05d}"}]
        files.append({"configMap": {"name": piece_name(job_id, number), "items": piece}})
    if secrets:
        values = [{"key": secret, "path": f"secrets/{secret}"} for secret in sorted(set(secrets))]
        files.append({"secret": {"name": SECRETS, "items": values}})
    words = ["coordinate", "--job", _JOB, "--state", STATE, "--replacement", "$(PETCTL_REPLACEMENT)"]
    words += ["--listen", "0.0.0.0", "--port", str(PORT), "--message", "/dev/termination-log"]
    image, python = wishes.agent_image or wishes.image, [wishes.python, "-I"]
    mounted = {"job": (_JOB, {"projected": {"sources": files}})}
    pod = _pod(job_id, COORDINATOR, wishes, image, [*python, ARCHIVE, *words], mounted, numbers)
    container = pod["spec"]["containers"][0]
    container["ports"] = [{"containerPort": PORT}]
    container["terminationMessagePolicy"] = "FallbackToLogsOnError"  # a Python that is too old says so
    container["securityContext"] = _NOBODY
    container["resources"] = {"requests": {"cpu": "20m", "memory": "64Mi"}}
    pod["spec"]["terminationGracePeriodSeconds"] = 5
    for said, patch in wishes.patches:  # it goes where nodes go, and is worth as much, but needs none of their means
        shared = {key: value for key, value in (patch.get("spec") or {}).items() if key in _SHARED}
        pod = patched(pod, {"spec": shared}, said)
    return patched(pod, wishes.coordinator, "options.kubernetes.coordinator")


def node_job(job_id: str, wishes: PodSettings, nodes: int) -> dict[str, Any]:
    """The nodes' Job: as many pods as nodes are wanted."""
    rules = [
        {"action": "Ignore", "onExitCodes": {"containerName": "petctl", "operator": "In", "values": [LEFT]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    pod = node_pod(job_id, wishes, [*COUNTED, INDEX])
    replacing = {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": rules}}  # only when it has left
    return _job(job_id, NODE, pod, nodes, **replacing)


def node_pod(job_id: str, wishes: PodSettings, numbers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a node's pod is made from; one that is made from a Job's by hand takes part too."""
    words = ["join", "--file", f"{_JOIN}/{JOIN}", "--node", "$(PETCTL_INDEX)", "--address", "$(PETCTL_ADDRESS)"]
    words += ["--state-dir", STATE, "--replacement", "$(PETCTL_REPLACEMENT)", "--leave-code", str(LEFT)]
    words += ["--stream", "--tagged", "--ready-file", _READY]
    files = {"join": (_JOIN, {"secret": {"secretName": object_name(job_id), "items": _items(JOIN)}})}
    if wishes.agent_image:
        files["python"] = (_PYTHON, {"emptyDir": {}})
    address = _field("PETCTL_ADDRESS", "status.podIP")
    pod = _pod(job_id, NODE, wishes, wishes.image, [*agent_words(wishes), *words], files, [*numbers, address])
    container = pod["spec"]["containers"][0]
    if wishes.agent_image:
        pod["spec"]["initContainers"] = [_python_copier(wishes)]
    if wishes.gpus:
        container["resources"] = {"limits": {wishes.gpu_resource or "nvidia.com/gpu": str(wishes.gpus)}}
    pod["spec"]["terminationGracePeriodSeconds"] = int(wishes.grace) + 10
    for said, patch in wishes.patches:
        pod = patched(pod, patch, said)
    if wishes.agent_image:
        _give_the_same(pod["spec"]["initContainers"][0], pod["spec"]["containers"][0].get("resources") or {})
    pod["spec"]["containers"][0].setdefault("readinessProbe", _readiness(wishes))
    return pod


def agent_words(wishes: PodSettings) -> list[str]:
    """What starts the agent in a node's pod, by the image's Python or the one that was copied into the pod."""
    return [*_python_words(wishes), ARCHIVE]


def _python_words(wishes: PodSettings) -> list[str]:
    return words_of(_PYTHON) if wishes.agent_image else [wishes.python, "-I"]


def _readiness(wishes: PodSettings) -> dict[str, Any]:
    """A node is ready while its workers are in a round. That they are in none for a moment, between two, costs nothing;
    what a probe costs is a Python without its site packages."""
    look = f"import os, sys; sys.exit(None if os.path.exists('{_READY}') else 'its workers are in no round')"
    times = {"periodSeconds": 5, "timeoutSeconds": 10, "failureThreshold": 3}
    return {"exec": {"command": [*_python_words(wishes), "-Sc", look]}, **times}


def _python_copier(wishes: PodSettings) -> dict[str, Any]:
    """Runs before the node's container, and copies the Python of its own image to where that has it."""
    mounts = {"agent": _AGENT, "state": STATE, "python": _PYTHON}
    return {
        "name": "petctl-python",
        "image": wishes.agent_image,
        **({"imagePullPolicy": wishes.pull_policy} if wishes.pull_policy else {}),
        "command": [wishes.python, "-I", ARCHIVE, "copy-python", _PYTHON],
        "securityContext": _NOBODY,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts.items()],
    }


def _give_the_same(first: dict[str, Any], resources: Mapping[str, Any]) -> None:
    """To a container that runs before the node's: it costs nothing more, and a quota may want each to have some."""
    for kind, amounts in resources.items():
        if kind in ("requests", "limits"):
            known = {name: amount for name, amount in amounts.items() if name in _SHARED_IN_TURN}
            first["resources"] = {**first.get("resources", {}), kind: known}


def service(job_id: str) -> dict[str, Any]:
    """The one address under which the coordinator is found."""
    spec = {"selector": labels(job_id, COORDINATOR), "ports": [{"name": "petctl", "port": PORT, "targetPort": PORT}]}
    return _object("Service", object_name(job_id), job_id, spec=spec)


def budget(job_id: str, least: int) -> dict[str, Any]:
    """Lets whoever drains machines evict nodes only while so many others take part. A number, since a share of the pods
    is counted by what owns them, and no ElasticJob without `replicas` and no Job can be asked for that."""
    spec = {"minAvailable": least, "selector": {"matchLabels": labels(job_id, NODE)}}
    return _object("PodDisruptionBudget", object_name(job_id), job_id, "policy/v1", spec=spec)


def service_name(job_id: str, namespace: str) -> str:
    """The name under which pods of the cluster find it."""
    return f"{object_name(job_id)}.{namespace}.svc"


def secret(job_id: str, values: Mapping[str, bytes | None]) -> dict[str, Any]:
    """Token, certificate and join file; None stands for a value that is not to be seen."""
    data = {name: WITHHELD if value is None else _base64(value) for name, value in values.items()}
    return _object("Secret", object_name(job_id), job_id, type="Opaque", immutable=True, data=data)


def config(job_id: str, record: str) -> dict[str, Any]:
    """What the agent is to do."""
    return _object("ConfigMap", object_name(job_id), job_id, immutable=True, data={"job.json": record})


def agent_names(job_id: str) -> list[str]:
    """The ConfigMaps that hold the agent for this job alone."""
    return [f"{object_name(job_id)}.{ending}" for ending in AGENT_FILES.values()]  # with a dot no job can have such


def agent_configs(job_id: str, agent: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """The agent, for all pods of the job."""
    return [
        _object("ConfigMap", name, job_id, immutable=True, binaryData={file: _base64(agent[file])})
        for name, file in zip(agent_names(job_id), AGENT_FILES, strict=True)
    ]


def shared_agent(agent: Mapping[str, bytes]) -> dict[str, Any]:
    """The agent, for all jobs of the namespace that have the same."""
    name = f"petctl.agent-{hashlib.sha256(b''.join(agent.values())).hexdigest()[:16]}"
    data = {file: _base64(part) for file, part in agent.items()}
    metadata = {"name": name, "labels": dict(MANAGED)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "metadata": metadata, "binaryData": data}


def size_name(job_id: str) -> str:
    """The ConfigMap that holds the size that was asked for last."""
    return f"{object_name(job_id)}.size"


def size_config(job_id: str, wanted: int) -> dict[str, Any]:
    """How many nodes are wanted, for a coordinator that no node is left to tell it. Not immutable: kubelets never read
    such an object again."""
    return _object("ConfigMap", size_name(job_id), job_id, data={"wanted": str(wanted)})


def code_directory(code: Code) -> str:
    """Where a node's pod has the job's code."""
    return f"{STATE}/code/{code.id[:16]}/{code.inside}"


def piece_name(job_id: str, number: int) -> str:
    """The ConfigMap that holds one piece of the code."""
    return f"{object_name(job_id)}-code-{number}"


def code_pieces(job_id: str, archive: bytes, pieces: int) -> Iterator[dict[str, Any]]:
    """The code's archive, cut into so many pieces of about the same size."""
    for number in range(pieces):
        start, end = (len(archive) * edge // pieces for edge in (number, number + 1))
        data = {"piece": _base64(archive[start:end])}
        yield _object("ConfigMap", piece_name(job_id, number), job_id, immutable=True, binaryData=data)


def owned(manifest: dict[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """The same, and it goes when its owner goes."""
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
    if owner["kind"] == "ElasticJob":
        reference["controller"] = True  # its operator finds what is the job's by this
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}


def free(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The same for another tool to create, in any order: it sleeps for no owner, its certificate names the namespace,
    and no time to live deletes the one object that would own the others."""
    changed = {**manifest, "metadata": {**manifest["metadata"], "namespace": namespace}}
    if "spec" in manifest:
        changed["spec"] = {key: value for key, value in manifest["spec"].items() if key not in _OWNERS}
    return changed


def belongings(job_id: str, coordinator: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Kind and name of everything beside the coordinator's Job, the record last: without it there is no status.
    The size is left out: only `scale` makes it, with an owner, also for a job whose other parts have none."""
    name = object_name(job_id)
    volumes = coordinator["spec"]["template"]["spec"]["volumes"]
    files = [source for volume in volumes for source in volume.get("projected", {}).get("sources", ())]
    mounted = [source["configMap"]["name"] for source in files if "configMap" in source]
    code = [("configmaps", piece) for piece in mounted if piece.startswith(f"{name}-code-")]  # none of the user's own
    agent = [("configmaps", part) for part in agent_names(job_id)]
    kept = [*code, *agent, ("secrets", name), ("configmaps", name)]
    return [("jobs", f"{name}-{NODE}"), ("services", name), *kept]


def _job(job_id: str, role: str, pod: dict[str, Any], size: int, **more: Any) -> dict[str, Any]:
    """A Job that numbers its pods and makes another for each that it loses, for ever."""
    spec = {
        "completionMode": "Indexed",
        "parallelism": size,
        "completions": size,
        "backoffLimitPerIndex": _FOREVER,
        "template": pod,
        **more,
    }
    made = _object("Job", f"{object_name(job_id)}-{role}", job_id, "batch/v1", spec=spec)
    made["metadata"]["labels"] = labels(job_id, role)
    return made


def _pod(
    job_id: str,
    role: str,
    wishes: PodSettings,
    image: str,
    command: list[str],
    files: Mapping[str, tuple[str, dict[str, Any]]],
    env: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    if wishes.agent:
        agent: dict[str, Any] = {"configMap": {"name": wishes.agent, "items": _items(*AGENT_FILES)}}
    else:
        parts = zip(agent_names(job_id), AGENT_FILES, strict=True)
        sources = [{"configMap": {"name": name, "items": _items(file)}} for name, file in parts]
        agent = {"projected": {"sources": sources}}
    volumes = {"agent": (_AGENT, agent), **files, "state": (STATE, {"emptyDir": {}})}
    container: dict[str, Any] = {
        "name": "petctl",
        "image": image,
        **({"imagePullPolicy": wishes.pull_policy} if wishes.pull_policy else {}),
        "command": command,
        "env": list(env),
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


def _object(kind: str, name: str, job_id: str, version: str = "v1", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels(job_id), "annotations": {ID: job_id}}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _items(*keys: str) -> list[dict[str, str]]:
    return [{"key": key, "path": key} for key in keys]
