"""The pod template's part of the ElasticJob's schema. Data only.

Rules look at the first container; all else is taken as it comes, and Kubernetes judges it when a pod is made. The names
of fields are listed nevertheless: of two templates the server compares only fields that it knows by name, and would not
see that one it does not know has taken another's place.
"""

from __future__ import annotations

from petctl.clusters.kubernetes.names import CONTAINER
from petctl.clusters.kubernetes.operator.install.schema import FIXED, KEPT, Schema, constant, mapping, rule, text

MOST = 64  # containers: rules over them need a bound, or the server finds them too costly
OF_PODS = """
    activeDeadlineSeconds affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks
    ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride imagePullSecrets
    initContainers nodeName nodeSelector os overhead preemptionPolicy priority priorityClassName readinessGates
    resourceClaims resources runtimeClassName schedulerName schedulingGates schedulingGroup securityContext
    serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds
    tolerations topologySpreadConstraints volumes
"""
OF_CONTAINERS = """
    env envFrom imagePullPolicy lifecycle livenessProbe ports readinessProbe resizePolicy resources restartPolicy
    restartPolicyRules securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty
    volumeDevices volumeMounts workingDir
"""


def template() -> Schema:
    """Typed as far as rules look into it."""
    name = {**text("Its name, unlike that of the others."), "minLength": 1, "maxLength": 63}
    words = {"type": "array", "items": {"type": "string"}}
    container = {
        "name": name,
        "image": {
            **text("The image. That of the first container has Python and the job's code."),
            "minLength": 1,
        },
        "command": {
            **words,
            "description": "The program and its arguments. In the first container it is required: what every "
            "worker runs.",
        },
        "args": {**words, "description": "More arguments, put after the command."},
        **_taken(OF_CONTAINERS),
    }
    containers = {
        "description": "The first one runs the job: petctl's agent takes its place and starts its command as often as "
        "procsPerNode says. The others run beside it, as written.",
        "type": "array",
        "minItems": 1,
        "maxItems": MOST,
        "items": {**mapping("A container, as in any pod.", container, ["name"]), **KEPT},
    }
    restarts = text("Not to be given here: a node is replaced by the operator, never restarted in place.")
    fields = {"containers": containers, "restartPolicy": restarts, **_taken(OF_PODS)}
    pod = mapping("The pod's specification.", fields, ["containers"])
    pod |= {**KEPT, "x-kubernetes-validations": _first_container()}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    metadata = mapping(
        "Labels and annotations of the nodes' pods, beside petctl's own.", {"labels": texts, "annotations": texts}
    )
    return {
        **mapping(
            "The pod of a node. Everything that a pod can have may be in it, except a restartPolicy. " + FIXED,
            {"metadata": {**metadata, **KEPT}, "spec": pod},
            ["spec"],
        ),
        **constant("template"),
    }


def _taken(names: str) -> dict[str, Schema]:
    return {name: {"description": "As in any pod.", **KEPT} for name in names.split()}


def _first_container() -> list[Schema]:
    first = "self.containers[0]"
    return [
        rule(
            f"has({first}.image)", "the first container runs the job: give its image, one that has the job's code in it"
        ),
        rule(
            f"has({first}.command) && size({first}.command) > 0",
            "the first container runs the job: give its command, also where the image has one of its own",
        ),
        rule(
            "!has(self.restartPolicy)",
            "leave restartPolicy of the pod out: the operator replaces nodes; restartPolicy beside the template says "
            "from which failures the job is restarted",
        ),
        rule(
            "self.containers.all(one, self.containers.exists_one(other, other.name == one.name))",
            "two containers have the same name: give each its own",
        ),
        rule(
            f"{first}.name == '{CONTAINER}' || !self.containers.exists(one, one.name == '{CONTAINER}')",
            f"a container beside the first is called {CONTAINER}: give it another name; the first one will have that",
        ),
    ]
