"""The operator's process: caches tell what changed, a queue says which job is next, and each look decides and acts.

    ElasticJobs, Pods, Services, Nodes  -->  Queue  -->  look: decide (reconcile.py), carry out (apply.py)
         (cache.py, while it leads)                      some threads, never two at one job

Only the one that holds the Lease does any of this (`leader.py`); the others wait. All that it knows it can read again,
so it ends at any time without harm. It also answers who asks how it is (`health.py`).
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Container, Sequence
from functools import partial
from typing import Any

from petctl.clusters.kubernetes.elastic_jobs import KIND
from petctl.clusters.kubernetes.names import MANAGED, NODE, NUMBER, object_name
from petctl.clusters.kubernetes.operator.actions import SpareReply
from petctl.clusters.kubernetes.operator.apply import Acting, Done, Malformed, StepBlocked
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, read_job
from petctl.clusters.kubernetes.operator.observation import Seen
from petctl.clusters.kubernetes.operator.pod_state import took_room
from petctl.clusters.kubernetes.operator.reconcile import decide
from petctl.clusters.kubernetes.operator.runtime.cache import Cache, Object, without_managed_fields
from petctl.clusters.kubernetes.operator.runtime.health import Health, serve_health
from petctl.clusters.kubernetes.operator.runtime.leader import Leader
from petctl.clusters.kubernetes.operator.runtime.metrics import JobMetrics
from petctl.clusters.kubernetes.operator.runtime.options import Options, parse_options
from petctl.clusters.kubernetes.operator.runtime.queue import LONGEST, Queue
from petctl.clusters.kubernetes.operator.runtime.rights import watch_rights
from petctl.errors import PetctlError, Unreachable, UsageError
from petctl.kube.api import Api, path
from petctl.kube.failures import Conflict
from petctl.kube.kubeconfig import find_access
from petctl.kube.objects import has_ended
from petctl.log_setup import log_to_stderr

LEASE = "petctl-operator"
LEASE_WITHIN = 4.0  # seconds for an answer about it: one that never comes must leave time for another attempt
HINDERED = 5.0  # seconds between two attempts, at most, where somebody may raise a quota at any time
SYNC_WITHIN = 60.0  # seconds for the first lists, before somebody is told what takes so long
_OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())
_ROUNDS = 3  # of one look: a coordinator's answer leads to another decision

Key = tuple[str, str]
log = logging.getLogger("petctl.clusters.kubernetes.operator.run")  # also where it is run with -m


def main(words: Sequence[str] | None = None) -> int:
    """The command line of petctl-operator.pyz; its exit code."""
    try:
        options = parse_options(sys.argv[1:] if words is None else words)
        log_to_stderr(logging.INFO)
        run(options)
    except PetctlError as error:
        print(f"petctl-operator: {error}", file=sys.stderr)
        return error.code
    return 0


def run(options: Options) -> None:
    """Until SIGTERM or SIGINT."""
    settings = {"kubeconfig": options.kubeconfig, "context": options.context, "namespace": options.lease_namespace}
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    health = Health()
    access = find_access(settings)
    hasty = dataclasses.replace(access, answer_within=LEASE_WITHIN)
    with (
        Api(access, health.asked) as api,
        Api(hasty, health.asked) as leases,
        serve_health(health, options.health_port),
    ):
        operator = Operator(api, options, health)
        told = partial(setattr, health, "lacks")
        rights = threading.Thread(target=watch_rights, args=(api, options.namespace, told, stop), daemon=True)
        rights.start()
        who = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        log.info("%s waits to become leader in %s", who, access.namespace)
        health.stands_by()
        Leader(leases, access.namespace, LEASE, who, operator.lead).run(stop)
        stop.set()
        rights.join()
    log.info("%s ends", who)


class Operator:
    """All jobs of a cluster, or of one namespace, for as long as this process leads."""

    def __init__(self, api: Api, options: Options, health: Health) -> None:
        self._api, self._options, self._health = api, options, health

    def lead(self, lost: threading.Event) -> None:
        """Looks after them until the lead is lost."""
        log.info("became leader")
        looks = Looks(self._api, self._options.namespace, self._health)
        looks.start(self._options.workers)
        try:
            self._health.takes_up()
            if self._await_lists(looks, lost):
                self._health.leads()
            lost.wait()
        finally:
            self._health.stands_by()
            looks.stop()
            log.info("lost leadership")

    def _await_lists(self, looks: Looks, lost: threading.Event) -> bool:
        """Whether they came. Who loses the lead meanwhile must not go on waiting: looks begin when they are there."""
        late, said = time.monotonic() + SYNC_WITHIN, False
        while not looks.synced(1.0):
            if lost.is_set():
                return False
            if time.monotonic() > late and not said:
                log.warning("the first lists take longer than %g s; see the errors above", SYNC_WITHIN)
                said = True
        return True


class Looks:
    """One term of leading: caches, queue and threads, made anew each time, so that no old picture is used."""

    def __init__(self, api: Api, namespace: str, health: Health) -> None:
        self._health = health
        self._queue: Queue[Key] = Queue()
        self._room_at = 0.0
        self._rooms: dict[str, Any] = {}  # name of a machine -> what it has for pods
        self._said: dict[str, list[Any]] = {}  # uid of a job -> what its user wants
        self.jobs = Cache(api, path("elasticjobs", namespace), "", self._job_changed)
        self.pods = Cache(api, path("pods", namespace), f"{_OURS},{NUMBER}", self._pod_changed, slim_pod)
        self.services = Cache(api, path("services", namespace), _OURS, self._owned_changed)
        self.budgets = Cache(api, path("poddisruptionbudgets", namespace), _OURS, self._owned_changed)
        self.machines = Cache(api, path("nodes"), "", self._machine_changed, slim_machine)
        self._caches = [self.jobs, self.pods, self.services, self.budgets]
        if not namespace:  # who looks after one namespace has no rights beyond it
            self._caches.append(self.machines)
        self._acting = Acting(api, self.jobs, self.pods, self.budgets)
        self._metrics = JobMetrics(self.jobs, self._acting.totals)
        self._threads: list[threading.Thread] = []

    def start(self, workers: int) -> None:
        """Begins to list; looks begin when the lists are there, since nothing may be decided from half a picture."""
        for cache in self._caches:
            cache.start()
        self._threads = [threading.Thread(target=self._run, name=f"look {n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()
        self._metrics.start()
        self._health.jobs = self._metrics.text

    def synced(self, timeout: float) -> bool:
        """Whether all lists are there by then."""
        deadline = time.monotonic() + timeout
        return all(cache.synced(max(0.0, deadline - time.monotonic())) for cache in self._caches[:3])

    def stop(self) -> None:
        """Ends looks and watches; a look that is under way is ended first."""
        self._health.jobs = str
        self._metrics.stop()
        self._queue.close()
        for thread in self._threads:
            thread.join()
        for cache in self._caches:
            cache.stop()

    # -- what makes a job worth a look ---------------------------------------------------------------------------------

    def _job_changed(self, job: Object) -> None:
        """What its user has said anew. A status is the operator's own word: taken for news, it would follow itself."""
        about = job["metadata"]
        key = about["namespace"], about["name"]
        said = [about.get(part) for part in ("generation", "annotations", "deletionTimestamp")]
        known = self.jobs.get(*key)
        if known is None or known["metadata"]["uid"] != about["uid"]:  # it has gone, maybe with another in its place
            self._said.pop(about["uid"], None)
        elif said != self._said.get(about["uid"]):
            self._said[about["uid"]] = said
            self._queue.add(key)

    def _owned_changed(self, thing: Object) -> None:
        for owner in thing["metadata"].get("ownerReferences") or ():
            if owner["kind"] == KIND:
                self._queue.add((thing["metadata"]["namespace"], owner["name"]))

    def _pod_changed(self, pod: Object) -> None:
        self._owned_changed(pod)
        gone = self.pods.get(pod["metadata"]["namespace"], pod["metadata"]["name"]) is None
        if took_room(pod) and (gone or has_ended(pod)):
            self._room()

    def _machine_changed(self, machine: Object) -> None:
        name = machine["metadata"]["name"]
        if self.machines.get("", name) is None:
            self._rooms.pop(name, None)
        elif self._rooms.get(name) != machine["room"]:
            self._rooms[name] = machine["room"]
            self._room()

    def _room(self) -> None:
        """Some machine may have got room: those who were short of it try again."""
        self._room_at = time.time()
        for job in self.jobs.all():
            if (job.get("status") or {}).get("room"):
                self._queue.add((job["metadata"]["namespace"], job["metadata"]["name"]))

    # -- looking -------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.synced(1.0):
            if self._queue.closed:
                return
        while (key := self._queue.take()) is not None:
            self._health.looked()
            try:
                again = self._look(key)
            except (Conflict, Unreachable) as error:
                log.info("%s/%s: will retry: %s", *key, error)
                self._queue.failed(key)
            except PetctlError as error:
                log.warning("%s/%s: %s", *key, error)
                self._health.failed()
                self._queue.failed(key, HINDERED if isinstance(error, StepBlocked) else LONGEST)
            except Exception:
                log.exception("%s/%s", *key)
                self._health.failed()
                self._queue.failed(key)
            else:
                if again is not None:
                    self._queue.add_at(key, time.monotonic() + max(0.0, again - time.time()))
                self._queue.succeeded(key)

    def _look(self, key: Key) -> float | None:
        """When the next look is due, if nothing happens before."""
        found = self.jobs.get(*key)
        if found is None:
            return None
        done, again, malformed = Done(read_job(found), None, None), None, ""
        for _ in range(_ROUNDS):
            seen = self._seen(done.job, done.told)._replace(malformed=malformed)
            decision = decide(seen, time.time())
            again = decision.look_at
            try:
                done = self._acting.carry_out(done.job, decision)
            except Malformed as error:
                malformed = str(error)
                continue
            except (StepBlocked, UsageError) as error:
                done = Done(done.job, None, error)
            if done.told is None:
                break
        if done.obstacle is not None:
            self._acting.hindered(done.job, str(done.obstacle))
            raise done.obstacle
        return again

    def _seen(self, job: ElasticJob, told: SpareReply | None) -> Seen:
        name, place = object_name(job.id), job.namespace
        pods = self.pods.of(job.uid)
        service = self.services.get(place, name) is not None
        return Seen(job, pods, service, Taken(self.pods, job), self._room_at, told, kept=self._kept(place, name))

    def _kept(self, place: str, name: str) -> int | None:
        """What the job's PodDisruptionBudget says. Nothing waits for that list: an older role may not allow it."""
        if not self.budgets.synced(0.0):
            return None
        spec = (self.budgets.get(place, name) or {}).get("spec") or {}
        return int(spec.get("minAvailable") or 0)


class Taken(Container[int]):
    """The indices whose pod's name another pod has: looked up one by one, however large the job may be."""

    def __init__(self, pods: Cache, job: ElasticJob) -> None:
        self._pods, self._job = pods, job

    def __contains__(self, index: object) -> bool:
        return self._pods.get(self._job.namespace, f"{object_name(self._job.id)}-{NODE}-{index}") is not None


def slim_pod(pod: Object) -> Object:
    """What decisions about a pod need: not what it runs."""
    about = without_managed_fields(pod)["metadata"]
    return {"kind": "Pod", "metadata": about, "status": pod.get("status") or {}}


def slim_machine(machine: Object) -> Object:
    """Whether it takes pods, and how much it has for them."""
    status = machine.get("status") or {}
    ready = [entry["status"] for entry in status.get("conditions") or () if entry["type"] == "Ready"]
    spec = machine.get("spec") or {}
    room = [ready, bool(spec.get("unschedulable")), len(spec.get("taints") or ()), status.get("allocatable")]
    about = {key: machine["metadata"].get(key) for key in ("name", "uid", "resourceVersion")}
    return {"metadata": about, "room": room}


if __name__ == "__main__":
    sys.exit(main())
