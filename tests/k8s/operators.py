"""An operator for the ElasticJobs of one namespace, as a process of the test's own."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.elasticjobs import defined


@contextlib.contextmanager
def operator(cluster: Cluster, namespace: str, directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """One that leads in that namespace, until the end of the block; what it says is in operator.log."""
    words = [sys.executable, "-m", "petctl.clusters.kubernetes.operator.run", "--kubeconfig", str(cluster.kubeconfig)]
    words += ["--namespace", namespace, "--lease-namespace", namespace]
    log = directory / "operator.log"
    with defined(cluster), log.open("ab") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file)
        try:
            until(lambda: b" became leader\n" in log.read_bytes() or process.poll() is not None, "an operator leads")
            assert process.poll() is None, log.read_text()
            yield process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
