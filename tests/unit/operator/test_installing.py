"""Putting the operator into a cluster that is only a mapping: what is refused, what is left alone, what is said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import pytest

from petctl.clusters.kubernetes.operator.install.installer import install, uninstall
from petctl.clusters.kubernetes.operator.install.objects import NAME, InstallOptions, objects
from petctl.errors import UsageError
from petctl.kube.api import Api, Items
from petctl.kube.failures import Forbidden, KubernetesError, NoSuchObject

HOME = "/api/v1/namespaces/petctl-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/petctl-system/deployments/{NAME}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/petctl-system/leases/{NAME}"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticjobs.petctl.dev"


class Shelf:
    """Objects by their paths, in place of a server. A Deployment brings `pods` along, the Lease their first one."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.pods = pods
        self.forbidden = ""
        self.printed = b""

    def get(self, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise NoSuchObject(f"{path} not found")
        return self.objects[path]

    def list(self, path: str, selector: str = "") -> Items:
        if path.endswith("/pods"):
            return Items(self._made(pod) for pod in self.pods)
        places = {where: where.rpartition("/")[0] for where in self.objects}
        if "/namespaces/" not in path:
            places = {where: re.sub("/namespaces/[^/]+", "", place) for where, place in places.items()}
        return Items(self.objects[where] for where, place in places.items() if place == path.rstrip("/"))

    def _made(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        template = self.objects[DEPLOYMENT]["spec"]["template"]
        about = {"name": pod["name"], "namespace": "petctl-system", **template["metadata"]}
        return {"metadata": about, "spec": template["spec"], "status": pod["status"]}

    def apply(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        if self.forbidden and self.forbidden in path:
            raise Forbidden("the user may not", {"message": f"cannot patch {self.forbidden}"})
        self.objects[path] = {**self.objects.get(path, {}), **body}
        if path == DEFINITION:
            self.objects[path]["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
        if path == LEASE:
            running = [pod["name"] for pod in self.pods if pod["status"]["phase"] == "Running"]
            self.objects[path]["spec"] = {"holderIdentity": f"{running[0]}-1a2b" if running else ""}
        return self.objects[path]

    def delete(self, path: str, propagation: str) -> dict[str, Any]:
        self.get(path)
        return self.objects.pop(path)

    def watch(self, *_: object) -> Iterator[tuple[str, dict[str, Any]]]:
        return iter(())

    def log(self, *_: object, **__: object) -> Iterator[bytes]:
        return iter([self.printed])

    @property
    def api(self) -> Api:
        return cast(Api, self)


RUNNING = {"name": "petctl-operator-a", "status": {"phase": "Running"}}


def test_it_is_installed_twice_and_goes_as_a_whole() -> None:
    shelf, told = Shelf(RUNNING), list[str]()
    for _ in range(2):
        sentence = install(shelf.api, InstallOptions(), b"1", told.append)
        assert sentence == "the operator is the leader: petctl-operator-a in petctl-system"
    assert len(shelf.objects) == len(objects(InstallOptions(), b"1"))
    removed = uninstall(shelf.api, InstallOptions(), False, told.append)
    assert removed[0] == f"Deployment {NAME}" and removed[-1] == "Namespace petctl-system"
    assert {path.rpartition("/")[2] for path in shelf.objects} == {
        "elasticjobs.petctl.dev",
        "petctl-elasticjobs-editor",
        "petctl-elasticjobs-viewer",
    }
    assert uninstall(shelf.api, InstallOptions(), False, told.append) == []


def test_with_its_jobs_nothing_is_left() -> None:
    shelf = Shelf(RUNNING)
    install(shelf.api, InstallOptions(only_namespace="team"), b"1", print)
    job = {"metadata": {"name": "mnist", "namespace": "team"}}
    jobs = "/apis/petctl.dev/v1/namespaces/team/elasticjobs"
    shelf.objects[f"{jobs}/mnist"] = job
    assert uninstall(shelf.api, InstallOptions(only_namespace="team"), True, print)[0] == "ElasticJob mnist"
    assert DEFINITION in shelf.objects, "that is the whole cluster's"
    uninstall(shelf.api, InstallOptions(), True, print)
    assert shelf.objects == {}


def test_a_namespace_that_was_there_is_neither_changed_nor_removed() -> None:
    shelf = Shelf(RUNNING)
    shelf.objects[HOME] = before = {"metadata": {"name": "petctl-system", "labels": {"whose": "another's"}}}
    install(shelf.api, InstallOptions(), b"1", print)
    assert shelf.objects[HOME] == before
    assert "Namespace petctl-system" not in uninstall(shelf.api, InstallOptions(), True, print)
    assert list(shelf.objects) == [HOME]


ALL, HERE, THERE = (
    InstallOptions(),
    InstallOptions(namespace="here", only_namespace="here"),
    InstallOptions("python", "tools", 1, "there"),
)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (ALL, InstallOptions(namespace="other"), "in petctl-system already manages the jobs of the whole cluster"),
        (ALL, HERE, "remove it with: petctl operator uninstall --namespace petctl-system$"),
        (HERE, ALL, "remove it with: petctl operator uninstall --namespace here --only-namespace here$"),
        (
            ALL,
            InstallOptions(only_namespace="there"),
            "in petctl-system already manages the jobs of the whole cluster",
        ),
        (THERE, InstallOptions(namespace="tools"), "in tools already manages the jobs of the namespace there"),
        (
            THERE,
            InstallOptions(namespace="there", only_namespace="there"),
            "in tools already manages the jobs of the",
        ),
        (HERE, THERE, ""),
        (ALL, ALL, ""),
    ],
)
def test_no_two_operators_look_after_the_same_jobs(first: InstallOptions, second: InstallOptions, said: str) -> None:
    shelf = Shelf()
    install(shelf.api, first, b"1", print, timeout=0)
    before = dict(shelf.objects)
    if not said:
        install(shelf.api, second, b"1", print, timeout=0)
        return
    with pytest.raises(UsageError, match=said):
        install(shelf.api, second, b"1", print, timeout=0)
    assert shelf.objects == before


def test_what_is_another_operators_is_not_removed() -> None:
    shelf = Shelf()
    install(shelf.api, ALL, b"1", print, timeout=0)
    before = dict(shelf.objects)
    for wishes in (InstallOptions(namespace="other"), InstallOptions(only_namespace="there")):
        with pytest.raises(UsageError, match="an operator in petctl-system"):
            uninstall(shelf.api, wishes, True, print)
    assert uninstall(shelf.api, HERE, True, print) == []
    assert shelf.objects == before


def test_what_helm_has_installed_is_left_to_helm() -> None:
    shelf = Shelf(RUNNING)
    install(shelf.api, InstallOptions(), b"1", print)
    about = shelf.objects[DEPLOYMENT]["metadata"]
    shelf.objects[DEPLOYMENT]["metadata"] = {**about, "annotations": {"meta.helm.sh/release-name": "petctl"}}
    before = dict(shelf.objects)
    with pytest.raises(UsageError, match="helm upgrade petctl or helm uninstall petctl"):
        install(shelf.api, InstallOptions(), b"1", print)
    with pytest.raises(UsageError, match="helm uninstall petctl"):
        uninstall(shelf.api, InstallOptions(), True, print)
    assert shelf.objects == before


def test_who_lacks_a_right_is_told_who_has_it() -> None:
    shelf = Shelf()
    shelf.forbidden = "clusterroles"
    with pytest.raises(Forbidden, match="cannot patch clusterroles; ask an administrator to install the operator"):
        install(shelf.api, InstallOptions(), b"1", print)


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"image": "python", "state": {"waiting": {"reason": reason, "message": message}}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"phase": "Pending"}, "petctl-operator-a is starting"),
        (
            {"phase": "Pending", "containerStatuses": [waiting("ErrImagePull", "no such")]},
            "the image python is not available",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}],
            },
            "no machine of the cluster can take petctl-operator-a: 0/2 nodes are available",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{**waiting("CrashLoopBackOff"), "restartCount": 2}]},
            "petctl-operator-a has ended: this needs Python 3.11",
        ),
    ],
)
def test_why_it_does_not_lead_is_said(status: dict[str, Any], reason: str) -> None:
    shelf, told = Shelf({"name": "petctl-operator-a", "status": status}), list[str]()
    shelf.printed = b"a line\nthis needs Python 3.11\n"
    with pytest.raises(KubernetesError) as caught:
        install(shelf.api, InstallOptions(), b"1", told.append, timeout=0.001)
    assert f"no operator became leader within 0.001 s: {reason}" in str(caught.value)
    assert told[-1].startswith(f"waiting: {reason}")


def test_an_older_version_that_leads_is_not_enough() -> None:
    class Old(Shelf):
        def _made(self, pod: Mapping[str, Any]) -> dict[str, Any]:
            made = super()._made(pod)
            return {**made, "metadata": {**made["metadata"], "annotations": {}}}

    with pytest.raises(KubernetesError, match="its pods are being created"):
        install(Old(RUNNING).api, InstallOptions(), b"2", print, timeout=0.001)


def test_pods_that_are_refused_are_said() -> None:
    shelf = Shelf()
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: few"}
    shelf.objects[DEPLOYMENT] = {**objects(InstallOptions(), b"1")[-1], "status": {"conditions": [failure]}}
    with pytest.raises(KubernetesError, match="its pods are refused: exceeded quota: few"):
        install(shelf.api, InstallOptions(), b"1", print, timeout=0.001)


def test_whoever_does_not_wait_is_not_told_that_it_leads() -> None:
    assert "did not wait for a leader" in install(Shelf().api, InstallOptions(), b"1", print, timeout=0)
