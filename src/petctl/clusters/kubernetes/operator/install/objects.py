"""The operator's own objects, as plain data: what `petctl operator install` applies and the Helm chart yields. Pure.

    Namespace               where the operator lives; only in its own, and only for the whole cluster
    definition              the CustomResourceDefinition, and who may use it: whoever may edit or view a namespace
    ServiceAccount          who the operator is
    (Cluster)Role, binding  what it may do with jobs: exactly what apply.py, cache.py and coordinator_client.py do
    Lease, Role, binding    by which one of several leads
    ConfigMap               the operator itself, one file
    Deployment              two of it, in any image that has Python

An operator looks after the whole cluster, or after one namespace with rights in that one only. There is one operator
in a namespace: the names are always these.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import petctl
from petctl.clusters.kubernetes.elastic_jobs import GROUP
from petctl.clusters.kubernetes.operator.install.crd import PLURAL, crd

NAME = "petctl-operator"
NAMESPACE = "petctl-system"
IMAGE = "python:3.13-slim"
ARCHIVE = "petctl-operator.pyz"
UNPACKED = "/petctl/unpacked"
"""Where its pods unpack that."""
PORT = 8080
CHECKSUM = "petctl.dev/archive"
"""Annotation of the pods: they are made anew when the archive changes."""
MINE = {"app.kubernetes.io/name": NAME}
"""What finds the operator's own objects, and nothing of any job."""
USER = 65532  # anybody but root: images of Python run as root if nobody says otherwise

_RBAC = "rbac.authorization.k8s.io"

Object = dict[str, Any]


class InstallOptions(NamedTuple):
    """What can be chosen about an installation."""

    image: str = IMAGE
    namespace: str = NAMESPACE
    replicas: int = 2
    only_namespace: str = ""  # whose jobs; empty: all
    pull_secrets: Sequence[str] = ()


def objects(wishes: InstallOptions, archive: bytes) -> list[Object]:
    """All of them, in the order in which they have to be made; `archive` is the operator's."""
    return [*namespace(wishes), *definition(), *operator(wishes, archive)]


def namespace(wishes: InstallOptions) -> list[Object]:
    """The namespace, where it is the operator's alone."""
    if wishes.namespace == wishes.only_namespace:
        return []
    about = _metadata(wishes.namespace)
    about["labels"]["pod-security.kubernetes.io/enforce"] = "restricted"
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": about}]


def definition() -> list[Object]:
    """ElasticJobs, and who may use them. They belong to the cluster, whichever operators there are."""
    reading = ["get", "list", "watch"]
    writing = ["create", "update", "patch", "delete", "deletecollection"]
    kind = crd()
    kind["metadata"]["labels"] = labels()
    return [
        kind,
        _aggregated("editor", ["admin", "edit"], [*reading, *writing]),
        _aggregated("viewer", ["view"], reading),
    ]


def operator(wishes: InstallOptions, archive: bytes) -> list[Object]:
    """The operator itself: who it is, what it may do, its file and its pods."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(NAME, wishes.namespace)}
    data = {ARCHIVE: base64.b64encode(archive).decode()}
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(NAME, wishes.namespace),
        "binaryData": data,
    }
    jobs = _granted(
        rights_name(wishes), wishes.only_namespace, wishes.namespace, rules_for_jobs(bool(wishes.only_namespace))
    )
    rights = _granted(f"{NAME}-lease", wishes.namespace, wishes.namespace, rules_for_lease())
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": _metadata(NAME, wishes.namespace)}
    digest = hashlib.sha256(archive).hexdigest()
    return [account, *jobs, *rights, lease, config, _deployment(wishes, digest)]


def rights_name(wishes: InstallOptions) -> str:
    """The role for jobs, which may lie where another operator's lies too: each operator's has a name of its own.

    The plain name is for two that cannot meet: an operator's role in its own namespace, and the cluster-wide role of
    the operator in petctl-system.
    """
    return NAME if wishes.namespace == (wishes.only_namespace or NAMESPACE) else f"{NAME}.{wishes.namespace}"


def rules_for_jobs(in_one_namespace: bool) -> list[Object]:
    """What it does with jobs and what they own. Machines belong to no namespace."""
    rules = [
        _rule(GROUP, [PLURAL], ["get", "list", "watch", "delete"]),
        _rule(GROUP, [f"{PLURAL}/status"], ["patch"]),
        _rule(GROUP, [f"{PLURAL}/finalizers"], ["update"]),  # to be an owner, where that is guarded
        _rule("", ["pods"], ["get", "list", "watch", "create", "delete"]),
        _rule("", ["pods/portforward"], ["get", "create"]),  # how it speaks to coordinators
        _rule("", ["services"], ["get", "list", "watch", "create", "delete"]),
        _rule("policy", ["poddisruptionbudgets"], ["get", "list", "watch", "create", "patch", "delete"]),
        _rule("", ["secrets", "configmaps"], ["get", "create"]),
        _rule("", ["events"], ["create"]),
    ]
    return rules if in_one_namespace else [*rules, _rule("", ["nodes"], ["list", "watch"])]


def rules_for_lease() -> list[Object]:
    """What leader.py does. It is there from the beginning, so that whoever removes the rest removes it, too."""
    return [
        {**_rule("coordination.k8s.io", ["leases"], ["get", "patch"]), "resourceNames": [NAME]},
        _rule("coordination.k8s.io", ["leases"], ["create"]),
    ]


def labels() -> dict[str, str]:
    """Those of every object here."""
    return {**MINE, "app.kubernetes.io/part-of": "petctl", "app.kubernetes.io/version": petctl.__version__}


def _deployment(wishes: InstallOptions, digest: str) -> Object:
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": MINE},
    }
    pod = {
        "serviceAccountName": NAME,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(wishes)],
        "volumes": [{"name": "operator", "configMap": {"name": NAME}}, {"name": "unpacked", "emptyDir": {}}],
        "topologySpreadConstraints": [spread],
        **({"imagePullSecrets": [{"name": name} for name in wishes.pull_secrets]} if wishes.pull_secrets else {}),
    }
    about = {"labels": labels(), "annotations": {CHECKSUM: digest}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(NAME, wishes.namespace),
        "spec": {
            "replicas": wishes.replicas,
            "selector": {"matchLabels": MINE},
            "template": {"metadata": about, "spec": pod},
        },
    }


def _container(wishes: InstallOptions) -> Object:
    only = ["--namespace", wishes.only_namespace] if wishes.only_namespace else []
    # one file, and not the directory: it stays the same for as long as the pod lives, whatever becomes of the ConfigMap
    mount = {"name": "operator", "mountPath": f"/petctl/{ARCHIVE}", "subPath": ARCHIVE, "readOnly": True}
    return {
        "name": "operator",
        "image": wishes.image,
        "command": ["python3", f"/petctl/{ARCHIVE}", "--health-port", str(PORT), *only],
        "ports": [{"name": "health", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 20, "timeoutSeconds": 5},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "health"}, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [mount, {"name": "unpacked", "mountPath": UNPACKED}],
    }


def _granted(name: str, where: str, home: str, rules: list[Object]) -> list[Object]:
    """A role and who has it; `where` is empty for the whole cluster."""
    kind = "Role" if where else "ClusterRole"
    role = {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": _metadata(name, where), "rules": rules}
    binding = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": _metadata(name, where),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": home}],
    }
    return [role, binding]


def _aggregated(who: str, into: Sequence[str], verbs: list[str]) -> Object:
    """A role that becomes part of those that Kubernetes brings along."""
    about = _metadata(f"petctl-{PLURAL}-{who}")
    about["labels"] |= {f"{_RBAC}/aggregate-to-{name}": "true" for name in into}
    rules = [_rule(GROUP, [PLURAL, f"{PLURAL}/scale"], verbs), _rule(GROUP, [f"{PLURAL}/status"], ["get"])]
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": about, "rules": rules}


def _rule(group: str, resources: list[str], verbs: list[str]) -> Object:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _metadata(name: str, where: str = "") -> Object:
    return {"name": name, **({"namespace": where} if where else {}), "labels": labels()}
