"""What a job, or a cluster's settings, say about pods: the words of `kubernetes:` in a job file.

    kubernetes:
      shm_size: 8GiB
      node_selector: {pool: a100}
      volumes: [{claim: data, path: /data, read_only: true}]

Only words, checked; what they become in a pod template is said in `petctl.clusters.kubernetes.pods.pod_options`.
Tolerations, affinity and security context are Kubernetes' own, as it reads them.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import field

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field, wrong
from petctl.job.spec.quantities import parse_duration
from petctl.job.spec.shape import convert_fields
from petctl.job.spec.volumes import Volume, byte_quantity, volumes

_QUANTITY = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}", re.ASCII)
_VALUE = re.compile(rf"(?:{_NAME})?", re.ASCII)
_OWN = "petctl.dev/"
_KEYS = values.Names(_KEY, "Kubernetes allows names such as pool or example.org/pool here")
OF_A_CONTAINER = ("allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem")
"""Fields of a security context that a container has and a pod does not."""
OF_A_POD = (
    *("appArmorProfile", "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions"),
    *("seccompProfile", "supplementalGroups", "supplementalGroupsPolicy", "sysctls", "windowsOptions"),
)


class PodOptions(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """What a node's pod is to be like; what is empty is left to the cluster."""

    pull_secrets: list[str] = field(default_factory=list)
    cpu: str = ""  # what the scheduler sets aside
    memory: str = ""  # what it sets aside, and the most that a pod may use
    resources: dict[str, dict[str, str]] = field(default_factory=dict)  # requests and limits, of any resource
    gpu_resource: str = ""  # what the cluster calls the job's `gpus`
    shm_size: str = ""  # of /dev/shm
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[dict[str, Any]] = field(default_factory=list)
    affinity: dict[str, Any] = field(default_factory=dict)
    priority_class: str = ""
    service_account: str = ""
    runtime_class: str = ""
    scheduler: str = ""
    host_network: bool | None = None
    security_context: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)  # of the pods and of whatever makes them
    annotations: dict[str, str] = field(default_factory=dict)
    volumes: list[Volume] = field(default_factory=list)
    coordinator: dict[str, Any] = field(default_factory=dict)  # a piece of a pod template for the coordinator's pod
    ttl_after_finished: float | None = None  # seconds after its end until the job is deleted; None: never
    agent_image: str = ""  # has a Python for the agent, where the job's image has none

    def __post_init__(self) -> None:
        problems = convert_fields(self, _POD_OPTIONS)
        if not problems and self.shm_size and any(volume.path == "/dev/shm" for volume in self.volumes):
            problems = [Problem(("shm_size",), "there is a volume at /dev/shm already; keep one of them")]
        if problems:
            raise FieldError(problems)


def quantity(value: object) -> str:
    """An amount as Kubernetes writes it."""
    text = values.text(value)
    if not _QUANTITY.fullmatch(text):
        raise wrong(f"expected an amount such as 4, 500m or 16Gi, got {shown(value)}")
    return text


def _cpu(value: object) -> str:
    return quantity(value) if value != "" else ""


def _resources(value: object) -> dict[str, dict[str, str]]:
    sections = values.mapping(value)
    problems = [unknown_field(name, ("limits", "requests")) for name in sections if name not in ("limits", "requests")]
    found = {}
    for name in ("requests", "limits"):
        if sections.get(name) is not None:
            try:
                found[name] = values.text_mapping(_KEYS, quantity)(sections[name])
            except FieldError as error:
                problems += [problem.under(name) for problem in error.problems]
    if problems:
        raise FieldError(problems)
    return found


def _label_value(value: object) -> str:
    text = values.text(value)
    if not _VALUE.fullmatch(text):
        raise wrong(f"a label's value has at most 63 letters, digits, '-', '_' and '.', got {shown(text)}")
    return text


def _not_ours(found: dict[str, str]) -> dict[str, str]:
    taken = [
        Problem((name,), "reserved by petctl; choose another name", True) for name in found if name.startswith(_OWN)
    ]
    if taken:
        raise FieldError(taken)
    return found


def _labels(value: object) -> dict[str, str]:
    return _not_ours(values.text_mapping(_KEYS, _label_value)(value))


def _annotations(value: object) -> dict[str, str]:
    return _not_ours(values.text_mapping(_KEYS, values.text)(value))


def _security_context(value: object) -> dict[str, Any]:
    found, known = values.mapping(value), (*OF_A_POD, *OF_A_CONTAINER)
    problems = [unknown_field(name, known) for name in found if name not in known]
    if problems:
        raise FieldError(problems)
    return found


_POD_OPTIONS = {
    "pull_secrets": values.words,
    "cpu": _cpu,
    "memory": byte_quantity,
    "resources": _resources,
    "gpu_resource": values.single_line,
    "shm_size": byte_quantity,
    "node_selector": values.text_mapping(_KEYS, _label_value),
    "tolerations": values.mappings,
    "affinity": values.mapping,
    "priority_class": values.single_line,
    "service_account": values.single_line,
    "runtime_class": values.single_line,
    "scheduler": values.single_line,
    "host_network": lambda value: None if value is None else values.truth(value),
    "security_context": _security_context,
    "labels": _labels,
    "annotations": _annotations,
    "volumes": volumes,
    "coordinator": values.mapping,
    "ttl_after_finished": lambda value: None if value is None else parse_duration(value),
    "agent_image": values.single_line,
}
