"""The object that everything else of a job belongs to: the Job of its coordinator, or an ElasticJob that an operator
looks after. What differs between the two, when a job is found, resized, put to sleep or deleted, is here and nowhere
else; how far it has come is read in `job_status.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from petctl.clusters.backend import Ask
from petctl.clusters.base import AlreadyExists
from petctl.clusters.kubernetes import elastic_jobs
from petctl.clusters.kubernetes.job_status import OUTCOME
from petctl.clusters.kubernetes.names import COORDINATOR, ID, JOB, NODE, ROLE, object_name
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.kubernetes.pods.pod_events import NOBODY_MAKES_IT, refusal
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.kube.api import Api, path, share
from petctl.kube.failures import Forbidden, NoSuchObject, ObjectExists
from petctl.kube.objects import annotations_of, labels_of, terminates
from petctl.text import counted, scaling

Object = dict[str, Any]


class Owner(ABC):
    """One, as it was when it was read."""

    kind = ""

    def __init__(self, api: Api, namespace: str, job_id: str, found: Object) -> None:
        self._api, self._namespace, self.job_id, self.object = api, namespace, job_id, found

    @property
    def place(self) -> str:
        """Its path."""
        return path(f"{self.kind.lower()}s", self._namespace, self.object["metadata"]["name"])

    @property
    def suspended(self) -> bool:
        """Nobody makes pods for it now."""
        return bool(self.object["spec"].get("suspend"))

    @property
    def whole(self) -> bool:
        """All is there that makes its pods; only in a list one sees that of what was read anyway."""
        return True

    @abstractmethod
    def wanted(self, record: JobRecord) -> int:
        """How many nodes are wanted now: somebody may have scaled the job."""

    @abstractmethod
    def refusal(self, role: str) -> str:
        """Why no pod of that role is made; empty where nobody has said so."""

    @abstractmethod
    def scale(self, ask: Ask, wanted: int) -> str:
        """Sees to it that there are so many nodes."""

    @abstractmethod
    def _belongings(self) -> Iterator[str]:
        """Everything that petctl made beside it, the record last: without that there is no status."""

    def share(self, manifest: Object) -> None:
        """Makes a ConfigMap that jobs share, or becomes one more owner of it; it goes with the last, whoever deletes
        that."""
        made = share(self._api, path("configmaps", self._namespace), make.owned(manifest, self.object))
        if made.get("binaryData") != manifest["binaryData"]:
            raise UsageError(
                f"the ConfigMap {made['metadata']['name']} of {self._namespace} was changed since petctl created it; "
                "delete it when no job uses it, and submit the job again"
            )

    def resume(self) -> None:
        """Everything that it needs is there."""
        self._api.patch(self.place, {"spec": {"suspend": False}})

    def suspend(self, outcome: str) -> None:
        """For ever: its pods are ended, and this is how the job has ended."""
        self._api.patch(self.place, {"metadata": {"annotations": {OUTCOME: outcome}}, "spec": {"suspend": True}})

    def delete(self) -> None:
        """All the rest goes with it; or before it, where it was created from what `petctl render` prints."""
        for place in self._belongings():
            with suppress(NoSuchObject):
                found = self._api.get(place)
                if found["metadata"].get("ownerReferences"):
                    break  # the first that has one speaks for all
                if labels_of(found).get(JOB) == object_name(self.job_id):  # none of the user's own of that name
                    self._api.delete(place)
        self._api.delete(self.place)


class JobOwner(Owner):
    """A coordinator's Job; another Job makes the nodes."""

    kind = "Job"
    nodes: Object | None = None  # the other Job, in a list

    @property
    def whole(self) -> bool:
        return self.nodes is not None or self.suspended

    def wanted(self, record: JobRecord) -> int:
        said = ((self.nodes or {}).get("spec") or {}).get("parallelism")
        return int(record.config.wanted if said is None else said)

    def refusal(self, role: str) -> str:
        """As the Job of that role tells it, or its absence."""
        why = refusal(self._api, self._namespace, "Job", f"{object_name(self.job_id)}-{role}")
        if not why and role == NODE:
            try:
                self._api.get(self._nodes)
            except NoSuchObject:
                return NOBODY_MAKES_IT
        return why

    def scale(self, ask: Ask, wanted: int) -> str:
        """Tells the coordinator first: it knows the bounds, and lets the highest nodes go; then there are more or fewer
        pods. The size is kept for a coordinator that comes when all pods are lost."""
        sentence = str(ask("scale", wanted=wanted))
        self._keep_size(wanted)
        self._api.patch(self._nodes, {"spec": {"parallelism": wanted, "completions": wanted}})
        return sentence

    def _keep_size(self, wanted: int) -> None:
        """Replaces it whole: whoever uses petctl may create and delete ConfigMaps, and not change them."""
        kept = make.owned(make.size_config(self.job_id, wanted), self.object)
        with suppress(NoSuchObject):
            self._api.delete(path("configmaps", self._namespace, make.size_name(self.job_id)))
        with suppress(ObjectExists):  # another scales too; the coordinator has heard both
            self._api.create(path("configmaps", self._namespace), kept)

    def suspend(self, outcome: str) -> None:
        """With the nodes' Job."""
        with suppress(NoSuchObject):  # its submission was cut short
            self._api.patch(self._nodes, {"spec": {"suspend": True}})
        super().suspend(outcome)

    @property
    def _nodes(self) -> str:
        return path("jobs", self._namespace, f"{object_name(self.job_id)}-{NODE}")

    def _belongings(self) -> Iterator[str]:
        for kind, name in make.belongings(self.job_id, self.object):
            yield path(kind, self._namespace, name)


class ElasticJobOwner(Owner):
    """An ElasticJob: what is written into it, its operator sees to."""

    kind = elastic_jobs.KIND

    def wanted(self, record: JobRecord) -> int:
        return elastic_jobs.wanted(self.object)

    def refusal(self, role: str) -> str:
        """As its operator tells it, who also knows for how many nodes there is room."""
        room = self.object.get("status", {}).get("room")
        if room and role == NODE:
            return f"the cluster has room for {counted(room['size'], 'node')} now"
        return refusal(self._api, self._namespace, self.kind, self.object["metadata"]["name"])

    def scale(self, ask: Ask, wanted: int) -> str:
        """Its operator tells the coordinator, and chooses whom to let go."""
        least, most = elastic_jobs.bounds(self.object)
        if not least <= wanted <= most:
            raise UsageError(
                f"{self.job_id} may have {least} to {most} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        before = elastic_jobs.wanted(self.object)
        if self.object["spec"].get("replicas") != wanted:
            self._api.patch(self.place, {"spec": {"replicas": wanted}})
        return scaling(before, wanted)

    def _belongings(self) -> Iterator[str]:
        name = object_name(self.job_id)
        yield path("secrets", self._namespace, name)
        pieces: list[str] = []
        with suppress(NoSuchObject):
            while True:
                piece = make.piece_name(self.job_id, len(pieces))
                self._api.get(path("configmaps", self._namespace, piece))
                pieces.append(piece)
        # The last piece first: what is left when this is cut short is found again by its numbers.
        for one in (*make.agent_names(self.job_id), *reversed(pieces), name):
            yield path("configmaps", self._namespace, one)


class Owners:
    """Those of one namespace; remembers of which kind each is."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._namespace = api, namespace
        self._kinds: dict[str, type[Owner]] = {}

    def all(self) -> dict[str, Owner]:
        """Every job's owner, by the job's id."""
        jobs: dict[str, JobOwner] = {}
        nodes: dict[str, Object] = {}  # the Jobs that make them, by the job's label
        for job in self._staying("jobs", ROLE):
            labels, about = labels_of(job), annotations_of(job)
            if labels.get(ROLE) == NODE and JOB in labels:
                nodes[labels[JOB]] = job
            elif ID in about:
                jobs[about[ID]] = JobOwner(self._api, self._namespace, about[ID], job)
        for job_id, owner in jobs.items():
            owner.nodes = nodes.get(object_name(job_id))
        found: dict[str, Owner] = {**jobs}
        with suppress(NoSuchObject, Forbidden):  # nobody has installed an operator, or not for this user
            for job in self._staying("elasticjobs"):
                job_id, elastic = elastic_jobs.id_of(job), {"kind": elastic_jobs.KIND, **job}
                found[job_id] = ElasticJobOwner(self._api, self._namespace, job_id, elastic)
        self._kinds |= {job_id: type(owner) for job_id, owner in found.items()}
        return found

    def _staying(self, kind: str, selector: str = "") -> list[Object]:
        found = self._api.list(path(kind, self._namespace), selector)
        return [job for job in found if not terminates(job)]

    def find(self, job_id: str) -> Owner:
        """The owner of that job; NoSuchObject where there is none."""
        name, last = object_name(job_id), self._kinds.get(job_id)
        tried: list[tuple[type[Owner], str]] = [
            (JobOwner, path("jobs", self._namespace, f"{name}-{COORDINATOR}")),
            *((ElasticJobOwner, path("elasticjobs", self._namespace, one)) for one in dict.fromkeys((name, job_id))),
        ]
        for kind, place in sorted(tried, key=lambda one: one[0] is not last):
            try:
                found = self._api.get(place)
            except NoSuchObject:
                continue
            except Forbidden:
                if kind is JobOwner:
                    raise
                continue  # whoever may not see ElasticJobs has none
            self._kinds[job_id] = kind
            return kind(self._api, self._namespace, job_id, found)
        raise NoSuchObject(f"there is no job {job_id!r}")

    def create(self, job_id: str, manifest: Mapping[str, Any]) -> Owner:
        """A new one, asleep."""
        kind = ElasticJobOwner if elastic_jobs.is_elastic(manifest) else JobOwner
        try:
            made = self._api.create(path(f"{kind.kind.lower()}s", self._namespace), manifest)
        except ObjectExists:
            raise AlreadyExists(f"job {job_id} already exists") from None
        except NoSuchObject as error:
            if kind is JobOwner or (error.status.get("details") or {}).get("kind") == "namespaces":
                raise
            raise UsageError(
                f"{self._api.access.where} does not know ElasticJobs; install the operator (petctl "
                f"operator install), or turn it off (operator: false in the cluster's settings)"
            ) from None
        return kind(self._api, self._namespace, job_id, made)
