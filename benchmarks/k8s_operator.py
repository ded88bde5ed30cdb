"""Claim: 200 ElasticJobs at once are reconciled within 120 s, with under 300 MB, and each costs the same few calls.

The real API server, scheduler and controllers; the machines are KWOK's, whose pods run without a process. The operator
is a process of its own, as in a pod. Sizes double up to the whole number, so that calls per job can be compared:

    reconciled   every job has its coordinator and nodes running, and its status says so
    calls        requests that the operator made to the API server, watches and leases left out, per job
    memory       the operator's resident memory at its highest

Beside it the bare objects: the same pods, Services, Secrets and ConfigMaps, created by one client with as many threads
and nothing to keep. That is what the API server takes for them, whoever asks.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import ROOT, Claim, finish, options, progress

sys.path.insert(0, str(ROOT))

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.elasticjobs import defined

from petctl.clusters.kubernetes.operator.elasticjob import read_job
from petctl.clusters.kubernetes.operator.pods import coordinator_pod, node_pod, service
from petctl.clusters.kubernetes.operator.record import record_of
from petctl.clusters.kubernetes.payload import material, new_credentials
from petctl.kube.api import Api, path
from petctl.kube.kubeconfig import find_access

LIMIT, MEMORY, PER_NODE = 120.0, 300.0, 100
THREADS = 4
HEALTH = 18081
KINDS = {"Pod": "pods", "Service": "services", "Secret": "secrets", "ConfigMap": "configmaps"}


def job(name: str) -> dict[str, Any]:
    """One with two nodes, for fake machines only."""
    where = {
        "nodeSelector": {"type": "kwok"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    }
    container = {"name": "main", "image": "none", "command": ["true"]}
    spec = {
        "replicas": 2,
        "template": {"spec": {"containers": [container], **where}},
        "coordinator": {"spec": where},
    }
    return {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": {"name": name}, "spec": spec}


class Operator:
    """The process, and what it costs."""

    def __init__(self, kubeconfig: Path, namespace: str, directory: Path) -> None:
        self.log = directory / "operator.log"
        words = [sys.executable, "-m", "petctl.clusters.kubernetes.operator.run", "--kubeconfig", str(kubeconfig)]
        words += ["--namespace", namespace, "--lease-namespace", namespace, "--workers", str(THREADS)]
        with self.log.open("wb") as file:
            self.process = subprocess.Popen([*words, "--health-port", str(HEALTH)], stdout=file, stderr=file)
        self.kubeconfig = kubeconfig

    def memory(self) -> float:
        """MB, at the most."""
        found = Path(f"/proc/{self.process.pid}/status").read_text().split("VmHWM:")[1].split()[0]
        return int(found) / 1000

    def processor(self) -> float:
        """Seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def calls(self) -> int:
        """Requests that it has made, watches aside."""
        with urllib.request.urlopen(f"http://127.0.0.1:{HEALTH}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("petctl_operator_api_calls_total"))

    def stop(self) -> None:
        """And waits."""
        self.process.terminate()
        self.process.wait(30)


@contextmanager
def namespace(cluster: Cluster) -> Iterator[str]:
    """One for one run."""
    name = f"petctl-bench-{secrets.token_hex(4)}"
    cluster.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        cluster.kubectl("delete", "elasticjobs", "--all", f"--namespace={name}", "--wait=false")
        cluster.kubectl("delete", "pods", "--all", f"--namespace={name}", "--force", "--grace-period=0")
        cluster.kubectl("delete", "namespace", name, "--wait=true", seconds=300)


def operated(cluster: Cluster, api: Api, count: int, directory: Path) -> dict[str, float]:
    """So many jobs at once, from the first creation to the last job that runs."""
    with namespace(cluster) as name:
        operator = Operator(cluster.kubeconfig, name, directory)
        try:
            while b" became leader\n" not in operator.log.read_bytes():
                threading.Event().wait(0.05)
            before, began = operator.calls(), time.monotonic()
            with ThreadPoolExecutor(THREADS) as several:
                place = path("elasticjobs", name)
                list(several.map(lambda n: api.create(place, job(f"job-{n}")), range(count)))
            created = time.monotonic() - began
            running = 0
            while running < count:
                if time.monotonic() - began > 3 * LIMIT:
                    raise SystemExit(f"only {running} of {count} jobs run; see {operator.log.read_text()[-2000:]}")
                threading.Event().wait(0.5)
                found = api.list(place)
                running = sum((item.get("status") or {}).get("phase") == "Running" for item in found)
            took, made = time.monotonic() - began, operator.calls() - before
            return {
                "seconds": took,
                "created": created,
                "calls": made / count,
                "memory": operator.memory(),
                "processor": operator.processor(),
            }
        finally:
            operator.stop()


def bare(cluster: Cluster, api: Api, count: int) -> float:
    """Seconds for the same objects, made by a client that keeps nothing going."""
    with namespace(cluster) as name:
        began = time.monotonic()

        def make(number: int) -> None:
            about = {"uid": f"u-{number}", "namespace": name, "creationTimestamp": "2026-01-01T00:00:00Z"}
            one = job(f"job-{number}")
            read = read_job({**one, "metadata": {**one["metadata"], **about}})
            record = record_of(read, 2)
            pods = [coordinator_pod(read, record, 0, False), node_pod(read, 0, 0), node_pod(read, 1, 1)]
            for thing in [*material(record, new_credentials(record, Path())), service(read), *pods]:
                thing["metadata"].pop("ownerReferences", None)
                api.create(path(KINDS[thing["kind"]], name), thing)

        with ThreadPoolExecutor(THREADS) as several:
            list(several.map(make, range(count)))
        which = "--field-selector=status.phase=Running"
        while len(cluster.kubectl("get", "pods", which, f"--namespace={name}", "--output=name").split()) < 3 * count:
            threading.Event().wait(0.5)
        return time.monotonic() - began


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--jobs", type=int, default=200)
    chosen = parser.parse_args()
    cluster = Cluster.attach()
    if cluster is None or not cluster.own:
        raise SystemExit("needs the development cluster: make k8s-up")
    api = Api(find_access({"kubeconfig": str(cluster.kubeconfig)}))
    found: dict[int, dict[str, float]] = {}
    machines = cluster.fake_nodes(3 * chosen.jobs // PER_NODE + 1)
    with tempfile.TemporaryDirectory(prefix="petctl-bench-") as directory, defined(cluster), machines:
        for count in (chosen.jobs // 8, chosen.jobs // 2, chosen.jobs):
            found[count] = operated(cluster, api, count, Path(directory))
            progress(f"{count} jobs: {json.dumps({k: round(v, 2) for k, v in found[count].items()})}")
        alone = bare(cluster, api, chosen.jobs)
        progress(f"the bare objects of {chosen.jobs} jobs: {alone:.1f} s")
    print(f"\n{'jobs':>6} {'reconciled':>12} {'calls per job':>14} {'memory':>9} {'processor':>10}")
    for count, figures in found.items():
        print(
            f"{count:6} {figures['seconds']:10.1f} s {figures['calls']:14.1f} {figures['memory']:6.0f} MB "
            f"{figures['processor']:8.1f} s"
        )
    few, most = found[min(found)], found[chosen.jobs]
    print(f"the same objects without anybody who keeps them: {alone:.1f} s, ratio {most['seconds'] / alone:.2f}")
    claims = [
        Claim(f"{chosen.jobs} jobs in {most['seconds']:.0f} s (at most {LIMIT:g})", most["seconds"] <= LIMIT),
        Claim(f"{most['memory']:.0f} MB (at most {MEMORY:g})", most["memory"] <= MEMORY),
        Claim(
            f"calls per job {most['calls']:.1f}, with few jobs {few['calls']:.1f} (at most 1.25 times)",
            most["calls"] <= 1.25 * few["calls"],
        ),
    ]
    record: dict[str, object] = {"operator": {str(count): values for count, values in found.items()}, "bare": alone}
    return finish("k8s_operator", chosen.output, {}, claims, figures=record)


if __name__ == "__main__":
    sys.exit(main())
