"""What nodes have, and options of jobs for Kubernetes and among a cluster's settings, as a piece of a pod template.

Pure: options in, plain data out; `template_merge.py` merges it into the nodes' template, before the user's own `pod`.
Which options there are, and what is wrong with them, is known to `schema.py`. What of it the coordinator's pod has too
is said in `manifests.py`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from petctl.clusters.kubernetes.names import CONTAINER, labels
from petctl.clusters.kubernetes.pods.schema import OF_A_CONTAINER, PodOptions
from petctl.errors import UsageError
from petctl.job.spec.problems import FieldError
from petctl.job.spec.quantities import format_bytes
from petctl.job.spec.resources import SHARED_MEMORY, Resources
from petctl.job.spec.shape import struct_from
from petctl.job.spec.volumes import Volume

WORDS = PodOptions.__struct_fields__
_QUEUES = ("kueue.x-k8s.io/queue-name", "scheduling.volcano.sh/queue-name")
_PLAIN = {
    "priority_class": "priorityClassName",
    "service_account": "serviceAccountName",
    "runtime_class": "runtimeClassName",
    "scheduler": "schedulerName",
    "node_selector": "nodeSelector",
    "tolerations": "tolerations",
    "affinity": "affinity",
}


def options_of(settings: Mapping[str, Any]) -> PodOptions:
    """What a cluster's settings say."""
    try:
        return struct_from(PodOptions, {name: settings[name] for name in WORDS if name in settings})
    except FieldError as error:
        raise UsageError("\n".join(f"clusters.{settings['name']}.{problem}" for problem in error.problems)) from None


def merged(weaker: PodOptions, stronger: PodOptions) -> PodOptions:
    """Both: mappings by their names, lists one behind the other, and of anything else what the stronger says."""
    found: dict[str, Any] = {}
    for name in WORDS:
        old, new = getattr(weaker, name), getattr(stronger, name)
        if isinstance(new, dict):
            found[name] = {**old, **new}
        elif isinstance(new, list):
            found[name] = [*(item for item in old if item not in new), *new]
        else:
            found[name] = old if new in (None, "") else new
    return PodOptions(**found)


def piece(options: PodOptions, needs: Resources, volumes: Sequence[Volume]) -> dict[str, Any]:
    """The piece of a pod template, without GPUs; of what was not said, nothing is in it."""
    container: dict[str, Any] = {"name": CONTAINER}
    spec: dict[str, Any] = {key: getattr(options, name) for name, key in _PLAIN.items() if getattr(options, name)}
    if options.host_network is not None:
        # A pod with its machine's network asks that machine's name servers, unless it is told to ask the cluster's.
        policy = "ClusterFirstWithHostNet" if options.host_network else "ClusterFirst"
        spec |= {"hostNetwork": options.host_network, "dnsPolicy": policy}
    for name, value in options.security_context.items():
        owner = container if name in OF_A_CONTAINER else spec
        owner.setdefault("securityContext", {})[name] = value
    resources = _resources(options, needs)
    if resources:
        container["resources"] = resources
    volumes = [*volumes, *([_shared_memory(needs.shm)] if needs.shm else [])]
    if volumes:
        spec["volumes"] = [{"name": _name(number), **_source(volume)} for number, volume in enumerate(volumes)]
        container["volumeMounts"] = [_mount(number, volume) for number, volume in enumerate(volumes)]
    if len(container) > 1:
        spec["containers"] = [container]
    metadata = {key: getattr(options, key) for key in ("labels", "annotations") if getattr(options, key)}
    return {**({"metadata": metadata} if metadata else {}), **({"spec": spec} if spec else {})}


def labelled(manifest: Mapping[str, Any], options: PodOptions) -> dict[str, Any]:
    """The object that makes the pods, with their labels: queues look at it, and not at each pod."""
    metadata = dict(manifest["metadata"])
    for key in ("labels", "annotations"):
        metadata[key] = {**getattr(options, key), **metadata.get(key, {})}
    return {**manifest, "metadata": metadata}


def queued(options: PodOptions) -> bool:
    """Do the nodes wait in somebody's queue before they start? Then waiting is no failure, however long."""
    return any(name in options.labels or name in options.annotations for name in _QUEUES)


def claims(volumes: Sequence[Volume], job_id: str) -> list[dict[str, Any]]:
    """The claims to make where there are none. One that is not to be kept bears the job's label."""
    return [_claim(volume, job_id) for volume in volumes if volume.kind == "claim" and volume.size]


def preparation(volumes: Sequence[Volume], agent: Sequence[str], line: str) -> str:
    """The shell line that makes a node ready: its volumes filled by the `agent`, then the job's own."""
    steps = [[*agent, "fill", volume.path, volume.prefetch] for volume in volumes if volume.prefetch]
    return "\n".join([*(f"{shlex.join(step)} || exit" for step in steps), *([line] if line else [])])


def _claim(volume: Volume, job_id: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [volume.access], "resources": {"requests": {"storage": volume.size}}}
    if volume.storage_class:
        spec["storageClassName"] = volume.storage_class
    metadata: dict[str, Any] = {"name": volume.source}
    if not volume.keep:
        metadata["labels"] = labels(job_id)
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _resources(options: PodOptions, needs: Resources) -> dict[str, dict[str, str]]:
    cpu = {"cpu": _thousandths(needs.cpu)} if needs.cpu else {}
    memory = {"memory": _bytes(needs.memory)} if needs.memory else {}
    found = {"requests": {**cpu, **memory, **options.requests}, "limits": {**memory, **options.limits}}
    return {name: amounts for name, amounts in found.items() if amounts}


def _thousandths(processors: float) -> str:
    """As Kubernetes writes them: 4, 500m."""
    amount = round(processors * 1000)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def _bytes(count: int) -> str:
    """As Kubernetes writes them: 16Gi."""
    return str(format_bytes(count)).removesuffix("B")


def _shared_memory(count: int) -> Volume:
    return Volume(kind="empty_dir", source=_bytes(count), path=SHARED_MEMORY, medium="Memory")


def _name(number: int) -> str:
    return f"volume-{number}"


def _mount(number: int, volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": _name(number), "mountPath": volume.path}
    if volume.read_only:
        mount["readOnly"] = True
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    return mount


def _source(volume: Volume) -> dict[str, Any]:
    source = volume.source
    if volume.kind == "claim":
        return {"persistentVolumeClaim": {"claimName": source}}
    if volume.kind == "csi":
        attributes = {"volumeAttributes": volume.attributes} if volume.attributes else {}
        return {"csi": {"driver": source, **attributes}}
    if volume.kind == "nfs":
        server, _, path = source.rpartition(":")
        return {"nfs": {"server": server, "path": path}}
    if volume.kind == "secret":
        return {"secret": {"secretName": source}}
    if volume.kind == "config_map":
        return {"configMap": {"name": source}}
    if volume.kind == "host_path":
        return {"hostPath": {"path": source}}
    limit, medium = {"sizeLimit": source} if source else {}, {"medium": volume.medium} if volume.medium else {}
    return {"emptyDir": {**limit, **medium}}
