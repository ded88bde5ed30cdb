"""A namespace of a Kubernetes cluster as a `Backend`, for users who may create Jobs in it and nothing more, and for
those who have an operator that looks after ElasticJobs; what differs between the two is in `job_owner.py`.

Every job's truth is in its objects (`manifests.py`), so any machine with the same access sees, follows and ends it.
What happens inside a running job is asked of its coordinator, through the API server; once it has ended, its pod's
last words say how.
"""

from __future__ import annotations

import base64
import builtins
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.clusters.backend import ALL_NEEDS, COORDINATOR, NODE, Ask, Backend, Inspection, no_such_job
from petctl.clusters.base import EXEC, FORWARD, JOIN, SCALE, Cluster, Listed
from petctl.clusters.kubernetes import job_status, logs
from petctl.clusters.kubernetes.coordinator_client import CoordinatorClient, running
from petctl.clusters.kubernetes.job_owner import Owner, Owners
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.names import MANAGED, node_of, object_name, selector
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.kubernetes.pods import node_losses, pod_termination, unschedulable
from petctl.clusters.managed import ManagedCluster, check_stores, is_short, not_over
from petctl.clusters.printed import Item, Printed, final_status
from petctl.controller.job_files import GRANTS
from petctl.errors import InternalError, NotFound
from petctl.job.record import JobRecord
from petctl.job.spec import Job
from petctl.job.status import JobStatus
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import KubernetesError, NoSuchObject, NotRunning, ObjectExists
from petctl.kube.kubeconfig import find_access
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.messages import Outcome
from petctl.rendezvous.net.join_file import JoinFile

if TYPE_CHECKING:
    import socket

Pod = dict[str, Any]


def connect(home: Path, settings: Mapping[str, Any]) -> Cluster:
    """What `find_cluster` calls."""
    return ManagedCluster(KubernetesBackend(home, settings))


class KubernetesJob(Inspection):
    """A job's owner and its coordinator's pods, as they were when they were read."""

    over = False

    def __init__(self, backend: KubernetesBackend, job_id: str, owner: Owner, pods: Items) -> None:
        self._backend, self.job_id, self.owner, self._pods = backend, job_id, owner, pods
        self._message = job_status.ended(owner.object, pods)
        self.over, self.asks, self.suspended = self._message is not None, bool(running(pods)), owner.suspended
        self.begun = job_status.was_replaced(owner.object, pods)

    def status(self) -> JobStatus:
        if self._message is None:
            return self._named(self._unheard())
        printed = logs.last_status(*self._backend.place, self._pods)
        return self._named(self._with_ends(final_status(self._record(), self._message, printed)))

    def ask(self, call: str, patience: float = 30.0, **params: Any) -> Any:
        return self._backend.coordinators.ask(self.job_id, self._pods, call, patience, **params)

    def wait(self, timeout: float) -> None:
        self._backend.coordinators.wait_for_pods(self.job_id, self._pods.version, timeout)

    def explain(self, status: JobStatus) -> JobStatus:
        if is_short(status):
            troubles = partial(unschedulable.troubles, *self._backend.place)
            status = unschedulable.explained(status, self._nodes(), partial(self.owner.refusal, NODE), troubles)
        return self._named(self._with_ends(status))

    def _named(self, status: JobStatus) -> JobStatus:
        return replace(status, cluster=self._backend.name)

    def ends(self) -> list[pod_termination.End]:
        """How lost nodes' pods ended."""
        return pod_termination.ends_of(self._nodes("status.phase=Failed"), self.owner.object)

    def _with_ends(self, status: JobStatus) -> JobStatus:
        """The status with what was the end of pods, where that matters."""
        if not pod_termination.may_have_lost(status):
            return status
        ends = self.ends()
        if not ends and status.finished is not None:
            ends = node_losses.vanished(*self._backend.place, self.job_id)
        return pod_termination.explained(status, ends)

    def _unheard(self) -> JobStatus:
        """The status of a job whose coordinator cannot be asked: it has said its last word, or is yet to come."""
        printed = logs.last_status(*self._backend.place, running(self._pods))
        if printed:
            return not_over(printed)
        trouble = partial(unschedulable.trouble_of, *self._backend.place)
        refused = trouble(self._pods) if self._pods else self.owner.refusal(COORDINATOR)
        return job_status.waiting_status(self._record(), self.owner.object, self._pods, refused, self._nodes)

    def _nodes(self, *fields: str) -> Items:
        return self._backend.pods(selector(self.job_id, NODE), *fields)

    def _record(self) -> JobRecord:
        """The job's, or what stands for it where its submission was cut short."""
        try:
            return self._backend.record(self.job_id)
        except NotFound:
            return job_status.bare_record(self.job_id, self._backend.name, self.owner.object)


class PodOutput(Printed):
    """What the pods of one role of a job print."""

    def __init__(self, place: tuple[Api, str], job_id: str, role: str) -> None:
        self._place, self._id, self._role = place, job_id, role
        self._read: dict[str, logs.LogPosition] = {}

    def so_far(self, then_follow: bool = False) -> Iterator[Item]:
        which = selector(self._id, self._role)
        return logs.lines_so_far(*self._place, which, self._read if then_follow else None)

    def follow(self, over: Callable[[], bool]) -> Iterator[Item]:
        from petctl.clusters.kubernetes.log_follow import lines_as_they_come

        return lines_as_they_come(*self._place, selector(self._id), self._role, over, self._read)


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
        from petctl.clusters.kubernetes.summaries import Summaries

        return Summaries(*self.place, self._owners, self.name, self.record).list(wanted)

    def inspect(self, job_id: str) -> KubernetesJob:
        try:
            owner = self._owners.find(job_id)
        except NoSuchObject:
            raise no_such_job(job_id, self.name) from None
        return KubernetesJob(self, job_id, owner, self.coordinators.pods(job_id))

    def printed(self, job_id: str, role: str) -> PodOutput:
        return PodOutput(self.place, job_id, role)

    def explain_events(self, job_id: str, events: Iterator[dict[str, Any]], follow: bool) -> Iterator[dict[str, Any]]:
        """The coordinator's, with how lost nodes' pods ended."""
        if follow:
            return node_losses.explained_as_they_come(events, partial(self._ends_so_far, job_id))
        ends = self._ends_so_far(job_id)
        known = {end.uid for end in ends}  # an operator remembers what is an event too
        ends += [end for end in node_losses.vanished(*self.place, job_id) if end.uid not in known]
        return node_losses.explained(events, ends)

    def _ends_so_far(self, job_id: str) -> builtins.list[pod_termination.End]:
        """None where they cannot be had: what a coordinator tells is told without them."""
        with suppress(KubernetesError):
            found = self.pods(selector(job_id, NODE), "status.phase=Failed")
            return pod_termination.ends_of(found, self._owners.find(job_id).object)
        return []

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
        from petctl.clusters.kubernetes.capacity import machines

        return machines(self._api)

    def nodes(self, job: KubernetesJob) -> Mapping[str, Pod]:
        found = {node_of(pod): pod for pod in running(self.pods(selector(job.job_id, NODE)))}
        return {name: found[name] for name in sorted(found, key=natural)}

    def dial(self, node: Pod, port: int) -> socket.socket:
        return self._api.dial(self.place[1], node["metadata"]["name"], port)

    def execute(self, job: KubernetesJob, node: Pod, argv: Sequence[str]) -> int:
        """In its pod, with the environment of a worker that runs there."""
        from petctl.clusters.kubernetes.worker_command import worker_command

        words = worker_command(node, job.job_id, self.record(job.job_id).task, argv)
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
