"""What the benchmarks on Kubernetes share: a namespace of their own with somebody in it, and what was seen of its pods.

The times that Kubernetes writes into objects are whole seconds, so pods are watched and the clock of this machine is
read when news arrives. A watch is all the traffic there is while something is measured: what has ended is asked then.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from common import ROOT, Missed
from processes import processes

sys.path.insert(0, str(ROOT))

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.user import User

from petctl.kube.api import Api, path
from petctl.kube.failures import KubernetesError
from petctl.kube.kubeconfig import find_access

Pod = Mapping[str, Any]
MADE, PLACED, ADDRESSED, RUNS, ENDED = "made", "placed", "addressed", "runs", "ended"
"""What is seen of a pod: it exists, has a machine, has an address, is said to run, is said to have ended."""


@contextmanager
def stage(cluster: Cluster) -> Iterator[User]:
    """Somebody with a namespace, which goes with everything in it."""
    namespace = f"petctl-bench-{secrets.token_hex(3)}"
    kubectl, there = cluster.kubectl, f"--namespace={namespace}"
    kubectl("create", "namespace", namespace)
    try:
        kubectl("wait", "--for=create", "serviceaccount/default", there, "--timeout=60s")
        with tempfile.TemporaryDirectory(prefix="petctl-bench-") as directory:
            try:
                yield User(cluster, namespace, Path(directory))
            finally:
                # Jobs before their namespace: one that counts failures per index keeps a pod until it has made the
                # next. And pods before the directory, into which they may write.
                kubectl("delete", "jobs", "--all", there, "--cascade=foreground", "--timeout=120s")
                kubectl.attempt("wait", "--for=delete", "pods", "--all", there, "--timeout=60s")
    finally:
        kubectl("delete", "namespace", namespace, "--wait=false")


def administrator(user: User) -> Api:
    """The API server without kubectl, whose own start would be measured too."""
    return Api(find_access({"kubeconfig": str(user.cluster.kubeconfig), "namespace": user.namespace}))


class Sightings:
    """The pods of a namespace, and when each was first seen in which state. Beside the benchmark, in a thread."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._news = threading.Condition()
        self._over = False
        self.pods: dict[str, Pod] = {}
        self.times: dict[str, dict[str, float]] = {}
        self.begun: dict[str, float] = {}  # when the first process of a pod was started, where it can be seen from here

    def __enter__(self) -> Sightings:
        threading.Thread(target=self._watch, args=(self._look(),), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True  # the watch itself ends with the process

    def _look(self) -> str:
        found = self._api.list(path("pods", self._namespace))
        for pod in found:
            self._take(pod)
        return found.version

    def _watch(self, version: str) -> None:
        while not self._over:
            with suppress(KubernetesError):
                for kind, pod in self._api.watch(path("pods", self._namespace), version=version):
                    version = pod["metadata"]["resourceVersion"]
                    if kind in ("ADDED", "MODIFIED"):
                        self._take(pod)
                continue
            version = self._look()

    def _take(self, pod: Pod) -> None:
        now, name, status = time.time(), pod["metadata"]["name"], pod["status"]
        reached = [MADE]
        reached += [PLACED] if pod["spec"].get("nodeName") else []
        reached += [ADDRESSED] if status.get("podIP") else []
        reached += [RUNS] if status.get("phase") in ("Running", "Succeeded", "Failed") else []
        reached += [ENDED] if status.get("phase") in ("Succeeded", "Failed") else []
        with self._news:
            known = self.times.setdefault(name, {})
            if RUNS in reached and RUNS not in known and (first := first_process(pod)) is not None:
                self.begun[name] = first[0]
            for state in reached:
                known.setdefault(state, now)
            self.pods[name] = pod
            self._news.notify_all()

    def wait(self, what: str, found: Callable[[dict[str, dict[str, float]]], bool], deadline: float) -> None:
        """Until what was seen is enough; Missed at the deadline."""
        with self._news:
            if not self._news.wait_for(lambda: found(self.times), deadline):
                raise Missed(f"{what}: not within {deadline:.0f} s")

    def when(self, start: str, state: str, which: Callable[[list[float]], float] = max) -> float:
        """When all pods whose names start so had reached a state (`which` = min: the first of them)."""
        return which([times[state] for name, times in self.times.items() if name.startswith(start)])


def first_process(pod: Pod) -> tuple[float, int] | None:
    """When the first process of a pod's container was started, and its number; None: not on this machine."""
    host = f"HOSTNAME={pod['spec'].get('hostname') or pod['metadata']['name']}".encode()
    found = []
    for entry in processes():
        with suppress(OSError, IndexError):
            if host in (entry / "environ").read_bytes().split(b"\0"):
                found.append((int((entry / "stat").read_text().rsplit(")", 1)[1].split()[19]), int(entry.name)))
    if not found:
        return None
    ticks, number = min(found)
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK"), number


def log_of(api: Api, namespace: str, pod: str) -> list[tuple[float, str]]:
    """What a pod has printed, with the moment at which its machine wrote each line down."""
    text = b"".join(api.log(namespace, pod, timestamps=True)).decode(errors="replace")
    parts = [line.partition(" ") for line in text.splitlines()]
    return [(seconds(moment), line) for moment, _, line in parts]


def events_of(api: Api, namespace: str, pod: str) -> list[dict[str, Any]]:
    """What a coordinator says has happened."""
    return [json.loads(line) for _, line in log_of(api, namespace, pod) if line.startswith("{")]


def seconds(text: str) -> float:
    """Of a time as Kubernetes writes it, with up to nine digits behind the point."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")
