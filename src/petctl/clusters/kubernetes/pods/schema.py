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
from typing import Annotated, Any, ClassVar, Optional

from petctl.job.spec import values
from petctl.job.spec.options import Options
from petctl.job.spec.problems import Problem, Problems, unknown_field
from petctl.job.spec.quantities import parse_duration
from petctl.job.spec.shape import Form

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:[a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?/)?{_NAME}", re.ASCII)
_label_value = values.of_form(rf"(?:{_NAME})?", "a label's value has at most 63 letters, digits, '-', '_' and '.'")
_OWN = "petctl.dev/"
_KEYS = values.Names(_KEY, "Kubernetes allows names such as pool or example.org/pool here")
OF_A_CONTAINER = ("allowPrivilegeEscalation", "capabilities", "privileged", "procMount", "readOnlyRootFilesystem")
"""Fields of a security context that a container has and a pod does not."""
OF_A_POD = (
    *("appArmorProfile", "fsGroup", "fsGroupChangePolicy", "runAsGroup", "runAsNonRoot", "runAsUser", "seLinuxOptions"),
    *("seccompProfile", "supplementalGroups", "supplementalGroupsPolicy", "sysctls", "windowsOptions"),
)

quantity = values.of_form(
    r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?", "expected an amount such as 4, 500m or 16Gi"
)
"""An amount as Kubernetes writes it."""


def _not_ours(found: dict[str, str]) -> dict[str, str]:
    taken = [name for name in found if name.startswith(_OWN)]
    Problems(Problem((name,), "reserved by petctl; choose another name", True) for name in taken).check()
    return found


def _labels(value: object) -> dict[str, str]:
    return _not_ours(values.text_mapping(_KEYS, _label_value)(value))


def _annotations(value: object) -> dict[str, str]:
    return _not_ours(values.text_mapping(_KEYS, values.text)(value))


def _security_context(value: object) -> dict[str, Any]:
    found, known = values.mapping(value), (*OF_A_POD, *OF_A_CONTAINER)
    Problems(unknown_field(name, known) for name in found if name not in known).check()
    return found


Line = Annotated[str, Form(values.single_line)]
Selector = Annotated[dict[str, str], Form(values.text_mapping(_KEYS, _label_value))]
Labels = Annotated[dict[str, str], Form(_labels)]
Annotations = Annotated[dict[str, str], Form(_annotations)]
Amounts = Annotated[dict[str, str], Form(values.text_mapping(_KEYS, quantity))]
SecurityContext = Annotated[dict[str, Any], Form(_security_context)]
Mappings = Annotated[list[dict[str, Any]], Form(values.mappings)]
Truth = Annotated[Optional[bool], Form(values.optional(values.truth))]
Seconds = Annotated[Optional[float], Form(values.optional(parse_duration))]


class PodOptions(Options, frozen=True):
    """What a node's pod is to be like; what is empty is left to the cluster."""

    unset: ClassVar[str] = "the cluster's"

    pull_secrets: Annotated[list[str], "Secrets with which the image is pulled."] = []
    requests: Annotated[Amounts, "More requests: {ephemeral-storage: 20Gi}."] = {}
    limits: Annotated[Amounts, "More limits: {example.org/link: 1}."] = {}
    gpu_resource: Annotated[Line, "The resource that --gpus asks for: amd.com/gpu."] = ""
    node_selector: Annotated[Selector, "Labels that a machine must have: {pool: a100}."] = {}
    tolerations: Annotated[Mappings, "Tolerations, as in a pod."] = []
    affinity: Annotated[dict[str, Any], "Affinity, as in a pod."] = {}
    priority_class: Annotated[Line, "Priority class of the pods."] = ""
    service_account: Annotated[Line, "Service account of the pods."] = ""
    runtime_class: Annotated[Line, "Container runtime of the pods."] = ""
    scheduler: Annotated[Line, "Scheduler of the pods."] = ""
    host_network: Annotated[Truth, "Use the network of the machine."] = None
    security_context: Annotated[SecurityContext, "Security context, as in a pod and in a container."] = {}
    labels: Annotated[Labels, "Labels of the pods, and of what makes them."] = {}
    annotations: Annotated[Annotations, "Annotations of the same."] = {}
    coordinator: Annotated[dict[str, Any], "Part of a pod template for the coordinator's pod."] = {}
    ttl_after_finished: Annotated[Seconds, "Time from the job's end until it is deleted: 7d."] = None
    agent_image: Annotated[Line, "Image with a Python for the agent, where the job's image has none."] = ""


class KubernetesOptions(PodOptions, frozen=True):
    """What a job says to clusters of this kind; a cluster's settings have a `pod` of their own beside it."""

    pod: Annotated[dict[str, Any], "Part of a pod template, merged into that of the nodes."] = {}


OPTIONS = KubernetesOptions
