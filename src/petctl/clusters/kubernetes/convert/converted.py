"""What becomes of a job that was found in somebody else's files (`convert.py`): an ElasticJob of petctl's, or a Job.

Pure: nothing here reads a file or asks a cluster.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from petctl.clusters.kubernetes.convert.convert import Found
from petctl.clusters.kubernetes.elastic_jobs import API_VERSION, KIND, RETRYABLE
from petctl.clusters.kubernetes.names import ID, object_name
from petctl.errors import UsageError
from petctl.job.spec import IN_PLACE, Job

_GPU = "nvidia.com/gpu"


def elastic_job(found: Found) -> dict[str, Any]:
    """The same job for petctl's operator."""
    name = object_name(found.name)
    metadata: dict[str, Any] = {"name": name}
    if found.namespace:
        metadata["namespace"] = found.namespace
    if name != found.name:
        metadata["annotations"] = {ID: found.name}
    template = deepcopy(found.template)
    first, *others = template["spec"]["containers"]
    template["spec"]["containers"] = [{**first, "command": found.launch.command}, *others]
    spec: dict[str, Any] = {"minReplicas": found.least, "replicas": found.replicas, "maxReplicas": found.most}
    if found.launch.procs:
        spec["procsPerNode"] = int(found.launch.procs) if found.launch.procs.isdecimal() else found.launch.procs
    if found.policy != "OnFailure":
        spec["restartPolicy"] = found.policy
    if found.restarts is not None:
        spec["backoffLimit"] = found.restarts
    spec |= {**found.more, "template": template}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def job(found: Found) -> tuple[Job, list[str]]:
    """The same job for `petctl run`, and what it has no place for."""
    template = deepcopy(found.template)
    spec = template["spec"]
    worker = spec["containers"][0]
    worker.pop("name", None)
    image = worker.pop("image")
    variables = worker.pop("env", [])
    env = {one["name"]: str(one["value"]) for one in variables if "value" in one}
    others = [one for one in variables if "value" not in one]
    if others:
        worker["env"] = others
    gpus = _take_gpus(worker)
    if not worker:
        spec["containers"] = spec["containers"][1:]
        if not spec["containers"]:
            del spec["containers"]
    pod = {key: value for key, value in template.items() if value}
    notes = [
        f"ElasticJob {found.name}: {name} is left out: a job file has no such field"
        for name in ("cleanPodPolicy", "ttlSecondsAfterFinished")
        if name in found.more
    ]
    if found.namespace:
        notes.append(f"{found.name}: the namespace {found.namespace} is set for the cluster, in petctl.yaml")
    fields: dict[str, Any] = {
        "name": found.name,
        "nodes": f"{found.least}:{found.replicas}:{found.most}",
        "procs": found.launch.procs or None,
        "resources": {"gpus": gpus} if gpus else None,
        "restarts": found.restarts,
        "retry_on": [f"{low}-{high}" for low, high in RETRYABLE] if found.policy == "ExitCode" else None,
        "max_time": found.more.get("activeDeadlineSeconds"),
        "image": image,
        "env": env,
        "options": {"kubernetes": {"pod": pod}} if pod else None,
    }
    if found.code:
        script = found.code.rpartition("/")[2]
        return Job(script=script, args=found.launch.command, code=found.code, **fields), notes
    return Job(program=found.launch.command, code=IN_PLACE, **fields), notes


def _take_gpus(worker: dict[str, Any]) -> int:
    """The GPUs, which are a resource of the job; what else a container asks for stays in it."""
    resources = worker.get("resources") or {}
    found = 0
    for part in ("limits", "requests"):
        amounts = resources.get(part) or {}
        text = str(amounts.pop(_GPU, 0))
        if not text.isdecimal():
            raise UsageError(f"{_GPU} is {text!r}, which is not a number")
        found = max(found, int(text))
        if not amounts:
            resources.pop(part, None)
    if not resources:
        worker.pop("resources", None)
    return found
