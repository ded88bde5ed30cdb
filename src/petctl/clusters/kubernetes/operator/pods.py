"""The pods of one ElasticJob's coordinator and nodes: as without the operator, but numbered by it and not by a Job."""

from __future__ import annotations

from collections.abc import Mapping

from petctl.clusters.kubernetes.elastic_jobs import API_VERSION, KIND
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.names import COORDINATOR, INDEX, NODE, NUMBER, OWNER, ROLE, object_name
from petctl.clusters.kubernetes.operator.elasticjob import ElasticJob, Object
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.kubernetes.pods.template_merge import patched
from petctl.job.record import JobRecord


def owned(manifest: Object, job: ElasticJob) -> Object:
    """The same in the job's namespace; it goes when the job goes."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": job.name, "uid": job.uid, "controller": True}
    metadata = {**manifest["metadata"], "namespace": job.namespace, "ownerReferences": [owner]}
    return {**manifest, "metadata": metadata}


def service(job: ElasticJob) -> Object:
    """Leads to the coordinators of this job, not to those of an earlier one that had its name."""
    found = make.service(job.id)
    found["spec"]["selector"] = {**found["spec"]["selector"], OWNER: job.uid}
    return found


def budget(job: ElasticJob, least: int) -> Object:
    """Keeps so many nodes of this job, not of an earlier one that had its name."""
    found = make.budget(job.id, least)
    found["spec"]["selector"]["matchLabels"][OWNER] = job.uid
    return found


def coordinator_pod(job: ElasticJob, record: JobRecord, number: int, alone: bool) -> Object:
    """The pod of the coordinator that has this number; `alone`: no node of the job runs."""
    secrets, pieces = list(record.secrets.values()), KubernetesRequest.of(record).pieces
    numbers = [{"name": "PETCTL_REPLACEMENT", "value": str(number)}]
    template = make.coordinator_pod(job.id, _wishes(job), pieces, secrets, bool(record.grants), numbers)
    if alone and number:
        template["spec"]["containers"][0]["command"].append("--nobody")
    template = patched(template, job.spec.get("coordinator") or {}, "spec.coordinator")
    return _pod(job, f"{COORDINATOR}-{number}", template, {NUMBER: str(number)})


def node_pod(job: ElasticJob, index: int, number: int) -> Object:
    """The pod of a node; `number`: of those ever made for the job, so that a later one is known to be newer."""
    numbers = [{"name": "PETCTL_REPLACEMENT", "value": str(number)}, {"name": "PETCTL_INDEX", "value": str(index)}]
    template = make.node_pod(job.id, _wishes(job), numbers)
    return _pod(job, f"{NODE}-{index}", template, {NUMBER: str(number), INDEX: str(index)})


def role_of(pod: Object) -> str:
    """Coordinator or node."""
    return str(pod["metadata"].get("labels", {}).get(ROLE, ""))


def number_of(pod: Object, label: str = NUMBER) -> int:
    """A number that it was given; -1 for one that nobody here made."""
    text = str(pod["metadata"].get("labels", {}).get(label, ""))
    return int(text) if text.isdecimal() else -1


def _wishes(job: ElasticJob) -> make.PodSettings:
    spec = job.spec["template"].get("spec") or {}
    return make.PodSettings(
        image=str(job.container.get("image") or ""),
        pull_policy=str(job.container.get("imagePullPolicy") or ""),
        pull_secrets=[secret["name"] for secret in spec.get("imagePullSecrets") or ()],
        agent_image=str(job.spec.get("agentImage") or ""),
        python=str(job.spec.get("python") or "python3"),
        grace=job.grace,
        patches=[("spec.template", job.patch())],
    )


def _pod(job: ElasticJob, ending: str, template: Object, labels: Mapping[str, str]) -> Object:
    metadata = {**template["metadata"], "name": f"{object_name(job.id)}-{ending}"}
    metadata["labels"] = {**metadata["labels"], **labels, OWNER: job.uid}
    return owned({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, job)
