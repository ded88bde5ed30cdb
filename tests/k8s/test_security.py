"""What docs/kubernetes-security.md says, done as it says it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.k8s.user import User

DOCS = Path(__file__).parents[2] / "docs"

pytestmark = [pytest.mark.root]


def test_a_job_passes_restricted_beside_the_network_policy(user: User) -> None:
    kubectl = user.cluster.kubectl
    kubectl("label", "namespace", user.namespace, "pod-security.kubernetes.io/enforce=restricted")
    kubectl("apply", "--filename", DOCS / "kubernetes" / "networkpolicy.yaml", user.there)
    (written,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "kubernetes-security.md").read_text(), re.DOTALL)
    (user.project / "who.py").write_text("import os; print('user', os.getuid())")
    whole = {"script": "who.py", "nodes": 2, **yaml.safe_load(written)}
    (user.project / "job.yaml").write_text(yaml.safe_dump(whole))
    done = user.petctl("run", "-c", "k8s", "job.yaml")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["[0] user 1000", "[1] user 1000"]), done.stderr


def test_no_pod_of_a_job_has_a_token_and_only_the_coordinator_has_the_key(user: User) -> None:
    job = user.submit("-n", "1", "steps.py")
    user.running(job, 1)
    for role, has_key in (("coordinator", True), ("node", False)):
        (pod,) = user.pods(job, role)
        name = pod["metadata"]["name"]
        look = (
            "import glob, os; print(os.path.exists('/var/run/secrets/kubernetes.io'), glob.glob('/petctl/*/tls.key'))"
        )
        seen = user.cluster.kubectl("exec", name, user.there, "--container=petctl", "--", "python3", "-c", look)
        found, key = seen.split(maxsplit=1)
        assert found == "False"
        assert bool(json.loads(key.strip().replace("'", '"'))) is has_key
    user.petctl("cancel", "--kill", job)
