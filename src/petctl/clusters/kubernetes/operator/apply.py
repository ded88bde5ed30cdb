"""Does what `reconcile.py` decided about one job. Every write to the API server that concerns a job is made here.

Each may have been made before, by an operator that did not live to see the answer: what is there already, and is the
job's, is as good as made; what is gone already is as good as deleted. A conflict means that the decision came from an
old picture: it is dropped, and a new one is made from the new picture.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from petctl.clusters.kubernetes.coordinator_client import CoordinatorClient
from petctl.clusters.kubernetes.elastic_jobs import API_VERSION, KIND
from petctl.clusters.kubernetes.names import COORDINATOR, ID, object_name, selector
from petctl.clusters.kubernetes.operator import pods
from petctl.clusters.kubernetes.operator.actions import (
    Announce,
    CreateCoordinator,
    CreateNode,
    CreateService,
    Decision,
    Delete,
    DeleteBudget,
    DeleteJob,
    DeleteService,
    KeepNodes,
    Prepare,
    SpareReply,
    Step,
    Tell,
)
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, Object, read_job
from petctl.clusters.kubernetes.operator.pods import number_of, owned
from petctl.clusters.kubernetes.operator.record import record_of
from petctl.clusters.kubernetes.operator.runtime.cache import Cache
from petctl.clusters.kubernetes.payload import material, new_credentials
from petctl.errors import PetctlError
from petctl.job.record import JobRecord
from petctl.kube.api import Api, Items, path
from petctl.kube.failures import (
    Conflict,
    Forbidden,
    Invalid,
    KubernetesError,
    NoSuchObject,
    ObjectExists,
)
from petctl.kube.objects import is_live, written

_UNKNOWN = re.compile(r'(?:unknown|duplicate) field \\?"([^"\\]+)')  # in what the server says
TELL_WITHIN = 10.0  # seconds for a coordinator to answer


class StepBlocked(PetctlError):
    """Something in the cluster is in the way: somebody else's object, a quota, a policy. People are told."""


class Malformed(PetctlError):
    """The job says what no server understands, so it can never run."""


class Done(NamedTuple):
    """What became of a decision."""

    job: ElasticJob  # as it is then
    told: SpareReply | None  # what its coordinator answered, if it was asked
    obstacle: PetctlError | None  # what kept it from being done


class Acting:
    """Does things for any job; safe for threads, one at a time for each job."""

    def __init__(self, api: Api, jobs: Cache, pods: Cache, budgets: Cache) -> None:
        self._api, self._jobs, self._pods, self._budgets = api, jobs, pods, budgets

    def carry_out(self, job: ElasticJob, decision: Decision) -> Done:
        """Does all of it; where no further node can be made, all but that."""
        told, made, gone = None, [], []
        obstacle: StepBlocked | None = None
        record: JobRecord | None = None
        for step in decision.steps:
            if isinstance(step, Prepare):
                if not job.status.get("coordinators"):
                    self._try_out(job)
                record = self._prepared(job, step.wanted)
        job = self._write_status(job, decision.status)
        for step in decision.steps:
            if isinstance(step, CreateNode) and obstacle is not None:
                continue
            try:
                self._do(job, step, record)
            except StepBlocked as error:
                if not isinstance(step, CreateNode):
                    raise
                obstacle = error  # those that there are go on, and are told so
                continue
            if isinstance(step, (CreateCoordinator, CreateNode)):
                made.append(_named(step))
            elif isinstance(step, Delete):
                gone.append(step.pod["metadata"]["name"])
        if made:
            self._announce(job, Announce("SuccessfulCreatePod", f"created {', '.join(made)}"))
        if gone:
            self._announce(job, Announce("SuccessfulDeletePod", f"deleted {', '.join(gone)}"))
        for step in decision.steps:
            if isinstance(step, Tell):  # last: whether or not it answers, the rest is done
                told = self._tell(job, step)
        return Done(job, told, obstacle)

    def hindered(self, job: ElasticJob, sentence: str) -> None:
        """Shows people what is in the way."""
        job = read_job(self._jobs.get(*job.key) or job.object)  # its status may have been written since
        with suppress(KubernetesError):
            self._write_status(job, {**job.status, "message": sentence})
        self._announce(job, Announce("Hindered", sentence, warning=True))

    def _write_status(self, job: ElasticJob, status: Mapping[str, Any]) -> ElasticJob:
        """Against the version that was read: two operators never count the same number."""
        if status == job.status:
            return job
        changed = {name: value for name, value in status.items() if job.status.get(name) != value}
        changed |= {name: None for name in job.status if name not in status}
        about = job.object["metadata"]
        body = {"metadata": {"resourceVersion": about["resourceVersion"]}, "status": changed}
        written = self._api.patch(f"{path('elasticjobs', *job.key)}/status", body)
        self._jobs.put(written)
        return read_job(written)

    def _do(self, job: ElasticJob, step: Step, record: JobRecord | None) -> None:
        if isinstance(step, CreateCoordinator):
            assert record is not None, "it is prepared first"
            self._create_coordinator(job, step, record)
        elif isinstance(step, CreateService):
            self._create(job, pods.service(job))
        elif isinstance(step, CreateNode):
            self._pods.put(self._create(job, pods.node_pod(job, step.node, step.number)))
        elif isinstance(step, Delete):
            self._delete_pod(step.pod)
        elif isinstance(step, DeleteService):
            self._delete_own(job, "services")
        elif isinstance(step, KeepNodes):
            self._keep_nodes(job, step.least)
        elif isinstance(step, DeleteBudget):
            self._delete_own(job, "poddisruptionbudgets")
        elif isinstance(step, DeleteJob):
            with suppress(NoSuchObject, Conflict):
                self._api.delete(path("elasticjobs", *job.key), uid=job.uid)
        elif isinstance(step, Announce):
            self._announce(job, step)

    def _create_coordinator(self, job: ElasticJob, step: CreateCoordinator, record: JobRecord) -> None:
        """Asks the server itself first: a picture that is late would make a second one where the first is well."""
        found = self._api.list(path("pods", job.namespace), selector(job.id, COORDINATOR))
        for pod in found:
            if is_live(pod) and number_of(pod) >= 0 and _is_of(pod, job):
                self._pods.put(pod)
                return
        self._pods.put(self._create(job, pods.coordinator_pod(job, record, step.number, step.alone)))

    def _prepared(self, job: ElasticJob, wanted: int) -> JobRecord:
        """The job's record, once all that its pods need is there."""
        try:
            kept = self._claim(self._api.get(path("configmaps", job.namespace, object_name(job.id))), job)
        except NoSuchObject:
            new = record_of(job, wanted)
            for manifest in material(new, new_credentials(new, Path())):  # the record last: it stands for all
                # Of what is immutable, kubelets go on using the one that an earlier job of this name had.
                kept = self._create(job, {key: value for key, value in manifest.items() if key != "immutable"})
        self._create(job, pods.service(job))
        try:
            return JobRecord.from_dict(json.loads(kept["data"]["job.json"]))
        except (KeyError, ValueError) as error:
            name = object_name(job.id)
            raise StepBlocked(
                f"the ConfigMap {name} is not the record of a job ({error}); submit the job again"
            ) from None

    def _try_out(self, job: ElasticJob) -> None:
        """A template is kept as it comes; a word in it that pods do not have would be dropped in silence."""
        coordinator = pods.coordinator_pod(job, record_of(job, job.most), 0, alone=True)
        tried = {"template": pods.node_pod(job, 0, 0), "coordinator": coordinator}
        for said, pod in tried.items():
            try:
                self._api.try_out(path("pods", job.namespace), pod)
            except Invalid as error:
                unknown = _UNKNOWN.findall(str(error))
                if unknown:
                    words = ", ".join(dict.fromkeys(unknown))
                    raise Malformed(
                        f"spec.{said} has fields that pods do not have: {words}; delete the job and create it again"
                    ) from None
            except KubernetesError:
                pass  # a quota, or a policy: that is found when the pod is made, and may be another then

    def _create(self, job: ElasticJob, manifest: Object) -> Object:
        kind = f"{manifest['kind'].lower()}s"
        try:
            return self._api.create(path(kind, job.namespace), owned(manifest, job))
        except (Forbidden, Invalid) as error:
            raise StepBlocked(str(error)) from None
        except ObjectExists:
            found = self._api.get(path(kind, job.namespace, manifest["metadata"]["name"]))
        return self._claim(found, job)

    def _claim(self, found: Object, job: ElasticJob) -> Object:
        """The object, if it is the job's."""
        if _is_of(found, job) or _is_rendered(found, job):
            return found
        about = found["metadata"]
        if about.get("deletionTimestamp") or _once_of(found, job):
            raise Conflict(f"{about['name']} of an earlier {job.name} still exists")
        raise StepBlocked(
            f"the {found.get('kind') or 'object'} {about['name']} is not this job's; remove it, or give the ElasticJob "
            "another name"
        )

    def _delete_pod(self, pod: Object) -> None:
        about = pod["metadata"]
        with suppress(NoSuchObject, Conflict):  # it is gone, maybe with another in its place
            left = self._api.delete(path("pods", about["namespace"], about["name"]), uid=about["uid"])
            if left.get("kind") == "Pod":
                self._pods.put(left)

    def _keep_nodes(self, job: ElasticJob, least: int) -> None:
        """What is in the way, such as somebody else's budget of that name, must not keep the job from training."""
        try:
            found = self._create(job, pods.budget(job, least))
            if found["spec"].get("minAvailable") != least:
                version = {"resourceVersion": found["metadata"]["resourceVersion"]}
                place = path("poddisruptionbudgets", job.namespace, found["metadata"]["name"])
                found = self._api.patch(place, {"metadata": version, "spec": {"minAvailable": least}})
            self._budgets.put(found)
        except StepBlocked as error:
            self._announce(job, Announce("Unprotected", f"evictions are not limited: {error}", warning=True))

    def _delete_own(self, job: ElasticJob, kind: str) -> None:
        """Its Service or its PodDisruptionBudget, which have its name."""
        place = path(kind, job.namespace, object_name(job.id))
        with suppress(NoSuchObject, Conflict):
            self._api.delete(place, uid=self._claim(self._api.get(place), job)["metadata"]["uid"])

    def _tell(self, job: ElasticJob, step: Tell) -> SpareReply:
        """Unreachable: it could not be asked, and should be later."""
        answer = self._ask(job, "resize", wanted=step.wanted, nodes=list(step.nodes))
        return SpareReply(step.wanted, step.nodes, tuple(answer["release"]))

    def totals(self, job: ElasticJob) -> Mapping[str, Any]:
        """What its coordinator has counted so far."""
        found = self._ask(job, "totals")
        return found if isinstance(found, Mapping) else {}

    def _ask(self, job: ElasticJob, call: str, **params: Any) -> Any:
        found = Items(self._pods.of(job.uid))
        coordinators = Items(pod for pod in found if pods.role_of(pod) == COORDINATOR)
        return CoordinatorClient(self._api, job.namespace).ask(job.id, coordinators, call, TELL_WITHIN, **params)

    def _announce(self, job: ElasticJob, event: Announce) -> None:
        """Named by what it says and when in the job's life, so that a repetition is the same event."""
        about = job.object["metadata"]
        which = json.dumps([job.uid, job.status, event]).encode()
        name = f"{job.name[:200]}.{hashlib.sha256(which).hexdigest()[:16]}"
        now = written(time.time())
        involved = {"apiVersion": API_VERSION, "kind": KIND, "name": job.name, "namespace": job.namespace}
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": job.namespace},
            "involvedObject": {**involved, "uid": job.uid, "resourceVersion": about["resourceVersion"]},
            "reason": event.reason,
            "message": event.message[:1000],
            "type": "Warning" if event.warning else "Normal",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "source": {"component": "petctl-operator"},
        }
        with suppress(KubernetesError):
            self._api.create(path("events", job.namespace), body)


def _named(step: CreateCoordinator | CreateNode) -> str:
    return f"coordinator {step.number}" if isinstance(step, CreateCoordinator) else f"node {step.node}"


def _is_of(found: Object, job: ElasticJob) -> bool:
    return any(owner["uid"] == job.uid for owner in found["metadata"].get("ownerReferences") or ())


def _is_rendered(found: Object, job: ElasticJob) -> bool:
    """Did `petctl render` make it for this job? What it prints has no owner yet."""
    about = found["metadata"]
    known = found.get("kind") in ("Secret", "ConfigMap") and not about.get("ownerReferences")
    return known and bool((about.get("annotations") or {}).get(ID) == job.id)


def _once_of(found: Object, job: ElasticJob) -> bool:
    """Was it made for an earlier ElasticJob of that name, and waits to be collected?"""
    owners = found["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] == KIND and owner["name"] == job.name for owner in owners)
