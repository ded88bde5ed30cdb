"""The operator's process: caches tell what changed, a queue says which job is next, and each look decides and acts.

    ElasticJobs, Pods, Services, Nodes  -->  Queue  -->  look: decide (reconcile.py), carry out (acting.py)
         (cache.py, while it leads)                      some threads, never two at one job

Only the one that holds the Lease does any of this (`leader.py`); the others wait. All that it knows it can read again,
so it ends at any time without harm. It also answers who asks how it is (`health.py`).
"""

from __future__ import annotations

import logging
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from petctl.clusters.kubernetes.access import Access
from petctl.clusters.kubernetes.api import Api, Items, path
from petctl.clusters.kubernetes.elasticjobs import KIND
from petctl.clusters.kubernetes.failures import Conflict, KubernetesError
from petctl.clusters.kubernetes.kubeconfig import find_access
from petctl.clusters.kubernetes.names import MANAGED, NODE, NUMBER, object_name
from petctl.errors import PetctlError, Unreachable
from petctl.operator.acting import Acting, Obstacle
from petctl.operator.cache import Cache, Object, without_managed_fields
from petctl.operator.elasticjob import ElasticJob, read_job
from petctl.operator.health import Health, serve_health
from petctl.operator.leader import Leader
from petctl.operator.lives import ended, took_room
from petctl.operator.options import Options, parse_options
from petctl.operator.queue import Queue
from petctl.operator.reconcile import decide
from petctl.operator.seen import Seen
from petctl.operator.steps import Told

LEASE = "petctl-operator"
SYNC_WITHIN = 60.0  # seconds for the first lists, before somebody is told what takes so long
_OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())
_ROUNDS = 3  # of one look: a coordinator's answer leads to another decision

Key = tuple[str, str]
log = logging.getLogger("petctl.operator")


def main(words: Sequence[str] | None = None) -> int:
    """The command line of petctl-operator.pyz; its exit code."""
    try:
        options = parse_options(sys.argv[1:] if words is None else words)
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
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
    with CountedApi(find_access(settings), health) as api, serve_health(health, options.health_port):
        operator = Operator(api, options, health)
        who = f"{socket.gethostname()}-{secrets.token_hex(4)}"
        log.info("%s waits to lead in %s", who, api.access.namespace)
        health.stands_by()
        Leader(api, api.access.namespace, LEASE, who, operator.lead).run(stop)
    log.info("%s ends", who)


class CountedApi(Api):
    """The API, and how often it is asked."""

    def __init__(self, access: Access, health: Health) -> None:
        super().__init__(access)
        self._health = health

    def get(self, path: str, **query: str) -> Object:
        """One object."""
        self._health.called("get")
        return super().get(path, **query)

    def list(self, path: str, selector: str = "") -> Items:
        """All objects there."""
        self._health.called("list")
        return super().list(path, selector)

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """A new object."""
        self._health.called("create")
        return super().create(path, body)

    def patch(self, path: str, body: Any, kind: str = "merge") -> Object:
        """The object with changes."""
        self._health.called("patch")
        return super().patch(path, body, kind)

    def delete(
        self, path: str, propagation: str = "Background", grace: int | None = None, uid: str | None = None
    ) -> Object:
        """Has it removed."""
        self._health.called("delete")
        return super().delete(path, propagation, grace, uid)


class Operator:
    """All jobs of a cluster, or of one namespace, for as long as this process leads."""

    def __init__(self, api: Api, options: Options, health: Health) -> None:
        self._api, self._options, self._health = api, options, health

    def lead(self, lost: threading.Event) -> None:
        """Looks after them until the lead is lost."""
        log.info("leads")
        looks = Looks(self._api, self._options.namespace, self._health)
        looks.start(self._options.workers)
        try:
            if not looks.synced(SYNC_WITHIN):
                log.warning("the first lists take longer than %g s; see above for what fails", SYNC_WITHIN)
            self._health.leads()
            lost.wait()
        finally:
            self._health.stands_by()
            looks.stop()
            log.info("leads no longer")


class Looks:
    """One term of leading: caches, queue and threads, made anew each time, so that no old picture is used."""

    def __init__(self, api: Api, namespace: str, health: Health) -> None:
        self._health = health
        self._queue: Queue[Key] = Queue()
        self._room_at = 0.0
        self._machines: dict[str, Any] = {}
        self._said: dict[str, list[Any]] = {}  # uid of a job -> what its user wants
        self.jobs = Cache(api, path("elasticjobs", namespace), "", self._job_changed)
        self.pods = Cache(api, path("pods", namespace), f"{_OURS},{NUMBER}", self._pod_changed, slim_pod)
        self.services = Cache(api, path("services", namespace), _OURS, self._owned_changed)
        self._caches = [self.jobs, self.pods, self.services]
        if not namespace:  # who looks after one namespace has no rights beyond it
            self._caches.append(Cache(api, path("nodes"), "", self._machine_changed, slim_machine))
        self._acting = Acting(api, self.jobs, self.pods)
        self._threads: list[threading.Thread] = []

    def start(self, workers: int) -> None:
        """Begins to list; looks begin when the lists are there, since nothing may be decided from half a picture."""
        for cache in self._caches:
            cache.start()
        self._threads = [threading.Thread(target=self._run, name=f"look {n}", daemon=True) for n in range(workers)]
        for thread in self._threads:
            thread.start()

    def synced(self, timeout: float) -> bool:
        """Whether all lists are there by then."""
        deadline = time.monotonic() + timeout
        return all(cache.synced(max(0.0, deadline - time.monotonic())) for cache in self._caches[:3])

    def stop(self) -> None:
        """Ends looks and watches; a look that is under way is ended first."""
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
        before = self._said.get(about["uid"])
        if self.jobs.get(*key) is None:
            self._said.pop(about["uid"], None)
        elif said != before:
            self._said[about["uid"]] = said
            self._queue.add(key)

    def _owned_changed(self, thing: Object) -> None:
        for owner in thing["metadata"].get("ownerReferences") or ():
            if owner["kind"] == KIND:
                self._queue.add((thing["metadata"]["namespace"], owner["name"]))

    def _pod_changed(self, pod: Object) -> None:
        self._owned_changed(pod)
        gone = self.pods.get(pod["metadata"]["namespace"], pod["metadata"]["name"]) is None
        if took_room(pod) and (gone or ended(pod)):
            self._room()

    def _machine_changed(self, machine: Object) -> None:
        name, before = machine["metadata"]["name"], self._machines.get(machine["metadata"]["name"])
        self._machines[name] = machine["room"]
        if before != machine["room"]:
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
                log.info("%s/%s: again soon: %s", *key, error)
                self._queue.failed(key)
            except (KubernetesError, Obstacle) as error:
                log.warning("%s/%s: %s", *key, error)
                self._health.failed()
                self._queue.failed(key)
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
        job, told, again = read_job(found), None, None
        for _ in range(_ROUNDS):
            decision = decide(self._seen(job, told), time.time())
            again = decision.look_at
            try:
                job, told = self._acting.carry_out(job, decision)
            except Obstacle as obstacle:
                self._acting.hindered(job, str(obstacle))
                raise
            if told is None:
                break
        return again

    def _seen(self, job: ElasticJob, told: Told | None) -> Seen:
        name, place = object_name(job.id), job.namespace
        pods = self.pods.of(job.uid)
        known = {pod["metadata"]["name"] for pod in pods}
        names = {f"{name}-{NODE}-{index}": index for index in range(job.most + len(pods))}
        taken = {index for one, index in names.items() if one not in known and self.pods.get(place, one)}
        return Seen(job, pods, self.services.get(place, name) is not None, frozenset(taken), self._room_at, told)


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
