"""Claim: on Kubernetes, the first line of the user's script comes at most 2.5 s after that of a bare Indexed Job.

Two pods of the same image on a real cluster, beside `kubectl apply` of an Indexed Job whose pods print the same line
themselves. From starting the command to the moment at which the container runtime wrote down the first line
(`kubectl logs --timestamps`), so nobody's way of following logs is measured.

    python -m tests.k8s.cluster run .venv/bin/python benchmarks/k8s_first_line.py

It uses the cluster of KUBECONFIG, in a namespace of its own; the image is the development cluster's, or
$PETCTL_K8S_IMAGE_3_11. Where the time goes is told for both: when pods were made, placed and running as a watch saw it;
when processes began, where pods run on this machine; and what coordinator and script wrote down themselves.
"""

from __future__ import annotations

import json
import secrets
import statistics
import subprocess
import sys
import time

from common import PROGRAMS, Claim, Missed, finish, interleave, options, print_table
from k8s_stage import (
    ADDRESSED,
    ENDED,
    MADE,
    PLACED,
    RUNS,
    Sightings,
    administrator,
    events_of,
    log_of,
    stage,
)
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.user import User

from petctl.kube.api import Api

LINE = "first user line"
DEADLINE = 90.0
MOST = 2.5
Parts = dict[str, list[float]]


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    cluster = Cluster.attach()
    if cluster is None:
        print("no cluster: see --help", file=sys.stderr)
        return 2
    our_parts: Parts = {}
    bare_parts: Parts = {}
    with stage(cluster) as user, administrator(user) as api:
        (user.project / "first.py").write_text((PROGRAMS / "first_pod.py").read_text())
        with Sightings(api, user.namespace) as seen:
            samples = interleave(
                chosen.pairs,
                {
                    "petctl submit -n 2": lambda: ours(user, api, seen, our_parts),
                    "kubectl apply, Indexed Job": lambda: bare(user, api, seen, bare_parts),
                },
            )
    petctl, peer = samples.values()
    print_table("time to the first user line, 2 pods", [petctl, peer], petctl.name)
    figures = {"petctl": _shown(petctl.name, our_parts), "bare": _shown(peer.name, bare_parts)}
    above = petctl.median - peer.median
    return finish(
        "k8s_first_line",
        chosen.output,
        {"first line": [petctl, peer]},
        [Claim(f"{above:.2f} s above bare pods (at most {MOST})", above <= MOST)],
        {"parts": figures},
    )


def ours(user: User, api: Api, seen: Sightings, parts: Parts) -> float:
    """One job of petctl's."""
    begin = time.time()
    job = user.submit("-n", "2", "first.py")
    submitted = time.time()
    nodes, coordinator = f"{job}-node-", f"{job}-coordinator-"
    seen.wait("both nodes have ended", lambda times: _ended(times, nodes) == 2, DEADLINE)
    (pod,) = [name for name in seen.times if name.startswith(coordinator)]
    events = events_of(api, user.namespace, pod)
    first = {kind: min(event["time"] for event in events if event["kind"] == kind) for kind in ("started", "running")}
    joined = sorted(event["time"] for event in events if event["kind"] == "joined")
    line, inside = min(printed(api, user, name) for name in seen.times if name.startswith(nodes))
    moments = {
        "the command has returned": submitted,
        "coordinator: its pod is made": seen.when(coordinator, MADE),
        "coordinator: ... and has a machine": seen.when(coordinator, PLACED),
        **({"coordinator: ... its process runs": seen.begun[pod]} if pod in seen.begun else {}),
        "coordinator: about to listen": first["started"],
        "coordinator: ... its address is known": seen.when(coordinator, ADDRESSED),
        "coordinator: ... known to run": seen.when(coordinator, RUNS),
        "nodes: their pods are made": seen.when(nodes, MADE),
        "nodes: ... and have machines": seen.when(nodes, PLACED),
        "nodes: ... the first's process runs": inside["container"],
        "nodes: the first has joined": joined[0],
        "nodes: both have joined": joined[-1],
        "the round starts": first["running"],
        "the first's code is unpacked": inside["code"],
        "the script's process runs": inside["script"],
        "the first line": line,
    }
    _note(parts, moments, begin)
    for words in (("wait", job), ("rm", job)):
        user.petctl(*words)
    return line - begin


def bare(user: User, api: Api, seen: Sightings, parts: Parts) -> float:
    """The same pods, without anybody who brings them together."""
    name = f"bare-{secrets.token_hex(3)}"
    container = {"name": "main", "image": user.cluster.image("3.11"), "command": ["python3", "-c", f"print({LINE!r})"]}
    pod = {"metadata": {"labels": {"bare": name}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": pod}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}
    words = user.cluster.kubectl.words("apply", "--filename=-", user.there)
    begin = time.time()
    subprocess.run(words, input=json.dumps(job), text=True, check=True, capture_output=True)
    applied = time.time()
    seen.wait("both pods have ended", lambda times: _ended(times, name) == 2, DEADLINE)
    line = min(_line(api, user, pod) for pod in seen.times if pod.startswith(name))
    moments = {
        "the command has returned": applied,
        "the pods are made": seen.when(name, MADE),
        "... and have machines": seen.when(name, PLACED),
        "the first line": line,
    }
    _note(parts, moments, begin)
    user.cluster.kubectl("delete", "job", name, user.there)
    return line - begin


def printed(api: Api, user: User, pod: str) -> tuple[float, dict[str, float]]:
    """When a node's pod printed the line, and what the script found around it."""
    lines = log_of(api, user.namespace, pod)
    inside = next((json.loads(text[text.index("{") :]) for _, text in lines if '"container"' in text), None)
    if inside is None:
        raise Missed(f"{pod} did not run the script: {lines[-1:]}")
    return _line(api, user, pod), inside


def _line(api: Api, user: User, pod: str) -> float:
    found = [moment for moment, text in log_of(api, user.namespace, pod) if text.endswith(LINE)]
    if not found:
        raise Missed(f"{pod} did not print the line")
    return min(found)


def _ended(times: dict[str, dict[str, float]], start: str) -> int:
    return sum(name.startswith(start) and ENDED in known for name, known in times.items())


def _note(parts: Parts, moments: dict[str, float], begin: float) -> None:
    for name, moment in moments.items():
        parts.setdefault(name, []).append(moment - begin)


def _shown(name: str, parts: Parts) -> dict[str, float]:
    """Prints the medians, each counted from the start of the command."""
    print(f"\nwhere the time of `{name}` goes (medians, from the start of the command)")
    medians = {part: statistics.median(found) for part, found in parts.items()}
    for part, median in sorted(medians.items(), key=lambda item: item[1]):
        print(f"  {median:6.2f} s  {part}")
    return medians


if __name__ == "__main__":
    sys.exit(main())
