"""Claim: on Kubernetes, the first line of the user's script comes at most 2.5 s after that of a bare Indexed Job.

Two pods of the same image on a real cluster, beside `kubectl apply` of an Indexed Job whose pods print the same line
themselves. From starting the command to the moment at which the container runtime wrote down the first line of rank 0
(`kubectl logs --timestamps`), so nobody's way of following logs is measured. It also says where petctl's time goes.

    python -m tests.k8s.cluster run .venv/bin/python benchmarks/k8s_first_line.py

It uses the cluster of KUBECONFIG, in a namespace of its own; the image is the development cluster's, or
$PETCTL_K8S_IMAGE_3_11.
"""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from common import Claim, Missed, finish, interleave, options, print_table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.user import User

LINE = "first user line"
DEADLINE = 60.0
MOST = 2.5


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    cluster = Cluster.attach()
    if cluster is None:
        print("no cluster: see --help", file=sys.stderr)
        return 2
    parts: dict[str, list[float]] = {}
    with stage(cluster) as user:
        samples = interleave(
            chosen.pairs,
            {"petctl submit -n 2": lambda: ours(user, parts), "kubectl apply, Indexed Job": lambda: bare(user)},
        )
    petctl, peer = samples.values()
    print_table("time to the first user line, 2 pods", [petctl, peer], petctl.name)
    print("\nwhere petctl's time goes (medians, from the start of the command)")
    for name, seconds in parts.items():
        print(f"  {name:34} {statistics.median(seconds):6.2f} s")
    above = petctl.median - peer.median
    return finish(
        "k8s_first_line",
        chosen.output,
        {"first line": [petctl, peer]},
        [Claim(f"{above:.2f} s above bare pods (at most {MOST})", above <= MOST)],
    )


@contextmanager
def stage(cluster: Cluster) -> Iterator[User]:
    """Somebody with a namespace, which goes with everything in it."""
    namespace = f"petctl-bench-{secrets.token_hex(3)}"
    cluster.kubectl("create", "namespace", namespace)
    try:
        cluster.kubectl("wait", "--for=create", "serviceaccount/default", f"--namespace={namespace}", "--timeout=60s")
        with tempfile.TemporaryDirectory() as directory:
            user = User(cluster, namespace, Path(directory))
            (user.project / "first.py").write_text(f"print({LINE!r}, flush=True)")
            yield user
    finally:
        cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def ours(user: User, parts: dict[str, list[float]]) -> float:
    """One job of petctl's."""
    begin = time.time()
    job = user.submit("-n", "2", "first.py")
    submitted = time.time()
    line = printed(user, lambda: user.pods(job, "node"))
    events: dict[str, float] = {}
    for event in coordinator_events(user, job):
        events.setdefault(event["kind"], event["time"])
    pods = [started(pod) for role in ("coordinator", "node") for pod in user.pods(job, role)]
    moments = {
        "the command has returned": submitted,
        "the first container runs (s)": min(pods),
        "the coordinator listens": events["started"],
        "the first node has joined": events["joined"],
        "the round starts": events["running"],
        "the user's first line": line,
    }
    for name, moment in moments.items():
        parts.setdefault(name, []).append(moment - begin)
    user.petctl("wait", job)
    user.petctl("rm", job)
    return line - begin


def coordinator_events(user: User, job: str) -> list[dict[str, Any]]:
    """What its log says."""
    (pod,) = user.pods(job, "coordinator")
    said = user.cluster.kubectl("logs", pod["metadata"]["name"], user.there)
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def bare(user: User) -> float:
    """The same pods, without anybody who brings them together."""
    name = f"bare-{secrets.token_hex(3)}"
    container = {"name": "main", "image": user.cluster.image("3.11"), "command": ["python3", "-c", f"print({LINE!r})"]}
    pod = {"metadata": {"labels": {"bare": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": pod}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    words = user.cluster.kubectl.words("apply", "--filename=-", user.there)
    begin = time.time()
    subprocess.run(words, input=json.dumps(job), text=True, check=True, capture_output=True)

    def pods() -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = user.cluster.kubectl.get("pods", f"--selector=bare={name}", user.there)["items"]
        return items

    line = printed(user, pods)
    user.cluster.kubectl("delete", "job", name, user.there)
    return line - begin


def printed(user: User, pods: Callable[[], list[dict[str, Any]]]) -> float:
    """When the first of these pods printed the line, as its machine has written it down."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        for pod in pods():
            said = user.cluster.kubectl.attempt("logs", "--timestamps", pod["metadata"]["name"], user.there).stdout
            found = [line for line in said.splitlines() if line.endswith(LINE)]
            if found:
                return min(_seconds(line.split()[0]) for line in found)
        time.sleep(0.3)
    raise Missed(f"no line within {DEADLINE:.0f} s")


def started(pod: dict[str, Any]) -> float:
    """When its container was started; Kubernetes knows whole seconds."""
    state = pod["status"]["containerStatuses"][0]["state"]
    return _seconds(next(iter(state.values()))["startedAt"])


def _seconds(text: str) -> float:
    """Of a time as Kubernetes writes it, with up to nine digits behind the point."""
    whole, _, rest = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")


if __name__ == "__main__":
    sys.exit(main())
