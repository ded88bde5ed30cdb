"""From a job description to the objects that would be created for it, as plain data; no cluster is asked.

The record is what the coordinator reads, and is part of what `petctl render` prints. It holds names of secrets, never
values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from petctl.clusters.agent_archive import agent_files
from petctl.clusters.building import RecordBuilder
from petctl.clusters.kubernetes.elastic_jobs import elastic_job
from petctl.clusters.kubernetes.job_status import about
from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.kubernetes.pods import pod_options
from petctl.clusters.kubernetes.pods.manifests import (
    MOST_CODE,
    PIECE,
    RECOVERY,
    STATE,
    PodSettings,
    agent_words,
    coordinator_job,
    node_job,
    service,
    shared_agent,
)
from petctl.clusters.kubernetes.pods.schema import KubernetesOptions, PodOptions
from petctl.config.keys import kubernetes_keys
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import IN_PLACE, Job, Rendezvous
from petctl.job.spec.options import options_for
from petctl.job.task import CHECKPOINTS, Code, Task
from petctl.rendezvous.core.config import Config
from petctl.submission.task import check_command, task_of

SAID = "options.kubernetes"  # where a job says what only this kind understands


def build_record(
    job: Job,
    job_id: str,
    home: Path,
    namespace: str,
    settings: Mapping[str, Any],
    pinned: Mapping[str, Any] | None,
    piece: int = PIECE,
    shares_agent: bool = True,
) -> JobRecord:
    """The record of a job that is about to be submitted; `pinned`: the code of an earlier record; `piece`: how much of
    the code goes into one object; `shares_agent`: whether jobs may, which somebody must add as owners of it."""
    _check(settings)
    return KubernetesBuilder(job, job_id, home, namespace, settings, pinned, piece, shares_agent).build_record()


class KubernetesBuilder(RecordBuilder):
    """A job on its way to a namespace."""

    uncoded = "no code is included"
    folder_cache = f"{STATE}/folders"

    def __init__(
        self,
        job: Job,
        job_id: str,
        home: Path,
        namespace: str,
        settings: Mapping[str, Any],
        pinned: Mapping[str, Any] | None,
        piece: int,
        shares_agent: bool,
    ) -> None:
        super().__init__(job, job_id, home, str(settings["name"]), pinned, settings)
        self.namespace, self.settings, self.piece, self.shares_agent = namespace, settings, piece, shares_agent

    def task(self) -> Task:
        """Without a directory of the submitter's machine, which pods do not know."""
        job, code = self.job, self.code
        if not code:
            if job.code != IN_PLACE:
                check_command(job, str(Path(job.cwd or ".").expanduser().absolute()))
            _check_place(job)
        if self.shows and not code:
            raise UsageError(
                "mapped folders appear inside a job's code, but this job has none; run it with --no-folders"
            )
        task = task_of(job, self.id, "" if code else job.cwd, job.python, Path(STATE))
        if not task.checkpoint_dir.startswith("/"):
            raise UsageError(
                f"{CHECKPOINTS}={task.checkpoint_dir}: pods do not know this machine's directories; name an absolute "
                "path in a volume that they mount"
            )
        if code:
            # Links lead to files of the submitter's machine, which no pod has.
            size = {"files": code.get("files", 0), "bytes": code.get("bytes", 0)}
            own = str(code.get("own", ""))
            known = Code(id=code["id"], inside=code["inside"], source=code["source"], own=own, **size)
            task = dataclasses.replace(task, code=known)
        said = options_for(job.options, KubernetesOptions)
        self._options = pod_options.merged(pod_options.options_of(self.settings), said)
        asked = pod_options.piece(self._options, self.resources, self.volumes)
        self._wishes = _wishes(job, self.settings, self._options, self.resources.gpus or 0, asked, said.pod)
        prepare = pod_options.preparation(self.volumes, agent_words(self._wishes), task.prepare)
        return dataclasses.replace(task, prepare=prepare)

    def config(self, task: Task) -> Config:
        """With the time that pods take to come back; whoever waits for room in a queue may wait for ever."""
        config = dataclasses.replace(super().config(task), recover_within=RECOVERY)
        asked = self.job.rendezvous.join_timeout
        if pod_options.queued(self._options) and asked == Rendezvous().join_timeout:
            config = dataclasses.replace(config, join_timeout=0.0)
        return config

    def check(self, grants: Mapping[str, Mapping[str, Any]], folders: Sequence[Mapping[str, Any]]) -> None:
        """Pods see no directory of the submitter's machine."""
        local = [folder["location"] for folder in folders if folder["directory"]]
        local += [pinned["location"] for pinned in grants.values() if pinned["location"].startswith("/")]
        if local:
            raise UsageError(f"{local[0]} is a directory of this machine, which pods cannot see; use s3:// or az://")

    def build_record(self) -> JobRecord:
        """The owner says what the job is, for whoever lists jobs."""
        record = super().build_record()
        record.request["objects"][0]["metadata"].setdefault("annotations", {}).update(about(record))
        return record

    def request(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> KubernetesRequest:
        """The exact objects."""
        job, options, wishes = self.job, self._options, self._wishes
        pieces = 0 if self.routes.get("") else _pieces(self.code, self.piece)
        with_operator = _with_operator(self.settings)
        if not with_operator and self.shares_agent:
            wishes = wishes._replace(agent=shared_agent(agent_files(STATE))["metadata"]["name"])
        if with_operator:
            objects = [pod_options.labelled(elastic_job(self.id, job, wishes), options)]
        else:
            secrets = list(job.secrets.values())
            coordinator = coordinator_job(self.id, wishes, pieces, secrets, bool(grants), suspend=True)
            nodes = pod_options.labelled(node_job(self.id, wishes, job.nodes.initial), options)
            objects = [coordinator, service(self.id), nodes]
        return KubernetesRequest(
            namespace=self.namespace,
            pieces=pieces,
            agent=wishes.agent,
            numbered=not with_operator,
            objects=objects,
            claims=pod_options.claims(self.volumes, self.id),
        )


def _check(settings: Mapping[str, Any]) -> None:
    known = kubernetes_keys()
    for name in settings:
        if name not in known and name != "name":
            raise UsageError(f"clusters.{settings['name']} has no setting {name!r}; it has {', '.join(known)}")


def _check_place(job: Job) -> None:
    """Refuses a relative directory of a job that takes no code along: it would be relative to any directory there."""
    if job.cwd and not job.cwd.startswith("/"):
        absolute = Path(job.cwd).expanduser().absolute()
        raise UsageError(
            f"the job's directory {job.cwd} is relative, and pods do not know this machine's directories; name it as "
            f"the image or a volume has it, such as {absolute}, or take the code along (--code)"
        )


def _with_operator(settings: Mapping[str, Any]) -> bool:
    found = settings.get("operator", False)
    if not isinstance(found, bool):
        raise UsageError(f"clusters.{settings['name']}.operator must be true or false, not {found!r}")
    return found


def _pieces(code: Mapping[str, Any], piece: int) -> int:
    if not code:
        return 0
    archive = Path(code["archive"])
    if not archive.exists():
        raise UsageError(
            f"the code of that job (of {code['source']}) is no longer on this machine; "
            f"use today's: petctl resubmit --new-code"
        )
    size = archive.stat().st_size
    if size > MOST_CODE:
        raise UsageError(
            f"the code archive has {-(-size >> 20)} MiB, but a cluster can keep only "
            f"{MOST_CODE >> 20} MiB; leave more out with .petctlignore"
        )
    return -(-size // piece)


def _wishes(
    job: Job,
    settings: Mapping[str, Any],
    options: PodOptions,
    gpus: int,
    asked: Mapping[str, Any],
    pod: Mapping[str, Any],
) -> PodSettings:
    image = job.image or str(settings.get("image") or "")
    if not image:
        raise UsageError(
            f"a job needs an image on Kubernetes; give one with --image, or set clusters.{settings['name']}.image "
            "in petctl.yaml. Any image with Python 3.9 or newer will do; for others name one that has it as agent_image"
        )
    if job.image_credentials:
        raise UsageError(
            "image_credentials is for containers on this machine; on Kubernetes the registry's password is a Secret "
            "of the namespace, which options.kubernetes.pull_secrets names"
        )
    own, place = settings.get("pod") or {}, f"clusters.{settings['name']}.pod"
    if not isinstance(own, Mapping):
        raise UsageError(f"{place} must be part of a pod template, not {own!r}")
    return PodSettings(
        image=image,
        pull_policy=str(settings.get("pull_policy") or ""),
        pull_secrets=options.pull_secrets,
        agent_image=options.agent_image,
        python=str(settings.get("python") or "python3"),
        gpus=gpus,
        gpu_resource=options.gpu_resource,
        grace=job.grace,
        patches=[(said, patch) for said, patch in ((SAID, asked), (place, own), (f"{SAID}.pod", pod)) if patch],
        coordinator=options.coordinator,
        ttl=options.ttl_after_finished,
    )
