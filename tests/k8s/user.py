"""Somebody with petctl's documented role in one namespace, who drives the command line from a project of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import yaml

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until

ROLE = Path(__file__).parents[2] / "docs" / "kubernetes" / "role.yaml"
STEPS = """
import os, sys, time
number, rank, world = (os.environ[name] for name in ("PETCTL_ROUND", "RANK", "WORLD_SIZE"))
for step in range(100_000):
    print(f"step {step} of {rank}/{world} in {number} by {os.getpid()}", flush=True)
    if os.path.exists("/petctl/state/finish"):
        break
    time.sleep(0.1)
"""


class User:
    """One of them. `petctl` runs a command to its end."""

    def __init__(self, cluster: Cluster, namespace: str, directory: Path) -> None:
        self.cluster, self.namespace, self.there = cluster, namespace, f"--namespace={namespace}"
        self.project = directory / "project"
        self.project.mkdir()
        (self.project / "steps.py").write_text(STEPS)
        self.kubeconfig = directory / "kubeconfig"
        self._become()
        self.configure()
        self.home = directory / "home"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "CONDA_PREFIX")},
            "PETCTL_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "KUBECONFIG": str(self.kubeconfig),
        }

    def _become(self) -> None:
        """A service account with exactly the documented role, and nothing else."""
        kubectl, there = self.cluster.kubectl, self.there
        kubectl("create", "serviceaccount", "somebody", there)
        kubectl("apply", f"--filename={ROLE}", there)
        binding = ("--role=petctl-user", f"--serviceaccount={self.namespace}:somebody")
        kubectl("create", "rolebinding", "petctl-user", *binding, there)
        token = kubectl("create", "token", "somebody", there).strip()
        found: dict[str, Any] = yaml.safe_load(self.cluster.kubeconfig.read_text())
        found["users"] = [{"name": user["name"], "user": {"token": token}} for user in found["users"]]
        self.kubeconfig.write_text(yaml.safe_dump(found))

    def configure(self, **settings: object) -> None:
        """Writes petctl.yaml anew, with these settings of the cluster beside the usual ones."""
        known = {"namespace": self.namespace, "image": self.cluster.image("3.11"), **settings}
        (self.project / "petctl.yaml").write_text(json.dumps({"clusters": {"k8s": known}}))

    def petctl(self, *words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Runs it in the project."""
        argv = [sys.executable, "-m", "petctl", *words]
        return subprocess.run(
            argv, cwd=self.project, env=self.environment, input=text, capture_output=True, text=True, timeout=120
        )

    def submit(self, *words: str) -> str:
        """The id of a new job."""
        done = self.petctl("submit", "-c", "k8s", *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self, job: str) -> dict[str, Any]:
        """As `-o json` prints it."""
        done = self.petctl("status", "-o", "json", job)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def told(self, job: str, *words: str) -> dict[str, Any]:
        """The status once its sentence has all these words."""

        def look() -> dict[str, Any]:
            status = self.status(job)
            return status if all(word in status["sentence"] for word in words) else {}

        return until(look, f"{job} says why", 90)

    def limit_pods(self, most: int) -> None:
        """There may be so many in the namespace."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
        self.cluster.kubectl.apply([{**quota, "spec": {"hard": {"pods": most}}}], self.there)
        hard = ("get", "resourcequota", "few", self.there, "--output=jsonpath={.status.hard.pods}")
        until(lambda: self.cluster.kubectl(*hard) == str(most), "the quota holds")

    def running(self, job: str, nodes: int, after: int = 0, seconds: float = 90) -> dict[str, Any]:
        """The status once so many nodes run in a round after that one."""

        def look() -> dict[str, Any]:
            status = self.status(job)
            busy = [node for node in status["nodes"] if node["state"] == "running"]
            return status if len(busy) == nodes and status["round"] > after and status["state"] == "running" else {}

        return until(look, f"{nodes} nodes run in {job}", seconds)

    def ended(self, job: str) -> dict[str, Any]:
        """The status once the job is over."""
        until(lambda: self.status(job)["finished"], f"{job} is over", 90)
        return self.status(job)

    def steps(self, job: str) -> dict[tuple[int, int], tuple[int, int]]:
        """The last step of each (rank, round), and the process that made it."""
        found = {}
        for line in self.petctl("logs", job).stdout.splitlines(keepends=True):
            words = line.partition("step ")[2].split()
            if len(words) == 7 and line.endswith("\n"):
                found[int(words[2].partition("/")[0]), int(words[4])] = int(words[0]), int(words[6])
        return found

    def finish(self, job: str) -> None:
        """Lets the workers of steps.py end well."""
        for node in self.status(job)["nodes"]:
            done = self.petctl("exec", "--node", node["name"], job, "--", "touch", "/petctl/state/finish")
            assert done.returncode == 0, done.stderr

    def page(self, job: str, port: int) -> str:
        """What a worker serves at that port of its node, through `petctl forward`."""
        words = [sys.executable, "-m", "petctl", "forward", job, str(port)]
        with subprocess.Popen(words, cwd=self.project, env=self.environment, stderr=subprocess.PIPE, text=True) as door:
            try:
                assert door.stderr is not None
                here = re.findall(r"127\.0\.0\.1:\d+", door.stderr.readline())[0]
                return until(lambda: _page(f"http://{here}/"), "the worker serves")
            finally:
                door.terminate()

    def pods(self, job: str, role: str) -> list[dict[str, Any]]:
        """Those of a job, as the administrator sees them."""
        wanted = f"--selector=petctl.dev/job={job},petctl.dev/role={role}"
        items: list[dict[str, Any]] = self.cluster.kubectl.get("pods", wanted, self.there)["items"]
        return items

    def left(self) -> list[str]:
        """Everything in the namespace that petctl has made."""
        kinds = "jobs,pods,services,secrets,configmaps,persistentvolumeclaims"
        labelled = "--selector=app.kubernetes.io/managed-by=petctl"
        items = self.cluster.kubectl.get(kinds, labelled, self.there)["items"]
        elastic = self.cluster.kubectl.attempt("get", "elasticjobs", "--output=json", self.there)
        items += json.loads(elastic.stdout)["items"] if elastic.returncode == 0 else []  # this cluster has no such kind
        return [f"{item['kind']}/{item['metadata']['name']}" for item in items]


def _page(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return str(answer.read().decode())
    except OSError:  # not yet
        return ""
