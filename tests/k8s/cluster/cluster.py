"""The cluster as tests see it: its machines, kubectl, Helm, fake nodes. Going up and down: `rise.py` and `fall.py`."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Iterator

from tests.k8s.cluster import cache, images, programs
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.kubectl import Kubectl
from tests.k8s.cluster.ledger import Ledger
from tests.k8s.cluster.machine import Machine


def state_directory() -> Path:
    """Where the one cluster of this machine keeps all it has."""
    return cache.home() / "cluster"


class Cluster:
    """A cluster that is up: the one of this package, or any other that a kubeconfig leads to."""

    def __init__(self, kubeconfig: Path, book: Ledger | None) -> None:
        self.kubeconfig = kubeconfig
        self._book = book
        self.kubectl = Kubectl(self._program("kubectl"), kubeconfig)

    @classmethod
    def attach(cls) -> Cluster | None:
        """The cluster that KUBECONFIG names, if any."""
        named = os.environ.get("KUBECONFIG")
        if not named:
            return None
        own = Path(named).resolve() == kubeconfig_of(state_directory())
        return cls(Path(named), Ledger.read(state_directory()) if own else None)

    @property
    def own(self) -> bool:
        """Whether its machines can be reached, stopped and cut off."""
        return self._book is not None

    def image(self, version: str) -> str:
        """The image with Python 3.11 or 3.9. On another cluster, public ones or those that the environment names."""
        if self.own:
            return images.python(version)
        return os.environ.get(f"PETCTL_K8S_IMAGE_{version.replace('.', '_')}", f"python:{version}-slim")

    @property
    def bare_image(self) -> str:
        """One with nothing but busybox, /bin/busybox."""
        return images.PAUSE if self.own else os.environ.get("PETCTL_K8S_IMAGE_BARE", "busybox:1")

    def machine(self, name: str) -> Machine:
        """`control`, `node1` or `node2`."""
        if self._book is None:
            raise ClusterError("only the machines of the development cluster can be reached; unset KUBECONFIG")
        return Machine(name, self._book)

    @property
    def nodes(self) -> list[str]:
        """The names of its nodes."""
        return [item["metadata"]["name"] for item in self.kubectl.get("nodes")["items"]]

    def helm(self, *arguments: object) -> str:
        """Run the real Helm against it, with nothing kept; what it printed."""
        words = [str(word) for word in (self._program("helm"), *arguments)]
        places = {
            f"HELM_{kind}_HOME": f"{self.kubeconfig.parent}/helm/{kind.lower()}" for kind in ("CACHE", "CONFIG", "DATA")
        }
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)} | places
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise ClusterError(f"`helm {' '.join(words[1:])}` failed: {done.stderr.strip()}")
        return done.stdout

    def _program(self, name: str) -> Path:
        """On somebody else's cluster their own, where they have it: it fits, and nothing must be built."""
        found = None if self.own else shutil.which(name)
        return Path(found) if found else programs.program(name)

    @contextlib.contextmanager
    def fake_nodes(self, count: int, prefix: str = "fake") -> Iterator[list[str]]:
        """Nodes that KWOK pretends: pods on them run and complete without a process. All go when the block ends.

        They are tainted, so that only pods that tolerate `kwok.x-k8s.io/node` get there.
        """
        control = self.machine("control")
        kwok = [programs.program("kwok"), f"--kubeconfig={self.kubeconfig}"]
        kwok += [f"--config={programs.program(programs.STAGES)}", "--manage-nodes-with-label-selector=type=kwok"]
        kwok += ["--node-ip=", "--cidr=10.250.0.0/16", "--node-lease-duration-seconds=40"]
        control.start("kwok", kwok)
        names = [f"{prefix}-{index}" for index in range(count)]
        try:
            self.kubectl.apply(_fake_node(name) for name in names)
            self.kubectl("wait", "--for=condition=Ready", "nodes", "--selector=type=kwok", "--timeout=60s")
            yield names
        finally:
            self.kubectl("delete", "nodes", "--selector=type=kwok", "--ignore-not-found")
            if control.runs("kwok"):
                control.stop("kwok")


def kubeconfig_of(state: Path) -> Path:
    """The administrator's kubeconfig of the cluster whose state is there."""
    return state / "kubeconfig"


def _fake_node(name: str) -> dict[str, object]:
    room = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}},
        "spec": {"taints": [{"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}]},
        "status": {"allocatable": room, "capacity": room},
    }
