"""Jobs that were written for others, found among the objects of their files: the old operator's ElasticJobs
(elastic.pytorch.org/v1alpha1), and pods with a headless Service each.

What they say is kept where petctl has a place for it; whatever is left out is told by name, with the reason. Objects
that are neither a job nor known to be needless are refused by name. Pure: plain data in, plain data out; what is made
of a job that was found is said in `converted.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.convert.launcher_args import Launch, launcher_length, read_launch
from petctl.clusters.kubernetes.convert.validation import check_shape
from petctl.errors import UsageError

Object = dict[str, Any]

OLD = "elastic.pytorch.org/v1alpha1"
_UNTOUCHED = (
    *("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "ConfigMap", "Secret", "Namespace"),
    *("ServiceAccount", "PriorityClass"),
)
_SIZES = ("RDZV_ENDPOINT", "JOB_ID", "MIN_SIZE", "MAX_SIZE", "SIZE")
_ADDRESS = re.compile(r"[a-z0-9+]+://\S+\.py")
_PLACEHOLDER = re.compile(r"<[A-Za-z_]+>")
_OF_THE_OLD = {
    "rdzvEndpoint": "petctl has its own rendezvous and needs no etcd",
    "schedulingPolicy": "the old operator ignored it; a job starts with minReplicas nodes",
}
_WORKER = "elasticjob-worker"  # the only container whose exit codes the old operator looked at
_CONTAINER = {"env": [{}], "command": [], "args": [], "resources": {"limits": {}, "requests": {}}}
_POD: dict[str, dict[str, Any]] = {"metadata": {"labels": {}}, "spec": {"containers": [_CONTAINER]}}
_NUMBERS = ("minReplicas", "maxReplicas", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished")
_SHAPE = {
    "metadata": _POD["metadata"],
    "spec": {
        **_POD["spec"],
        "ports": [{}],
        "template": _POD,
        "replicaSpecs": {"Worker": {"replicas": 0, "template": _POD}},
        **dict.fromkeys(_NUMBERS, 0),
    },
}
"""All that is looked into, of whatever kind an object is."""


class ConvertOptions(NamedTuple):
    """What whoever imports has said beside the files."""

    command: Sequence[str] = ()  # what the images' ENTRYPOINT stands for
    image: str = ""
    fetches: bool = False  # whether a script at an address can be taken from there


class Found(NamedTuple):
    """One job, whatever it was written for."""

    name: str
    namespace: str
    least: int
    most: int
    replicas: int
    launch: Launch
    policy: str  # OnFailure, ExitCode or Never
    restarts: int | None
    template: Object  # of its pods; its first container is the worker's, without command
    code: str = ""  # the address of its script
    more: Mapping[str, Any] = {}  # fields that keep their names


def find_jobs(documents: Sequence[object], wishes: ConvertOptions) -> tuple[list[Found], list[str]]:
    """Every job in these documents, and a line for each thing that is left out."""
    found: list[Found] = []
    notes: list[str] = []
    groups: dict[str, list[Object]] = {}
    for item in _objects(documents):
        kind, name = str(item.get("kind") or ""), _name(item)
        if kind not in _UNTOUCHED:
            check_shape(f"{kind or 'an object without a kind'} {name}", item, _SHAPE)
        if kind == "ElasticJob" and item.get("apiVersion") == OLD:
            found.append(_old_job(item, wishes, notes))
        elif _is_etcd(item):
            notes.append(f"{kind} {name} is left out: no etcd is needed")
        elif kind == "Service" and (item.get("spec") or {}).get("clusterIP") == "None":
            notes.append(f"Service {name} is left out: nodes find each other by their addresses")
        elif kind == "Pod" and "RDZV_ENDPOINT" in _environment(_containers(item, f"Pod {name}")[0]):
            groups.setdefault(_job_id(item), []).append(item)
        elif kind in _UNTOUCHED:
            notes.append(f"{kind} {name} stays as it is: apply it as before")
        else:
            raise UsageError(
                f"{kind or 'an object without a kind'} {name} ({item.get('apiVersion') or 'no apiVersion'}) is not "
                f"something petctl can import: it knows ElasticJob of {OLD}, and pods with RDZV_ENDPOINT in their "
                "environment and their headless Services"
            )
    found += [_pods_job(job, pods, wishes, notes) for job, pods in groups.items()]
    for job in found:
        left = sorted(set(_PLACEHOLDER.findall(str((job.launch.command, job.code, job.template)))))
        notes += [f"{job.name} still holds the placeholder {text}: fill it in" for text in left]
    return found, notes


def _old_job(item: Object, wishes: ConvertOptions, notes: list[str]) -> Found:
    name, spec = _name(item), item.get("spec") or {}
    where = f"ElasticJob {name}"
    workers = (spec.get("replicaSpecs") or {}).get("Worker") or {}
    if not workers.get("template"):
        raise UsageError(f"{where} has no spec.replicaSpecs.Worker.template; there is nothing to run")
    notes += [f"{where}: {field} is left out: {why}" for field, why in _OF_THE_OLD.items() if field in spec]
    notes += [
        f"{where}: replicaSpecs.{kind} is left out: the old operator never created any"
        for kind in spec["replicaSpecs"]
        if kind != "Worker"
    ]
    kept = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
    known = (*_OF_THE_OLD, *kept, "minReplicas", "maxReplicas", "replicaSpecs", "backoffLimit")
    notes += [f"{where}: {field} is left out: petctl does not know it" for field in spec if field not in known]
    template, launch, _ = _template(where, workers["template"], wishes._replace(fetches=False), True, notes)
    replicas = int(workers.get("replicas") or 1)
    policy = str(workers.get("restartPolicy") or "Never")
    if policy == "Never":
        notes.append(f"{where}: restartPolicy Never was about pods; workers are restarted as the launcher did")
    restarts = launch.restarts if launch.restarts is not None else spec.get("backoffLimit")
    return _bounded(
        where,
        Found(
            name=name,
            namespace=str(item.get("metadata", {}).get("namespace") or ""),
            least=int(spec.get("minReplicas") or replicas),
            most=int(spec.get("maxReplicas") or replicas),
            replicas=replicas,
            launch=launch,
            policy="ExitCode" if policy == "ExitCode" else "OnFailure",
            restarts=None if restarts is None else int(restarts),
            template=template,
            more={field: spec[field] for field in kept if spec.get(field) is not None},
        ),
    )


def _pods_job(job: str, pods: Sequence[Object], wishes: ConvertOptions, notes: list[str]) -> Found:
    """Pods that are one job: the first speaks for all, and the others must say the same."""
    first = pods[0]
    where = f"Pod {_name(first)}"
    environment = _environment(_containers(first, where)[0])
    for pod in pods[1:]:
        if _without_its_place(pod) != _without_its_place(first):
            raise UsageError(
                f"Pod {_name(pod)} and {where} have the JOB_ID {job!r} and are not the same; a job has one template"
            )
    marks = first.get("metadata", {}).get("labels") or {}
    labels = {name: value for name, value in marks.items() if name not in ("job-name", "worker")}
    written = {"metadata": {"labels": labels} if labels else {}, "spec": first["spec"]}
    template, launch, code = _template(where, written, wishes, False, notes)
    names = ", ".join(_SIZES[1:])
    notes.append(f"{where}: RDZV_ENDPOINT is left out: {_OF_THE_OLD['rdzvEndpoint']}; {names} are set for every worker")
    size = _number(where, environment, "SIZE") or len(pods)
    least, _, most = launch.nodes.partition(":")
    sizes = {"MIN_SIZE": least or str(size), "MAX_SIZE": most or least or str(size), **environment}
    return _bounded(
        where,
        Found(
            name=job,
            namespace=str(first.get("metadata", {}).get("namespace") or ""),
            least=_number(where, sizes, "MIN_SIZE"),
            most=_number(where, sizes, "MAX_SIZE"),
            replicas=size,
            launch=launch,
            policy="OnFailure",
            restarts=launch.restarts,
            template=template,
            code=code,
        ),
    )


def _template(
    where: str, written: Mapping[str, Any], wishes: ConvertOptions, launched: bool, notes: list[str]
) -> tuple[Object, Launch, str]:
    """The template as it stays, what its worker runs, and the address of its script."""
    containers = _containers(written, where)
    template: Object = deepcopy({key: written[key] for key in ("metadata", "spec") if written.get(key)})
    spec = template["spec"]
    worker = next((one for one in containers if one.get("name") == _WORKER), containers[0])
    launch, code = _launch(where, worker, wishes, launched)
    notes += [f"{where}: {note}" for note in launch.notes]
    if spec.pop("restartPolicy", None):
        notes.append(f"{where}: the pods' restartPolicy is left out: a node that ends is replaced")
    spec.pop("nodeName", None)
    spec.pop("hostname", None)
    own = {key: value for key, value in worker.items() if key not in ("command", "args")}
    own["env"] = [variable for variable in own.get("env") or () if variable.get("name") not in _SIZES]
    if not own["env"]:
        del own["env"]
    if wishes.image:
        own["image"] = wishes.image
    if str(own.get("image")).startswith("torchelastic/"):
        advice = "set agentImage to an image that has it, or give another with --image"
        notes.append(f"{where}: {own['image']} has no Python 3.9, which the agent needs; {advice}")
    if not own.get("image"):
        raise UsageError(f"{where}: the container {own.get('name')!r} has no image; give one with --image")
    spec["containers"] = [deepcopy(own), *(deepcopy(one) for one in containers if one is not worker)]
    return template, launch, code


def _launch(where: str, worker: Mapping[str, Any], wishes: ConvertOptions, launched: bool) -> tuple[Launch, str]:
    """What the worker runs: its own command, or what the image's ENTRYPOINT is known to be."""
    command, words = ([str(word) for word in worker.get(key) or ()] for key in ("command", "args"))
    address = words[0] if words and _ADDRESS.fullmatch(_PLACEHOLDER.sub("x", words[0])) else ""
    command = command or list(wishes.command)
    if launcher_length(command):
        return read_launch([*command[launcher_length(command) :], *words]), ""
    if command:
        if address and not worker.get("command"):
            told = f"{address} is left out: the image's ENTRYPOINT fetched it, and --command stands for both"
            return Launch([*command, *words[1:]], notes=(told,)), ""
        return Launch([*command, *words]), ""
    if launched:
        return read_launch(words), ""
    if address and wishes.fetches:
        return Launch(words[1:]), address
    raise UsageError(
        f"{where}: the container {worker.get('name')!r} has no command, and what the ENTRYPOINT of "
        f"{worker.get('image')} is cannot be seen from here; name the program with --command, such as: "
        "petctl import --command 'python3 /workspace/main.py' FILE"
        + ("; or create a job file, which fetches the script from its address: --to job" if address else "")
    )


def _bounded(where: str, job: Found) -> Found:
    if not 1 <= job.least <= job.replicas <= job.most:
        raise UsageError(
            f"{where}: {job.replicas} nodes are not between the minimum ({job.least}) and the "
            f"maximum ({job.most}); change one of these in the file"
        )
    return job


def _objects(documents: Sequence[object]) -> Iterator[Object]:
    for document in documents:
        if document is None:
            continue
        parts = [document.get(part, {}) for part in ("metadata", "spec")] if isinstance(document, dict) else [None]
        if not all(isinstance(part, dict) for part in parts) or not isinstance(document, dict):
            raise UsageError("expected Kubernetes objects, each a mapping with apiVersion, kind, metadata and spec")
        if str(document.get("kind")).endswith("List") and isinstance(document.get("items"), list):
            yield from _objects(document["items"])
        else:
            yield document


def _name(item: Mapping[str, Any]) -> str:
    return str(item.get("metadata", {}).get("name") or "without a name")


def _containers(item: Mapping[str, Any], where: str) -> list[Object]:
    found: list[Object] = (item.get("spec") or {}).get("containers") or []
    if not found:
        raise UsageError(f"{where} has no containers")
    if not all("name" in variable for one in found for variable in one.get("env") or ()):
        raise UsageError(f"{where}: each variable in env must have a name")
    return found


def _environment(container: Mapping[str, Any]) -> dict[str, str]:
    return {str(one.get("name")): str(one.get("value", "")) for one in container.get("env") or ()}


def _job_id(pod: Object) -> str:
    environment = _environment(pod["spec"]["containers"][0])
    return environment.get("JOB_ID") or (pod.get("metadata", {}).get("labels") or {}).get("job-name") or _name(pod)


def _number(where: str, environment: Mapping[str, str], name: str) -> int:
    text = environment.get(name, "")
    if text and not text.isdecimal():
        raise UsageError(f"{where}: {name} is {text!r}, which is not a number")
    return int(text or 0)


def _without_its_place(pod: Object) -> Object:
    return {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "hostname")}


def _is_etcd(item: Mapping[str, Any]) -> bool:
    """An etcd, or what leads to one."""
    spec = item.get("spec", {})
    if item.get("kind") == "Service":
        return any(port.get("port") == 2379 for port in spec.get("ports") or ())
    inner = (spec.get("template") or {"spec": spec}).get("spec") or {}
    return any("etcd" in str(one.get("image")) for one in inner.get("containers") or ())
