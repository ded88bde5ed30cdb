"""Puts the operator into a cluster, and takes it out again. Which objects that are is `objects.py`'s to say.

Installing again is how it is upgraded: objects are applied, so what is right already stays as it is. Whoever installs
is told whether the operator leads then, or what keeps it from that. Only what was made here is ever taken away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from petctl.clusters.kubernetes.job_status import why_blocked
from petctl.clusters.kubernetes.operator.install.crd import NAME as DEFINITION
from petctl.clusters.kubernetes.operator.install.crd import PLURAL
from petctl.clusters.kubernetes.operator.install.objects import (
    CHECKSUM,
    MINE,
    NAME,
    InstallOptions,
    Object,
    definition,
    namespace,
    objects,
    operator,
)
from petctl.errors import UsageError
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import Forbidden, Gone, KubernetesError, NoSuchObject

ESTABLISHED_WITHIN = 60.0  # seconds
GONE_WITHIN = 60.0
LOOK_AGAIN = 1.0  # seconds: a Lease that is taken is no change of a pod
_HELM = "meta.helm.sh/release-name"
_SELECTOR = ",".join(f"{name}={value}" for name, value in MINE.items())

Tell = Callable[[str], None]


def install(api: Api, wishes: InstallOptions, archive: bytes, tell: Tell, timeout: float = 120.0) -> str:
    """Applies everything and waits until the operator leads; a sentence about that. `tell` hears what it waits for."""
    with _for_administrators("install"):
        _check(api, wishes)
        for manifest in objects(wishes, archive):
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            if kind == "Namespace" and _is_anothers(api, name):
                continue
            tell(f"{kind} {name}")
            applied = api.apply(_path(manifest), manifest)
            if kind == "CustomResourceDefinition":
                _await_established(api)
    if not timeout:
        return f"the operator's objects are in {wishes.namespace}; did not wait for a leader"
    return _await_leader(api, wishes, applied, tell, timeout)


def uninstall(api: Api, wishes: InstallOptions, with_jobs: bool, tell: Tell) -> list[str]:
    """Takes it away, and says what was there: not the definition and the jobs, unless `with_jobs`."""
    with _for_administrators("uninstall"):
        _check(api, wishes, removing=True)
        removed = [job for job in jobs(api, wishes) if _remove(api, job, tell)] if with_jobs else []
        # its pods first: they give the Lease back, and need their rights for that
        removed += [thing for thing in reversed(operator(wishes, b"")) if _remove(api, thing, tell)]
        if with_jobs and not wishes.only_namespace:
            removed += [thing for thing in reversed(definition()) if _remove(api, thing, tell)]
        if not _is_anothers(api, wishes.namespace):
            removed += [space for space in namespace(wishes) if _remove(api, space, tell)]
    return [f"{thing['kind']} {thing['metadata']['name']}" for thing in removed]


def jobs(api: Api, wishes: InstallOptions) -> list[Object]:
    """The ElasticJobs that such an operator looks after."""
    with suppress(NoSuchObject):  # nobody here knows them
        found = api.list(path(PLURAL, wishes.only_namespace))
        return [{"kind": "ElasticJob", "metadata": job["metadata"]} for job in found]
    return []


@contextmanager
def _for_administrators(what: str) -> Iterator[None]:
    """Who lacks a right is told who has it."""
    try:
        yield
    except Forbidden as error:
        raise Forbidden(
            f"{error.status.get('message') or error}; ask an administrator to {what} the operator"
        ) from None


def _check(api: Api, wishes: InstallOptions, removing: bool = False) -> None:
    """Refuses what would have two operators look after the same jobs, or would take away a part of another one."""
    there = api.list(path("deployments"), _SELECTOR)
    for found in sorted(there, key=lambda found: bool(found["metadata"]["namespace"] != wishes.namespace)):
        about = found["metadata"]
        one = wishes._replace(namespace=about["namespace"], only_namespace=_only(found))
        if one.namespace == wishes.namespace:
            _leave_to_helm(about)
            clashes = one != wishes
        elif removing:
            clashes = not one.only_namespace and not wishes.only_namespace  # what is the cluster's has the same names
        else:
            clashes = one.only_namespace == wishes.only_namespace or not (one.only_namespace and wishes.only_namespace)
        if clashes:
            whose = f"of the namespace {one.only_namespace}" if one.only_namespace else "of the whole cluster"
            raise UsageError(
                f"an operator in {one.namespace} already manages the jobs {whose}; remove it with: "
                f"petctl operator uninstall {_words(one)}"
            )


def _leave_to_helm(about: Mapping[str, Any]) -> None:
    release = (about.get("annotations") or {}).get(_HELM)
    if release:
        raise UsageError(f"Helm has installed this operator; use helm upgrade {release} or helm uninstall {release}")


def _only(deployment: Object) -> str:
    """The one namespace whose jobs it looks after; empty: all."""
    words = deployment["spec"]["template"]["spec"]["containers"][0].get("command") or []
    return str(words[words.index("--namespace") + 1]) if "--namespace" in words else ""


def _words(wishes: InstallOptions) -> str:
    """The options that mean this operator."""
    only = f" --only-namespace {wishes.only_namespace}" if wishes.only_namespace else ""
    return f"--namespace {wishes.namespace}{only}"


def _is_anothers(api: Api, name: str) -> bool:
    """Whether that namespace is there and was not made for an operator."""
    with suppress(NoSuchObject):
        found = api.get(path("namespaces", name=name))["metadata"].get("labels") or {}
        return not MINE.items() <= found.items()
    return False


# -- waiting -----------------------------------------------------------------------------------------------------------


def _await_established(api: Api) -> None:
    for _ in _news(api, path("customresourcedefinitions"), ESTABLISHED_WITHIN):
        found = api.get(path("customresourcedefinitions", name=DEFINITION))
        conditions = found.get("status", {}).get("conditions") or ()
        if any(entry["type"] == "Established" and entry["status"] == "True" for entry in conditions):
            return
    raise KubernetesError(f"the server does not accept {DEFINITION}; see: kubectl describe crd {DEFINITION}")


def _await_leader(api: Api, wishes: InstallOptions, deployment: Object, tell: Tell, timeout: float) -> str:
    home, reason = wishes.namespace, ""
    for pods in _news(api, path("pods", home), timeout):
        fresh = [pod for pod in pods if _is_fresh(pod, deployment)]
        holder = _holder(api, home)
        for pod in fresh:
            if f"{holder}-".startswith(f"{pod['metadata']['name']}-"):
                return f"the operator is the leader: {pod['metadata']['name']} in {home}"
        reason = _why(api, deployment, fresh)
        tell(f"waiting: {reason}")
    raise KubernetesError(
        f"no operator became leader within {timeout:g} s: {reason}. Its objects stay; "
        f"correct that and install it again, or: petctl operator uninstall {_words(wishes)}"
    )


def _news(api: Api, where: str, timeout: float) -> Iterator[Items]:
    """What is there now, and again whenever something of it has changed, until the time is over."""
    deadline = time.monotonic() + timeout
    while True:
        found = api.list(where, _SELECTOR)
        yield found
        if time.monotonic() >= deadline:
            return
        with suppress(Gone):
            for kind, _ in api.watch(where, _SELECTOR, found.version, LOOK_AGAIN):
                if kind != "BOOKMARK":
                    break


def _is_fresh(pod: Object, deployment: Object) -> bool:
    """Is it of this version, and not about to go?"""
    wanted, ours = deployment["spec"]["template"], pod["spec"]["containers"][0]
    asked = wanted["spec"]["containers"][0]
    same = all(ours.get(field) == asked.get(field) for field in ("image", "command"))
    about = pod["metadata"]
    digest = (about.get("annotations") or {}).get(CHECKSUM)
    return same and digest == wanted["metadata"]["annotations"][CHECKSUM] and not about.get("deletionTimestamp")


def _holder(api: Api, home: str) -> str:
    with suppress(NoSuchObject):
        return str(api.get(path("leases", home, NAME))["spec"].get("holderIdentity") or "")
    return ""


def _why(api: Api, deployment: Object, pods: list[Object]) -> str:
    """What the operator waits for, or what is wrong, in plain words."""
    if not pods:
        found = api.get(path("deployments", deployment["metadata"]["namespace"], NAME))
        for condition in found.get("status", {}).get("conditions") or ():
            if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
                return f"its pods are refused: {condition.get('message')}"
        return "its pods are being created"
    for pod in pods:
        name = str(pod["metadata"]["name"])
        states = pod.get("status", {}).get("containerStatuses") or ()
        if any(state.get("restartCount") or "terminated" in state.get("state", {}) for state in states):
            return f"{name} has ended: {_last_words(api, pod)}"
        blocked = why_blocked(pod, name)
        if blocked:
            return blocked
    if any(pod.get("status", {}).get("phase") == "Running" for pod in pods):
        return "it has started but is not the leader yet"
    return f"{pods[0]['metadata']['name']} is starting"


def _last_words(api: Api, pod: Object) -> str:
    about, text = pod["metadata"], b""
    with suppress(KubernetesError):
        text = b"".join(api.log(about["namespace"], about["name"], tail=3))
    lines = text.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it printed nothing"


# -- taking away -------------------------------------------------------------------------------------------------------


def _remove(api: Api, thing: Mapping[str, Any], tell: Tell) -> bool:
    """Whether it was there. Where that takes a while, it is waited for: what comes next needs it gone."""
    about, kind = thing["metadata"], thing["kind"]
    try:
        api.delete(_path(thing), "Foreground" if kind == "Deployment" else "Background")
    except NoSuchObject:
        return False
    tell(f"removed {kind} {about['name']}")
    if kind not in ("Deployment", "CustomResourceDefinition", "Namespace"):
        return True
    for left in _news(api, _path({**thing, "metadata": {**about, "name": ""}}), GONE_WITHIN):
        if about["name"] not in [one["metadata"]["name"] for one in left]:
            return True
    raise KubernetesError(
        f"{kind} {about['name']} still exists after {GONE_WITHIN:g} s; see what keeps it, and try again later"
    )


def _path(thing: Mapping[str, Any]) -> str:
    about = thing["metadata"]
    return path(f"{thing['kind'].lower()}s", about.get("namespace") or "", about["name"])
