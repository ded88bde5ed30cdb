"""What a job, or a cluster's settings, say about pods: options of the kind kubernetes.

    options:
      kubernetes:
        node_selector: {pool: a100}
        limits: {example.org/link: 1}

Only words, checked; what they become in a pod template is said in `petctl.clusters.kubernetes.pods.pod_options`.
Tolerations, affinity and security context are Kubernetes' own, as it reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Optional

from msgspec import field

from petctl.job.spec import values
from petctl.job.spec.options import Options
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field, wrong
from petctl.job.spec.quantities import parse_duration
from petctl.job.spec.shape import convert_fields

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


class PodOptions(Options, frozen=True):
    """What a node's pod is to be like; what is empty is left to the cluster."""

    unset: ClassVar[str] = "the cluster's"

    pull_secrets: Annotated[list[str], "Secrets with which the image is pulled."] = field(default_factory=list)
    requests: Annotated[dict[str, str], "More requests: {ephemeral-storage: 20Gi}."] = field(default_factory=dict)
    limits: Annotated[dict[str, str], "More limits: {example.org/link: 1}."] = field(default_factory=dict)
    gpu_resource: Annotated[str, "The resource that --gpus asks for: amd.com/gpu."] = ""
    node_selector: Annotated[dict[str, str], "Labels that a machine must have: {pool: a100}."] = field(
        default_factory=dict
    )
    tolerations: Annotated[list[dict[str, Any]], "Tolerations, as in a pod."] = field(default_factory=list)
    affinity: Annotated[dict[str, Any], "Affinity, as in a pod."] = field(default_factory=dict)
    priority_class: Annotated[str, "Priority class of the pods."] = ""
    service_account: Annotated[str, "Service account of the pods."] = ""
    runtime_class: Annotated[str, "Container runtime of the pods."] = ""
    scheduler: Annotated[str, "Scheduler of the pods."] = ""
    host_network: Annotated[Optional[bool], "Use the network of the machine."] = None
    security_context: Annotated[dict[str, Any], "Security context, as in a pod and in a container."] = field(
        default_factory=dict
    )
    labels: Annotated[dict[str, str], "Labels of the pods, and of what makes them."] = field(default_factory=dict)
    annotations: Annotated[dict[str, str], "Annotations of the same."] = field(default_factory=dict)
    coordinator: Annotated[dict[str, Any], "Part of a pod template for the coordinator's pod."] = field(
        default_factory=dict
    )
    ttl_after_finished: Annotated[Optional[float], "Time from the job's end until it is deleted: 7d."] = None
    agent_image: Annotated[str, "Image with a Python for the agent, where the job's image has none."] = ""

    def __post_init__(self) -> None:
        problems = convert_fields(self, {name: _CONVERTERS[name] for name in self.__struct_fields__})
        if problems:
            raise FieldError(problems)


class KubernetesOptions(PodOptions, frozen=True):
    """What a job says to clusters of this kind; a cluster's settings have a `pod` of their own beside it."""

    pod: Annotated[dict[str, Any], "Part of a pod template, merged into that of the nodes."] = field(
        default_factory=dict
    )


def quantity(value: object) -> str:
    """An amount as Kubernetes writes it."""
    text = values.text(value)
    if not _QUANTITY.fullmatch(text):
        raise wrong(f"expected an amount such as 4, 500m or 16Gi, got {shown(value)}")
    return text


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


_CONVERTERS: dict[str, Callable[[object], object]] = {
    "pull_secrets": values.words,
    "requests": values.text_mapping(_KEYS, quantity),
    "limits": values.text_mapping(_KEYS, quantity),
    "gpu_resource": values.single_line,
    "node_selector": values.text_mapping(_KEYS, _label_value),
    "tolerations": values.mappings,
    "affinity": values.mapping,
    "priority_class": values.single_line,
    "service_account": values.single_line,
    "runtime_class": values.single_line,
    "scheduler": values.single_line,
    "host_network": values.optional(values.truth),
    "security_context": _security_context,
    "labels": _labels,
    "annotations": _annotations,
    "coordinator": values.mapping,
    "ttl_after_finished": values.optional(parse_duration),
    "agent_image": values.single_line,
    "pod": values.mapping,
}
OPTIONS = KubernetesOptions
