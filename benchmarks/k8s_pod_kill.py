"""Claim: a pod that is removed from a training on Kubernetes costs the others at most 1 s, in place.

The same DistributedDataParallel training (PyTorch, gloo, three pods with one worker each) loses one of its pods:

    other    deleted as by `kubectl delete pod --force --grace-period=0`; not rank 0's, nor torchrun's with the store
    rank0    the same with rank 0's; for torchrun, with the one that keeps the store
    killed   rank 0's again, but all of its processes get SIGKILL, and nobody is told

under petctl in place (programs/ddp_elastic.py), petctl warm (programs/ddp.py, as torchrun's users write it) and
torchrun with its best settings (BEST_* in subjects.py) in an Indexed Job, whose pods start at the same moment.

"until the next step" runs from the request or the signal to the first step that all ranks of the next group have
made; "seconds lost" is the time without a step between. All pods write their steps into one file, with the clock that
they share, so it needs the development cluster:

    python -m tests.k8s.cluster run .venv/bin/python benchmarks/k8s_pod_kill.py

PyTorch is a directory of the machine that pods mount, and so is the cache in which petctl keeps what a script imports:
as a volume would, it outlives the pods, and nodes are warm when they train.
"""

from __future__ import annotations

import json
import math
import secrets
import statistics
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from common import PROGRAMS, Claim, Missed, Samples, finish, interleave, options, print_table
from k8s_stage import ENDED, RUNS, Sightings, administrator, events_of, first_process, stage
from processes import Marks, kill
from restart import lost
from subjects import BEST_ENVIRONMENT, BEST_OPTIONS, BEST_RENDEZVOUS, QUICK_KEEP_ALIVE
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.test_elastic import packages_of
from tests.k8s.user import User

from petctl.clusters.kubernetes.names import object_name
from petctl.kube.api import Api, path

VICTIMS = ("other", "rank0", "killed")
IN_PLACE, WARM, TORCHRUN = "petctl, in place", "petctl, warm", "torchrun, best settings"
SYSTEMS = {IN_PLACE: "ddp_elastic.py", WARM: "ddp.py", TORCHRUN: "ddp.py"}
NODES = 3
PACE = 0.02
PACKAGES = "/usr/local/lib/python3.11/dist-packages"
"""Where the image's interpreter has its own: what comes by PYTHONPATH is the user's, and not imported ahead."""
START = 180.0
MOST = 1.0


class Scene:
    """One namespace, what pods mount, and one training at a time."""

    def __init__(self, user: User, api: Api, seen: Sightings, torch: Path) -> None:
        self.user, self.api, self.seen, self.torch = user, api, seen, torch
        self.cache = user.project.parent / "cache"
        self.cache.mkdir()
        for name in ("workload.py", *set(SYSTEMS.values())):
            (user.project / name).write_bytes((PROGRAMS / name).read_bytes())

    @contextmanager
    def marks(self) -> Iterator[Marks]:
        """The file of the pods' steps, as this side sees it; pods have its directory at /marks."""
        directory = self.user.project.parent / f"marks-{secrets.token_hex(3)}"
        directory.mkdir()
        found = Marks(directory / "steps")
        try:
            yield found
        finally:
            found.close()

    def pod(self, marks: Marks) -> dict[str, Any]:
        """The piece of a pod template that all trainings share."""
        places = {"torch": self.torch, "cache": self.cache, "marks": marks.path.parent, "programs": PROGRAMS}
        mounted = {name: PACKAGES if name == "torch" else f"/{name}" for name in places}
        values = {"XDG_CACHE_HOME": "/cache", "OMP_NUM_THREADS": "1"}
        return {
            "containers": [
                {
                    "env": [{"name": name, "value": value} for name, value in values.items()],
                    "volumeMounts": [{"name": name, "mountPath": place} for name, place in mounted.items()],
                }
            ],
            "volumes": [{"name": name, "hostPath": {"path": str(place)}} for name, place in places.items()],
        }

    def lose(self, start: str, victim: str) -> float:
        """The pod whose name starts so is lost; the moment before."""
        times = self.seen.times.items()
        (name,) = [name for name, known in times if name.startswith(start) and ENDED not in known]
        first = first_process(self.seen.pods[name])
        if first is None:
            raise Missed(f"{name} has no process on this machine")
        moment = time.monotonic()
        if victim == "killed":
            kill(first[1])  # the first of a process namespace: the kernel ends all the others
        else:
            self.api.delete(path("pods", self.user.namespace, name), grace=0)
        return moment


@contextmanager
def petctl_job(scene: Scene, system: str, marks: Marks) -> Iterator[str]:
    """A job of petctl's that steps; its id."""
    user = scene.user
    settings = json.loads((user.project / "petctl.yaml").read_text())
    settings["clusters"]["k8s"]["pod"] = {"spec": scene.pod(marks)}
    (user.project / "petctl.yaml").write_text(json.dumps(settings))
    job = user.submit("-n", f"1:{NODES}:{NODES}", SYSTEMS[system], "/marks/steps", "--pace", str(PACE))
    try:
        marks.stepping(START, world=NODES, steps=100)
        yield job
    finally:
        for words in (("cancel", "--kill", job), ("wait", job), ("rm", job)):
            user.petctl(*words)


def teach(scene: Scene, system: str) -> None:
    """Run until it is known what the workers import."""
    known = scene.cache / "petctl" / "preload"
    before = set(known.glob("*.json"))
    with scene.marks() as marks, petctl_job(scene, system, marks):
        marks.until("imports learnt", lambda _: 0.0 if set(known.glob("*.json")) - before else None, START)


def petctl(scene: Scene, system: str, victim: str, parts: dict[str, list[float]]) -> list[float]:
    """One loss under petctl."""
    with scene.marks() as marks, petctl_job(scene, system, marks) as job:
        status = scene.user.status(job)
        ranks = {node["rank"]: node["name"] for node in status["nodes"] if node["rank"] is not None}
        node = ranks[NODES - 1 if victim == "other" else 0]
        moment = scene.lose(f"{object_name(job)}-node-{node}-", victim)
        took = measured(marks, moment, START)
        (coordinator,) = [name for name in scene.seen.times if name.startswith(f"{object_name(job)}-coordinator-")]
        _note_parts(parts, events_of(scene.api, scene.user.namespace, coordinator), moment, took[0])
        return took


@contextmanager
def torchrun_job(scene: Scene, marks: Marks) -> Iterator[str]:
    """An Indexed Job of torchrun's that steps; its name."""
    user, name = scene.user, f"torchrun-{secrets.token_hex(3)}"

    def all_run(times: Mapping[str, Mapping[str, float]]) -> bool:
        return sum(pod.startswith(name) and RUNS in known for pod, known in times.items()) == NODES

    user.cluster.kubectl.apply(_torchrun(scene, marks, name), user.there)
    try:
        scene.seen.wait("all torchrun pods run", all_run, START)
        (marks.path.parent / "go").touch()
        try:
            marks.stepping(START, world=NODES, steps=100)
        except Missed as missed:
            raise Missed(f"at the start: {missed}") from None
        yield name
    finally:
        user.cluster.kubectl("delete", "job,service", name, user.there, "--cascade=foreground")


def torchrun(scene: Scene, victim: str, deadline: float) -> list[float]:
    """One loss under torchrun."""
    with scene.marks() as marks, torchrun_job(scene, marks) as name:
        moment = scene.lose(f"{name}-{1 if victim == 'other' else 0}-", victim)
        return measured(marks, moment, deadline)


def _torchrun(scene: Scene, marks: Marks, name: str) -> list[dict[str, Any]]:
    """Pods that find each other through the first one's store; they wait for a file, so that they start together."""
    settings = f"is_host=$((JOB_COMPLETION_INDEX == 0)),{BEST_RENDEZVOUS},{QUICK_KEEP_ALIVE}"
    words = ["python3 -m torch.distributed.run", f"--nnodes {NODES - 1}:{NODES} --nproc-per-node 1 --rdzv-backend c10d"]
    words += [f"--rdzv-id {name} --rdzv-endpoint {name}-0.{name}:29400 --local-addr $ADDRESS", *BEST_OPTIONS]
    words += [f"--rdzv-conf {settings}", f"/programs/{SYSTEMS[TORCHRUN]} /marks/steps --pace {PACE}"]
    wait = "until [ -e /marks/go ]; do sleep 0.05; done"
    spec = scene.pod(marks)
    (container,) = spec["containers"]
    container |= {
        "name": "main",
        "image": scene.user.cluster.image("3.11"),
        "command": ["sh", "-c", f"{wait}; exec {' '.join(words)}"],
    }
    container["env"] += [{"name": variable, "value": value} for variable, value in BEST_ENVIRONMENT.items()]
    container["env"].append({"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    pod = {
        "metadata": {"labels": {"torchrun": name}},
        "spec": {**spec, "restartPolicy": "OnFailure", "subdomain": name, "terminationGracePeriodSeconds": 1},
    }
    job = {
        "completionMode": "Indexed",
        "completions": NODES,
        "parallelism": NODES,
        "backoffLimit": 1000,
        "template": pod,
    }
    service = {"clusterIP": "None", "selector": {"torchrun": name}, "publishNotReadyAddresses": True}
    about = {"metadata": {"name": name}}
    return [
        {"apiVersion": "v1", "kind": "Service", **about, "spec": service},
        {"apiVersion": "batch/v1", "kind": "Job", **about, "spec": job},
    ]


def measured(marks: Marks, moment: float, deadline: float) -> list[float]:
    """[until the next step, seconds lost]."""
    following = marks.stepping(deadline, after=moment)
    return [following - moment, lost(marks.read(), moment, following)]


def _note_parts(parts: dict[str, list[float]], events: list[dict[str, Any]], moment: float, took: float) -> None:
    """What the coordinator wrote down about the loss, from its moment on."""
    begin = time.time() - time.monotonic() + moment
    for kind, text in (("round", "a new round is opened"), ("running", "... and starts")):
        after = [event["time"] for event in events if event["kind"] == kind and event["time"] > begin]
        if after:
            parts.setdefault(text, []).append(min(after) - begin)
    parts.setdefault("all ranks have stepped", []).append(took)


def measure(
    scene: Scene, chosen: Namespace, victim: str, parts: dict[str, dict[str, list[float]]]
) -> tuple[list[Samples], list[Samples]]:
    """All systems in turn: until the next step, and seconds lost."""
    losses = {name: Samples(name) for name in SYSTEMS}

    def both(name: str, take: Callable[[], list[float]]) -> float:
        try:
            following, seconds = take()
        except Missed as missed:
            losses[name].seconds.append(math.inf)
            losses[name].reasons.append(str(missed))
            raise
        losses[name].seconds.append(seconds)
        return following

    takes: dict[str, Callable[[], list[float]]] = {}
    for name in (IN_PLACE, WARM):
        takes[name] = partial(petctl, scene, name, victim, parts.setdefault(f"{victim}: {name}", {}))
    takes[TORCHRUN] = partial(torchrun, scene, victim, chosen.deadline)
    takes = {name: take for name, take in takes.items() if not chosen.system or name in chosen.system}
    following = interleave(chosen.pairs, {name: partial(both, name, take) for name, take in takes.items()})
    return list(following.values()), [losses[name] for name in takes]


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--victim", choices=VICTIMS, action="append", help="default: all three")
    parser.add_argument("--system", choices=tuple(SYSTEMS), action="append", help="default: all three")
    parser.add_argument("--deadline", type=float, default=120.0, metavar="SECONDS", help="for torchrun (default: 120)")
    chosen = parser.parse_args()
    cluster = Cluster.attach()
    if cluster is None or not cluster.own:
        print("it needs the development cluster, whose pods share this machine's clock: see --help", file=sys.stderr)
        return 2
    tables: dict[str, list[Samples]] = {}
    parts: dict[str, dict[str, list[float]]] = {}
    claims = []
    with stage(cluster) as user, administrator(user) as api, Sightings(api, user.namespace) as seen:
        scene = Scene(user, api, seen, packages_of(chosen.torch_python))
        for system in chosen.system or SYSTEMS:
            if system != TORCHRUN:
                teach(scene, system)
        for victim in chosen.victim or VICTIMS:
            following, losses = measure(scene, chosen, victim, parts)
            tables[f"{victim}: until the next step"], tables[f"{victim}: seconds lost"] = following, losses
            for title in (f"{victim}: until the next step", f"{victim}: seconds lost"):
                print_table(title, tables[title], following[0].name)
            row = next((row for row in following if row.name == IN_PLACE), None)
            if row is not None:
                text = f"{victim}: in place, {row.median:.2f} s until the survivors step (at most {MOST:g})"
                claims.append(Claim(text, row.median <= MOST))
    medians = {
        name: {part: statistics.median(found) for part, found in each.items()} for name, each in parts.items() if each
    }
    if medians:
        print("\nwhere petctl's time goes (medians, from the loss)")
    for name, each in medians.items():
        print(f"  {name:28} " + ", ".join(f"{part} {median:.2f} s" for part, median in each.items()))
    return finish("k8s_pod_kill", chosen.output, tables, claims, {"parts": medians})


if __name__ == "__main__":
    sys.exit(main())
