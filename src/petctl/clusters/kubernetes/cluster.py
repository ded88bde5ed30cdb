"""A namespace of a Kubernetes cluster as a `Cluster`, for users who may create Jobs in it and nothing more, and for
those who have an operator that looks after ElasticJobs; what differs between the two is in `job_owner.py`.

Every job's truth is in its objects (`manifests.py`), so any machine with the same access sees, follows and ends it.
What happens inside a running job is asked of its coordinator, through the API server; once it has ended, its pod's
last words say how.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

from petctl.clusters.base import Listed, LogFilter, LogLine
from petctl.clusters.kubernetes import job_status, logs
from petctl.clusters.kubernetes.coordinator_client import CoordinatorClient, running
from petctl.clusters.kubernetes.job_owner import Owner, Owners
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.logs import LogPosition
from petctl.clusters.kubernetes.names import COORDINATOR, MANAGED, NODE, node_of, object_name, selector
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.kubernetes.pods import node_losses, pod_termination, unschedulable
from petctl.clusters.patience import Patience
from petctl.clusters.printed import Item, event_lines, worker_lines
from petctl.errors import InternalError, NotFound, Unreachable, UsageError
from petctl.job.record import JobRecord, Output
from petctl.job.spec import Job
from petctl.job.status import JobStatus
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import KubernetesError, NoSuchObject, NotRunning, ObjectExists, ServerUnreachable
from petctl.kube.kubeconfig import find_access
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.net.join_file import write_join_file

WATCH = 20.0  # seconds that one question may stay open
LOOK_ANYWAY = 5.0  # seconds: not all that becomes of a job shows in its coordinator, or in the pods of that


def connect(home: Path, settings: Mapping[str, Any]) -> KubernetesCluster:
    """What `find_cluster` calls."""
    return KubernetesCluster(home, settings)


class KubernetesCluster:
    """The jobs of one namespace."""

    def __init__(self, home: Path, settings: Mapping[str, Any]) -> None:
        self.home, self.settings, self.name = home, settings, str(settings["name"])
        self._versions: dict[str, int] = {}  # job -> of the last status that its coordinator told

    @cached_property
    def _api(self) -> Api:
        return Api(find_access(self.settings))

    @cached_property
    def _asking(self) -> CoordinatorClient:
        return CoordinatorClient(self._api, self._namespace)

    @cached_property
    def _owners(self) -> Owners:
        return Owners(self._api, self._namespace)

    @property
    def _namespace(self) -> str:
        return self._api.access.namespace

    # -- submitting ----------------------------------------------------------------------------------------------------

    def build_record(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> JobRecord:
        """The job's record, with the objects that it consists of."""
        from petctl.clusters.kubernetes.build_record import build_record

        return build_record(job, job_id, self.home, self._namespace, self.settings, code)

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> list[dict[str, Any]]:
        """The objects that `submit` makes, but for their owner: its uid is not known before it is there."""
        from petctl.clusters.kubernetes.build_record import build_record
        from petctl.clusters.kubernetes.payload import check_stores, material, new_credentials

        record = build_record(job, job_id, self.home, self._namespace, self.settings, None, make.SMALL_PIECE, False)
        request = KubernetesRequest.of(record)
        names = [*make.CREDENTIALS, *([make.GRANTS] if record.grants else [])]
        credentials: Mapping[str, bytes | None] = dict.fromkeys(names)
        if with_secrets:
            check_stores(record, self.home)  # whoever creates the objects cannot send the code
            credentials = new_credentials(record, self.home)
        objects = [*material(record, credentials), *request.claims, *request.objects]
        return [make.free(manifest, self._namespace) for manifest in objects]

    def submit(self, record: JobRecord) -> None:
        """Makes the owner first, asleep, then all that it owns, then wakes it: cut short, it leaves one that sleeps.

        Nodes are made last: where a quota has room for a few pods only, the coordinator's must be one of them.
        """
        from petctl.clusters.agent_archive import agent_files
        from petctl.clusters.kubernetes.payload import check_stores, material, new_credentials

        request = KubernetesRequest.of(record)
        first, *others = request.objects
        nodes = [manifest for manifest in others if manifest["kind"] == "Job"]
        self._check_secrets(record.secrets.values())
        check_stores(record, self.home)
        owner = self._owners.create(record.id, first)
        try:
            beside = [manifest for manifest in others if manifest not in nodes]
            if request.agent:
                owner.share(make.shared_agent(agent_files(make.STATE)))
            for manifest in [*material(record, new_credentials(record, self.home)), *beside]:
                self._create(manifest, owner)
            for claim in request.claims:
                own = claim["metadata"].get("labels")  # the others outlive the job
                with suppress(ObjectExists):
                    wanted = make.owned(claim, owner.object) if own else claim
                    self._api.create(path("persistentvolumeclaims", self._namespace), wanted)
            owner.resume()
            for manifest in nodes:
                self._create(manifest, owner)
        except BaseException:
            with suppress(KubernetesError):  # why it failed is what the user must hear
                self._api.delete(owner.place)
            raise

    def _create(self, manifest: dict[str, Any], owner: Owner) -> None:
        kind = f"{manifest['kind'].lower()}s"
        self._api.create(path(kind, self._namespace), make.owned(manifest, owner.object))

    def record(self, job_id: str) -> JobRecord:
        """What was submitted; its code is brought here from its objects where this machine does not have it."""
        record = self._record(job_id)
        code, pieces = record.code, KubernetesRequest.of(record).pieces
        if code:
            # Never the path that the ConfigMap names: whoever may edit it could have any file of this machine sent.
            from petctl.bundle.bundle_cache import Cabinet, is_snapshot_id
            from petctl.submission.code import bounds_of

            cabinet = Cabinet(self.home / "bundles")
            if not is_snapshot_id(code.get("id")):
                raise UsageError(f"the record of {job_id} is damaged: {code.get('id')!r} is not a snapshot id")
            if pieces and not cabinet.has(code["id"]):
                cabinet.take_in(code["id"], partial(self._bring_code, job_id, pieces), bounds_of(code))
            return replace(record, code={**code, "archive": str(cabinet.path(code["id"]))})
        return record

    def _bring_code(self, job_id: str, pieces: int, target: Path) -> None:
        with target.open("wb") as file:
            for number in range(pieces):
                piece = self._api.get(path("configmaps", self._namespace, make.piece_name(job_id, number)))
                file.write(base64.b64decode(piece["binaryData"]["piece"]))

    def _record(self, job_id: str) -> JobRecord:
        try:
            found = self._api.get(path("configmaps", self._namespace, object_name(job_id)))
            text = found["data"]["job.json"]
        except (NoSuchObject, KeyError):  # or something of that name which is no job's
            raise NotFound(f"there is no job {job_id!r}; `petctl list -c {self.name}` shows the jobs") from None
        try:
            record = JobRecord.from_dict(json.loads(text))
        except ValueError as error:
            raise InternalError(
                f"the ConfigMap {object_name(job_id)} is not the record of a job ({error}); "
                f"remove the job with: petctl rm {job_id}"
            ) from None
        return replace(record, cluster=self.name)  # its name there may be another, or none

    # -- looking -------------------------------------------------------------------------------------------------------

    def notes(self, job_id: str) -> list[str]:
        """The record's."""
        return list(self.record(job_id).notes)

    def ids(self) -> list[str]:
        """Every job of the namespace."""
        return self._owners.ids()

    def status(self, job_id: str) -> JobStatus:
        """From the coordinator while it lives, else from what is left of it."""
        return self._look(job_id)[0]

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        """Every job, the wanted ones with a summary, in a handful of requests."""
        from petctl.clusters.kubernetes.summaries import Summaries

        return Summaries(self._api, self._namespace, self._owners, self.name, self._record).list(wanted)

    def attend(self, job_id: str) -> float:
        """Nothing: Kubernetes sees to its Jobs, and the operator to its own."""
        return math.inf

    def _look(self, job_id: str) -> tuple[JobStatus, Items]:
        """The status, and the coordinator's pods that it was made from."""
        owner, pods = self._seen(job_id)
        message = job_status.ended(owner.object, pods)
        if message is not None:
            printed = logs.last_status(self._api, self._namespace, pods)
            status = job_status.final_status(self._record_or_bare(job_id, owner), message, printed)
            return self._with_ends(job_id, owner, replace(status, cluster=self.name)), pods
        try:
            status = self._told(job_id, self._asking.ask(job_id, pods, "watch", seen=-1, within=0.0))
        except Unreachable:
            return self._unheard(job_id, owner, pods), pods
        if unschedulable.is_short(status):
            nodes = self._api.list(path("pods", self._namespace), selector(job_id, NODE))
            troubles = partial(unschedulable.troubles, self._api, self._namespace)
            status = unschedulable.explained(status, nodes, partial(owner.refusal, NODE), troubles)
        return self._with_ends(job_id, owner, status), pods

    def _with_ends(self, job_id: str, owner: Owner, status: JobStatus) -> JobStatus:
        """The status with what was the end of pods, where that matters."""
        if not pod_termination.may_have_lost(status):
            return status
        ends = self._ends(job_id, owner)
        if not ends and status.finished is not None:
            ends = node_losses.vanished(self._api, self._namespace, job_id)
        return pod_termination.explained(status, ends)

    def _ends(self, job_id: str, owner: Owner) -> list[pod_termination.End]:
        pods = self._api.list(path("pods", self._namespace), selector(job_id, NODE), "status.phase=Failed")
        return pod_termination.ends_of(pods, owner.object)

    def _ends_so_far(self, job_id: str) -> list[pod_termination.End]:
        """None where they cannot be had: what a coordinator tells is told without them."""
        with suppress(KubernetesError):
            return self._ends(job_id, self._owners.find(job_id))
        return []

    def _unheard(self, job_id: str, owner: Owner, pods: Items) -> JobStatus:
        """The status of a job whose coordinator cannot be asked: it has said its last word, or is yet to come."""
        printed = logs.last_status(self._api, self._namespace, running(pods))
        if printed:
            return self._not_over(printed)
        refused = unschedulable.trouble_of(self._api, self._namespace, pods) if pods else owner.refusal(COORDINATOR)
        nodes = partial(self._api.list, path("pods", self._namespace), selector(job_id, NODE))
        return job_status.waiting_status(self._record_or_bare(job_id, owner), owner.object, pods, refused, nodes)

    def watch(self, job_id: str, seen: JobStatus | None, timeout: float) -> JobStatus:
        """A status that differs from `seen`, or the newest one after `timeout`."""
        deadline, patience = time.monotonic() + timeout, Patience()
        while True:
            try:
                status, pods = self._look(job_id)
                left = deadline - time.monotonic()
                if status != seen or left <= 0:
                    return status
                self._wait_for_news(job_id, pods, min(left, LOOK_ANYWAY if unschedulable.is_short(status) else WATCH))
                patience.restored()
            except ServerUnreachable as failure:
                patience.wait_and_retry(failure, deadline)

    def _wait_for_news(self, job_id: str, pods: Items, timeout: float) -> None:
        """Until the coordinator has some, or where it cannot be asked, until its pods do."""
        try:
            version = self._versions.get(job_id, -1)
            self._asking.ask(job_id, pods, "watch", timeout + 10.0, seen=version, within=timeout)
        except Unreachable:
            self._asking.wait_for_pods(job_id, pods.version, min(timeout, LOOK_ANYWAY))

    def _told(self, job_id: str, answer: Mapping[str, Any]) -> JobStatus:
        self._versions[job_id] = int(answer["version"])
        return self._not_over(JobStatus.from_dict(answer["status"]))

    def _not_over(self, told: JobStatus) -> JobStatus:
        """What a coordinator tells whose pod has not ended: until it has, the job goes on, though it may be closing."""
        if told.finished is not None:
            told = replace(told, finished=None, state="running", exit_code=None, error=None)
        return replace(told, cluster=self.name)

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        """What the coordinator's pods have printed; of lost nodes also how their pods ended."""
        self._seen(job_id)
        if not follow:
            printed = logs.lines_so_far(self._api, self._namespace, selector(job_id, COORDINATOR))
            ends = self._ends_so_far(job_id)
            known = {end.uid for end in ends}  # an operator remembers what is an event too
            gone = node_losses.vanished(self._api, self._namespace, job_id)
            ends += [end for end in gone if end.uid not in known]
            return node_losses.explained(event_lines(printed), ends)
        told = event_lines(self._following(job_id, COORDINATOR, {}))
        return node_losses.explained_as_they_come(told, partial(self._ends_so_far, job_id))

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        """What the nodes' pods have printed for the workers; of a job that has ended, what its store has."""
        if not follow and self._over(job_id):
            record = self._record(job_id)
            if record.results.logs:
                from petctl.clusters.archived_logs import stored_lines

                return stored_lines(record, self.home, wanted)
        which = selector(job_id, NODE)
        if not follow:
            return worker_lines(logs.lines_so_far(self._api, self._namespace, which), wanted)
        places: dict[str, LogPosition] = {}
        past = logs.lines_so_far(self._api, self._namespace, which, places) if wanted.tail is not None else ()
        coming = self._following(job_id, NODE, places)
        return chain(worker_lines(past, wanted), worker_lines(coming, wanted._replace(tail=None)))

    def _following(self, job_id: str, role: str, places: dict[str, LogPosition]) -> Iterator[Item]:
        from petctl.clusters.kubernetes.log_follow import lines_as_they_come

        over = partial(self._over, job_id)
        return lines_as_they_come(self._api, self._namespace, selector(job_id), role, over, places)

    def _over(self, job_id: str) -> bool:
        owner, pods = self._seen(job_id)
        return job_status.ended(owner.object, pods) is not None

    def outputs(self, job_id: str) -> list[Output]:
        """In the job's store; without one they go with their pods."""
        record = self._record(job_id)
        if not record.results.outputs:
            raise UsageError(
                f"the outputs of {job_id} are only in its pods, and are deleted with them; --store keeps them"
            )
        from petctl.submission.results import outputs_of

        return outputs_of(record)

    # -- wishes --------------------------------------------------------------------------------------------------------

    def scale(self, job_id: str, wanted: int) -> str:
        """Asks for more or fewer pods, and tells the coordinator, or has it told."""
        owner, pods = self._seen(job_id)
        if job_status.ended(owner.object, pods) is not None:
            raise UsageError(f"{job_id} has ended and cannot be scaled")
        return owner.scale(self._asking, pods, wanted)

    def cancel(self, job_id: str, kill: bool) -> str:
        """Asks the coordinator; a job that has none now is put to sleep for ever, which ends its pods. So is one that
        somebody has suspended: its coordinator may still answer, and goes before it could tell the outcome."""
        owner, pods = self._seen(job_id)
        if job_status.ended(owner.object, pods) is not None:
            return "has ended already"
        replaced = job_status.was_replaced(owner.object, pods)
        with suppress(Unreachable):
            if running(pods) and not owner.suspended:  # it may have just begun, and not listen yet
                return str(self._asking.ask_soon(job_id, pods, "cancel", kill=kill))
        when = "while its coordinator was away" if replaced or running(pods) else "before it started"
        outcome = {"state": "cancelled", "code": 130, "sentence": f"cancelled by the user {when}"}
        owner.suspend(json.dumps({"outcome": outcome, "finished": time.time()}))
        return f"cancelled {when}"

    def unanswered_advice(self, job_id: str) -> str:
        """Shows where its pods are to be seen: a machine that is gone keeps them."""
        pods = f"kubectl -n {self._namespace} get pods -l {selector(job_id)}"
        return (
            f"Its pods may be on a machine that does not answer; see: {pods}. Then run petctl rm --force {job_id} again"
        )

    def remove(self, job_id: str) -> None:
        """Deletes the owner, with all that was made for the job."""
        owner, pods = self._seen(job_id)
        if job_status.ended(owner.object, pods) is None:
            raise UsageError(f"{job_id} has not ended; cancel it first: petctl cancel {job_id}")
        owner.delete()

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        """Runs a command in a node's pod, with the environment of a worker that runs there."""
        from petctl.clusters.kubernetes.worker_command import worker_command

        pod = self._pod_of(job_id, node)
        words = worker_command(pod, job_id, self._record(job_id).task, argv)
        tty = sys.stdin.isatty() and sys.stdout.isatty()
        name = pod["metadata"]["name"]
        try:
            return self._api.execute(self._namespace, name, words, "petctl", tty, sys.stdin, sys.stdout, sys.stderr)
        except NotRunning as error:  # its pod is still shown as running for a moment after the container has ended
            raise NotFound(f"{job_id} has no running node {node_of(pod)!r}: {error}") from None

    def forward(
        self, job_id: str, port: int, local_port: int, node: str | None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        """A port here that leads to a node's."""
        from petctl.clusters.port_forward import forwarded

        name = self._pod_of(job_id, node)["metadata"]["name"]
        return forwarded(lambda: self._api.dial(self._namespace, name, port), local_port, tell)

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        """The join file that the nodes' pods have; it leads to the coordinator from inside of the cluster."""
        self._seen(job_id)
        join = self._asking.join_file(job_id)
        if address:
            join = replace(join, locator={"address": address if ":" in address else f"{address}:{make.PORT}"})
        write_join_file(path, join)

    def _pod_of(self, job_id: str, node: str | None) -> dict[str, Any]:
        """A pod that runs: this node's, or the first one."""
        self._seen(job_id)
        pods = self._api.list(path("pods", self._namespace), selector(job_id, NODE))
        alive = {node_of(pod): pod for pod in running(pods)}
        if node is None and alive:
            return alive[min(alive, key=natural)]
        if node not in alive:
            known = ", ".join(sorted(alive, key=natural)) or "none"
            which = f"no running node {node!r}" if node is not None else "no node that runs"
            raise NotFound(f"{job_id} has {which}; those that run: {known}")
        return alive[node]

    # -- secrets -------------------------------------------------------------------------------------------------------

    def set_secret(self, name: str, value: str) -> None:
        """Keeps it in the namespace's own Secret."""
        body = {"stringData": {name: value}}
        try:
            self._api.patch(path("secrets", self._namespace, make.SECRETS), body)
        except NoSuchObject:
            metadata = {"name": make.SECRETS, "labels": dict(MANAGED)}
            new = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **body}
            self._api.create(path("secrets", self._namespace), new)

    def list_secrets(self) -> list[str]:
        """Names, never values."""
        try:
            return sorted(self._api.get(path("secrets", self._namespace, make.SECRETS)).get("data") or {})
        except NoSuchObject:
            return []

    def remove_secret(self, name: str) -> None:
        """Forgets it."""
        self._check_secrets([name])
        self._api.patch(path("secrets", self._namespace, make.SECRETS), {"data": {name: None}})

    def _check_secrets(self, names: Any) -> None:
        wanted = set(names)
        missing = sorted(wanted - set(self.list_secrets())) if wanted else []
        if missing:
            raise NotFound(
                f"there is no secret {missing[0]!r} in {self.name}; create it with: petctl secret set -c {self.name} "
                f"{missing[0]}"
            )

    # -- inside --------------------------------------------------------------------------------------------------------

    def _seen(self, job_id: str) -> tuple[Owner, Items]:
        """The job's owner, and the coordinator's pods."""
        try:
            owner = self._owners.find(job_id)
        except NoSuchObject:
            raise NotFound(f"there is no job {job_id!r}; `petctl list -c {self.name}` shows the jobs") from None
        return owner, self._asking.pods(job_id)

    def _record_or_bare(self, job_id: str, owner: Owner) -> JobRecord:
        try:
            return self._record(job_id)
        except NotFound:
            return job_status.bare_record(job_id, self.name, owner.object)
