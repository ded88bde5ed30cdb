"""A namespace of a Kubernetes cluster as a `Backend`, for users who may create Jobs in it and nothing more, and for
those who have an operator that looks after ElasticJobs; what differs between the two is in `job_owner.py`.

Every job's truth is in its objects (`manifests.py`), so any machine with the same access sees, follows and ends it.
What happens inside a running job is asked of its coordinator, through the API server; once it has ended, its pod's
last words say how.
"""

from __future__ import annotations

import base64
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.clusters.backend import ALL_NEEDS, COORDINATOR, NODE, Ask, Backend, no_such_job
from petctl.clusters.base import EXEC, FORWARD, JOIN, SCALE, Cluster, Listed
from petctl.clusters.foreground import worker_command
from petctl.clusters.kubernetes.coordinator_client import CoordinatorClient
from petctl.clusters.kubernetes.job_owner import Owners
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.kubernetes_job import KubernetesJob
from petctl.clusters.kubernetes.names import CONTAINER, JOB, MANAGED, ROLE, node_of, object_name, selector
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.managed import ManagedCluster, check_stores
from petctl.clusters.printed import Item, Printed
from petctl.controller.job_files import GRANTS
from petctl.errors import InternalError, NotFound
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import KubernetesError, NoSuchObject, NotRunning, ObjectExists
from petctl.kube.kubeconfig import find_access
from petctl.kube.objects import labels_of, machines, running
from petctl.kube.pod_logs import PodLogs
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.messages import Outcome
from petctl.rendezvous.net.join_file import JoinFile

if TYPE_CHECKING:
    import socket

Pod = dict[str, Any]


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return ManagedCluster(KubernetesBackend(home, settings))


class PodOutput(Printed):
    """What the pods of one role of a job print."""

    def __init__(self, place: tuple[Api, str], job_id: str, role: str) -> None:
        self._logs = PodLogs(*place, CONTAINER, selector(job_id), (ROLE, role))

    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        return ((node_of(pod), line) for pod, line in self._logs.so_far(then_follow))

    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        return ((node_of(pod), line) for pod, line in self._logs.follow(over, ends=COORDINATOR))


class NamespaceSecrets:
    """The namespace's own Secret, as a SecretStore."""

    def __init__(self, backend: KubernetesBackend) -> None:
        self._backend = backend

    def names(self) -> list[str]:
        try:
            return sorted(self._backend.get("secrets", make.SECRETS).get("data") or {})
        except NoSuchObject:
            return []

    def set(self, name: str, value: str) -> None:
        body = {"stringData": {name: value}}
        try:
            self._change(body)
        except NoSuchObject:
            metadata = {"name": make.SECRETS, "labels": dict(MANAGED)}
            self._backend.make({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **body})

    def remove(self, name: str) -> None:
        self._change({"data": {name: None}})

    def _change(self, body: dict[str, Any]) -> None:
        api, namespace = self._backend.place
        api.patch(path("secrets", namespace, make.SECRETS), body)


class KubernetesBackend(Backend[KubernetesJob]):
    """The jobs of one namespace."""

    capabilities = frozenset({SCALE, EXEC, FORWARD, JOIN})
    honours = ALL_NEEDS

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home, self.settings, self.name = home, settings, str(settings["name"])
        self.secrets = NamespaceSecrets(self)

    @cached_property
    def _api(self) -> Api:
        return Api(find_access(self.settings))

    @property
    def place(self) -> tuple[Api, str]:
        """The API and the namespace."""
        return self._api, self._api.access.namespace

    @cached_property
    def coordinators(self) -> CoordinatorClient:
        """Those of the namespace."""
        return CoordinatorClient(*self.place)

    @cached_property
    def _owners(self) -> Owners:
        return Owners(*self.place)

    def pods(self, which: str, *fields: str) -> Items:
        """Those that the selector finds."""
        return self._api.list(path("pods", self.place[1]), which, *fields)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object of the namespace."""
        return self._api.get(path(kind, self.place[1], name))

    def make(self, manifest: dict[str, Any]) -> None:
        """Creates an object in the namespace."""
        self._api.create(path(f"{manifest['kind'].lower()}s", self.place[1]), manifest)

    # -- submitting ----------------------------------------------------------------------------------------------------

    def request(self, job: Job, job_id: str, code: Mapping[str, Any] | None) -> JobRecord:
        from petctl.clusters.kubernetes.build_record import build_record

        return build_record(job, job_id, self.home, self.place[1], self.settings, code)

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> list[dict[str, Any]]:
        """The objects that `create` makes, but for their owner: its uid is not known before it is there."""
        from petctl.clusters.kubernetes.build_record import build_record
        from petctl.clusters.kubernetes.payload import material, new_credentials

        namespace = self.place[1]
        record = build_record(job, job_id, self.home, namespace, self.settings, None, make.SMALL_PIECE, False)
        request = KubernetesRequest.of(record)
        names = [*make.CREDENTIALS, *([GRANTS] if record.grants else [])]
        credentials: Mapping[str, bytes | None] = dict.fromkeys(names)
        if with_secrets:
            check_stores(record, self.home)  # whoever creates the objects cannot send the code
            credentials = new_credentials(record, self.home)
        objects = [*material(record, credentials), *request.claims, *request.objects]
        return [make.free(manifest, namespace) for manifest in objects]

    def create(self, record: JobRecord) -> None:
        """Makes the owner first, asleep, then all that it owns, then wakes it: cut short, it leaves one that sleeps.

        Nodes are made last: where a quota has room for a few pods only, the coordinator's must be one of them.
        """
        from petctl.clusters.agent_archive import agent_files
        from petctl.clusters.kubernetes.payload import material, new_credentials

        request = KubernetesRequest.of(record)
        first, *others = request.objects
        nodes = [manifest for manifest in others if manifest["kind"] == "Job"]
        owner = self._owners.create(record.id, first)
        try:
            beside = [manifest for manifest in others if manifest not in nodes]
            if request.agent:
                owner.share(make.shared_agent(agent_files(make.STATE)))
            for manifest in [*material(record, new_credentials(record, self.home)), *beside]:
                self.make(make.owned(manifest, owner.object))
            for claim in request.claims:
                own = claim["metadata"].get("labels")  # the others outlive the job
                with suppress(ObjectExists):
                    self.make(make.owned(claim, owner.object) if own else claim)
            owner.resume()
            for manifest in nodes:
                self.make(make.owned(manifest, owner.object))
        except BaseException:
            with suppress(KubernetesError):  # why it failed is what the user must hear
                self._api.delete(owner.place)
            raise

    def record(self, job_id: str) -> JobRecord:
        try:
            text = self.get("configmaps", object_name(job_id))["data"]["job.json"]
        except (NoSuchObject, KeyError):  # or something of that name which is no job's
            raise no_such_job(job_id, self.name) from None
        try:
            record = JobRecord.from_dict(json.loads(text))
        except ValueError as error:
            raise InternalError(
                f"the ConfigMap {object_name(job_id)} is not the record of a job ({error}); "
                f"remove the job with: petctl rm {job_id}"
            ) from None
        return replace(record, cluster=self.name)  # its name there may be another, or none

    def keeps_code(self, record: JobRecord) -> bool:
        return KubernetesRequest.of(record).pieces > 0

    def fetch_code(self, record: JobRecord, target: Path) -> None:
        with target.open("wb") as file:
            for number in range(KubernetesRequest.of(record).pieces):
                piece = self.get("configmaps", make.piece_name(record.id, number))
                file.write(base64.b64decode(piece["binaryData"]["piece"]))

    # -- reading -------------------------------------------------------------------------------------------------------

    def list(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        owners = self._owners.all()
        these = {job_id for job_id in owners if wanted(job_id)}
        pods: dict[tuple[str, str], Items] = {}
        for pod in self.pods(ROLE) if these else ():
            labels = labels_of(pod)
            pods.setdefault((str(labels.get(JOB)), str(labels.get(ROLE))), Items()).append(pod)
        for job_id, owner in owners.items():
            if job_id not in these:
                yield Listed(job_id)
                continue
            its = [pods.get((object_name(job_id), role), Items()) for role in (COORDINATOR, NODE)]
            try:
                yield Listed(job_id, KubernetesJob(self, owner, *its).summary())
            except (InternalError, NotFound) as error:
                yield Listed(job_id, error=error)

    def inspect(self, job_id: str) -> KubernetesJob:
        try:
            owner = self._owners.find(job_id)
        except NoSuchObject:
            raise no_such_job(job_id, self.name) from None
        return KubernetesJob(self, owner, self.coordinators.pods(job_id))

    def printed(self, job_id: str, role: str) -> PodOutput:
        return PodOutput(self.place, job_id, role)

    # -- changing ------------------------------------------------------------------------------------------------------

    def resize(self, job: KubernetesJob, wanted: int, ask: Ask) -> str:
        return job.owner.scale(ask, wanted)

    def stop(self, job: KubernetesJob, outcome: Outcome) -> None:
        """Puts it to sleep for ever, which ends its pods."""
        known = {"state": outcome.state, "code": outcome.code, "sentence": outcome.sentence}
        job.owner.suspend(json.dumps({"outcome": known, "finished": time.time()}))

    def delete(self, job: KubernetesJob) -> None:
        job.owner.delete()

    def stuck_advice(self, job_id: str) -> str:
        """Shows where its pods are to be seen: a machine that is gone keeps them."""
        pods = f"kubectl -n {self.place[1]} get pods -l {selector(job_id)}"
        return f"Its pods may be on a machine that does not answer; see: {pods}. Then"

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def capacity(self) -> dict[str, object]:
        return machines(self._api)

    def nodes(self, job: KubernetesJob) -> Mapping[str, Pod]:
        found = {node_of(pod): pod for pod in running(self.pods(selector(job.job_id, NODE)))}
        return {name: found[name] for name in sorted(found, key=natural)}

    def dial(self, node: Pod, port: int) -> socket.socket:
        return self._api.dial(self.place[1], node["metadata"]["name"], port)

    def execute(self, job: KubernetesJob, node: Pod, argv: Sequence[str]) -> int:
        """In its pod, with the environment of a worker that runs there."""
        task, command = self.record(job.job_id).task, node["spec"]["containers"][0]["command"]
        own = {**task.env, "PETCTL_JOB_ID": job.job_id, "PETCTL_NODE": node_of(node)}
        cwd = make.code_directory(task.code) if task.code.id else task.cwd
        words = worker_command(command[: command.index(make.ARCHIVE)], own, cwd, argv)
        tty, name = sys.stdin.isatty() and sys.stdout.isatty(), node["metadata"]["name"]
        try:
            return self._api.execute(self.place[1], name, words, "petctl", tty, sys.stdin, sys.stdout, sys.stderr)
        except NotRunning as error:  # its pod is still shown as running for a moment after the container has ended
            raise NotFound(f"{job.job_id} has no running node {node_of(node)!r}: {error}") from None

    def join_file(self, job: KubernetesJob, address: str | None) -> JoinFile:
        """The one that the nodes' pods have; it leads to the coordinator from inside of the cluster."""
        join = self.coordinators.join_file(job.job_id)
        if not address:
            return join
        return replace(join, locator={"address": address if ":" in address else f"{address}:{make.PORT}"})
