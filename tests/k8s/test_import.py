"""Jobs of others, converted, as the API server takes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.elasticjobs import defined

pytestmark = [pytest.mark.root]

FOREIGN = Path(__file__).parents[1] / "unit" / "clusters" / "kubernetes" / "foreign"


def converted(*words: str) -> str:
    argv = [sys.executable, "-m", "petctl", "import", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "is left out" in done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [["elasticjob.yaml"], ["--command", "python3 /workspace/main.py", "pods.yaml"], ["-o", "json", "elasticjob.yaml"]],
    ids=["the old operator's", "pods", "json"],
)
def test_the_server_takes_what_was_converted(cluster: Cluster, namespace: str, words: list[str]) -> None:
    *options, file = words
    objects = list(yaml.safe_load_all(converted(*options, str(FOREIGN / file))))
    for found in objects:
        found["metadata"]["namespace"] = namespace
    text = yaml.safe_dump_all(objects)
    with defined(cluster):
        said = cluster.kubectl("apply", "--dry-run=server", "--filename=-", text=text)
    assert said.strip() == "elasticjob.petctl.dev/imagenet created (server dry run)"
