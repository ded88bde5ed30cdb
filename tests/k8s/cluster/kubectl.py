"""kubectl against one cluster: the real one, run as people run it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from pathlib import Path
from typing import Any, Iterable

from tests.k8s.cluster.failure import ClusterError

Done = subprocess.CompletedProcess[str]


class Kubectl:
    """Calls of kubectl with one kubeconfig."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self.program = program
        self.kubeconfig = kubeconfig

    def words(self, *arguments: object) -> list[str]:
        """The whole command line, for whoever runs it in another way."""
        words = [self.program, f"--kubeconfig={self.kubeconfig}", *arguments]
        return [str(word) for word in words]

    def attempt(
        self, *arguments: object, text: str | None = None, seconds: float = 200
    ) -> subprocess.CompletedProcess[str]:
        """Run it; the caller looks at how it went."""
        environment = os.environ | {"KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl-cache")}
        words = self.words(*arguments)
        return subprocess.run(words, input=text, capture_output=True, text=True, env=environment, timeout=seconds)

    def __call__(self, *arguments: object, text: str | None = None, seconds: float = 200) -> str:
        """Run it; what it printed."""
        done = self.attempt(*arguments, text=text, seconds=seconds)
        if done.returncode != 0:
            shown = " ".join(str(word) for word in arguments)
            raise ClusterError(f"`kubectl {shown}` failed: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: object) -> dict[str, Any]:
        """One object, or a list of them, as the API server tells it."""
        answer: dict[str, Any] = json.loads(self("get", "--output=json", *arguments))
        return answer

    def apply(self, objects: Iterable[dict[str, Any]], *arguments: object) -> None:
        """Have these objects."""
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self("apply", "--filename=-", *arguments, text=json.dumps(whole))


def pod(name: str, image: str, command: list[str], **fields: Any) -> dict[str, Any]:
    """A pod with one container that runs once; `fields` are added to its specification."""
    container = {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", "command": command}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"name": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **fields},
    }


def with_torch(pod: dict[str, Any], packages: Path) -> dict[str, Any]:
    """The same pod with PyTorch from a directory of the node, read-only; an image that held it would be 5 GB."""
    changed: dict[str, Any] = copy.deepcopy(pod)
    changed["spec"].setdefault("volumes", []).append({"name": "torch", "hostPath": {"path": str(packages)}})
    for container in changed["spec"]["containers"]:
        mount = {"name": "torch", "mountPath": "/torch", "readOnly": True}
        container.setdefault("volumeMounts", []).append(mount)
        container.setdefault("env", []).append({"name": "PYTHONPATH", "value": "/torch"})
    return changed
