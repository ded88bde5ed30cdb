"""A namespace of a Kubernetes cluster, without and with an operator, for somebody with petctl's documented role."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from petctl.clusters.base import find_cluster
from petctl.clusters.kubernetes.names import node_of
from petctl.errors import PetctlError
from petctl.jobs import JobHandle
from tests.conformance import backend as has
from tests.conformance.backend import Backend
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.namespaces import own_namespace
from tests.k8s.operators import operator
from tests.k8s.user import User

AWAY = "away"  # what the user's configuration calls a cluster where nobody listens


class KubernetesBackend(Backend):
    """The cluster that `make test-k8s` has brought up, or the one that KUBECONFIG names."""

    name, cluster = "kubernetes", "k8s"
    lacks: ClassVar = {has.OUTPUTS: "without a store they go with their pods"}
    long: ClassVar = frozenset(
        {
            "test_who_has_cancelled_can_still_kill",
            "test_a_whole_life_is_told_in_its_order",
            "test_lines_are_followed_as_they_come_and_to_the_end",
        }
    )
    patience = 90.0
    slow = True
    with_operator = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        found = Cluster.attach()
        if found is None:
            pytest.skip("no cluster: `make test-k8s` brings one up, KUBECONFIG names another")
        self._stack = contextlib.ExitStack()
        try:
            namespace = self._stack.enter_context(own_namespace(found))
            own = directory / "user"
            own.mkdir()
            self.user = User(found, namespace, own)
            if self.with_operator:
                self._stack.enter_context(operator(found, namespace, directory))
        except BaseException:
            self._stack.close()
            raise
        (self.project / "petctl.yaml").write_text(json.dumps({"clusters": self._clusters()}))

    def _clusters(self) -> dict[str, Any]:
        image, operated = self.user.cluster.image("3.11"), self.with_operator
        own = {"namespace": self.user.namespace, "image": image, **({"operator": True} if operated else {})}
        nowhere = yaml.safe_load(self.user.kubeconfig.read_text())
        for entry in nowhere["clusters"]:
            entry["cluster"]["server"] = "https://127.0.0.1:9"
        path = self.directory / "nowhere"
        path.write_text(yaml.safe_dump(nowhere))
        return {self.cluster: own, AWAY: {"kind": "kubernetes", "kubeconfig": str(path), **own}}

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "KUBECONFIG": str(self.user.kubeconfig)}

    def another_environment(self) -> dict[str, str]:
        return {**self.environment(), "PETCTL_HOME": str(self.directory / "another home")}

    def close(self) -> None:
        self._stack.close()

    def end(self, handle: JobHandle) -> None:
        """It goes with the namespace; until then it shall not be in the way."""
        with contextlib.suppress(PetctlError):
            handle.cancel(kill=True)

    def left(self, job_id: str) -> list[str]:
        def others() -> list[str]:
            return [name for name in self.user.left() if job_id in name]

        with contextlib.suppress(AssertionError):
            until(lambda: not others(), f"{job_id} is gone", self.patience)
        return others()

    def at_rest(self, job_id: str) -> bytes:
        kinds = "jobs,pods,services,configmaps" + (",elasticjobs" if self.with_operator else "")
        return json.dumps(self.user.cluster.kubectl.get(kinds, self.user.there)).encode()

    def _kill(self, pods: list[dict[str, Any]]) -> None:
        names = [pod["metadata"]["name"] for pod in pods]
        self.user.cluster.kubectl("delete", "pod", *names, "--force", "--grace-period=0", self.user.there)

    def lose_node(self, handle: JobHandle, node: str) -> None:
        self._kill([pod for pod in self.user.pods(handle.id, "node") if node_of(pod) == node])

    def lose_controller(self, handle: JobHandle) -> None:
        self._kill(self.user.pods(handle.id, "coordinator"))

    @contextmanager
    def waiting(self) -> Iterator[dict[str, Any]]:
        yield {"resources": {"gpus": 1}}  # which no machine there has

    @contextmanager
    def unreachable(self, handle: JobHandle) -> Iterator[Callable[[], object]]:
        yield JobHandle(handle.id, find_cluster(AWAY, self.directory / "home")).status


class OperatorBackend(KubernetesBackend):
    """The same with ElasticJobs, which an operator looks after."""

    name = "operator"
    with_operator = True
    all_long = True  # tests/k8s has tests of its own for what the operator does otherwise
