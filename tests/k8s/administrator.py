"""Somebody who may do everything in the cluster, and installs the operator with petctl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from petctl.clusters.kubernetes.operator.install.objects import MINE, NAME
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until

SELECTOR = "--selector=" + ",".join(f"{name}={value}" for name, value in MINE.items())


class Administrator:
    """One, with a namespace to put the operator into; it looks after that one only."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path) -> None:
        self.cluster, self.namespace, self.there = cluster, namespace, f"--namespace={namespace}"
        self.kubectl, self._directory = cluster.kubectl, directory
        self.only = ("--only-namespace", namespace)
        self.image = ("--image", cluster.image("3.11"))
        self.environment = {
            **os.environ,
            "PETCTL_HOME": str(directory / "home"),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "KUBECONFIG": str(cluster.kubeconfig),
        }

    def words(self, *words: str) -> list[str]:
        """The command line of `petctl operator`."""
        return [sys.executable, "-m", "petctl", "operator", *words]

    def operator(self, *words: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        environment = self.environment | ({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})
        return subprocess.run(
            self.words(*words), cwd=self._directory, env=environment, capture_output=True, text=True, timeout=240
        )

    def install(self, *words: str) -> None:
        """For this namespace, and it has to lead."""
        done = self.operator("install", *self.only, *self.image, *words)
        assert done.returncode == 0 and "the operator is the leader" in done.stderr, done.stderr

    def pods(self) -> set[str]:
        """Those of the operator that are not about to go."""
        items = self.kubectl.get("pods", SELECTOR, self.there)["items"]
        return {pod["metadata"]["name"] for pod in items if "deletionTimestamp" not in pod["metadata"]}

    def left(self) -> list[str]:
        """Whatever of an operator is in the namespace."""
        kinds = "deployments,replicasets,pods,configmaps,serviceaccounts,roles,rolebindings,leases"
        items = self.kubectl.get(kinds, SELECTOR, self.there)["items"]
        return [f"{item['kind']}/{item['metadata']['name']}" for item in items]

    def gone(self) -> None:
        """Waits until nothing of it is there."""
        until(lambda: not self.left(), "nothing of the operator is left")

    def apply(self, job: dict[str, Any]) -> None:
        """An ElasticJob of this namespace."""
        self.kubectl("apply", "--filename=-", self.there, text=json.dumps(job))

    def job(self, name: str) -> dict[str, Any]:
        """The ElasticJob."""
        return self.kubectl.get("elasticjob", name, self.there)

    def until_phase(self, name: str, phase: str, ready: int | None = None) -> None:
        """Waits until the ElasticJob is in that phase, with so many nodes that run."""

        def reached() -> bool:
            status = self.job(name).get("status", {})
            return status.get("phase") == phase and ready in (None, status.get("readyReplicas"))

        until(reached, f"{name} is {phase}" + (f" with {ready} nodes" if ready else ""), 120, pause=0.3)

    def may(self, verb: str, what: str, namespace: str = "", who: str = "") -> bool:
        """Whether the operator, or somebody else, has that right; `what` may be RESOURCE:SUBRESOURCE."""
        name = who or f"system:serviceaccount:{self.namespace}:{NAME}"
        where = f"--namespace={namespace}" if namespace else self.there
        resource, _, under = what.partition(":")
        words = ("auth", "can-i", verb, resource, f"--subresource={under}", where, f"--as={name}")
        return self.kubectl.attempt(*words).returncode == 0
