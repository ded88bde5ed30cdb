"""From a job description to the objects that would be created for it, as plain data; no cluster is asked.

The record is what the coordinator reads, and is part of what `petctl render` prints. It holds names of secrets, never
values.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from petctl.clusters.agent_archive import small_agent_bytes
from petctl.clusters.kubernetes.elastic_jobs import elastic_job
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
from petctl.clusters.kubernetes.summaries import about
from petctl.config.keys import kubernetes_keys
from petctl.errors import UsageError
from petctl.job.file.write import job_to_dict
from petctl.job.spec import IN_PLACE, Job, Rendezvous
from petctl.job.spec.folders import NONE
from petctl.job.spec.pods import PodOptions
from petctl.job.task import CHECKPOINTS, Code, encode_task
from petctl.submission import code_store
from petctl.submission.batchai import pin_containers, refuse_mounts_of_this_machine
from petctl.submission.folder_mounts import cache_limit, folder_grants, node_folders, pin_folders
from petctl.submission.folders import folder_names
from petctl.submission.results import plan_results
from petctl.submission.stores import surroundings
from petctl.submission.task import check_command, command_line, config_of, task_of


def make_plan(
    job: Job,
    job_id: str,
    home: Path,
    namespace: str,
    settings: Mapping[str, Any],
    pinned: Mapping[str, Any] | None,
    piece: int = PIECE,
    shares_agent: bool = True,
) -> dict[str, Any]:
    """The record of a job that is about to be submitted; `pinned`: the code of an earlier record; `piece`: how much of
    the code goes into one object; `shares_agent`: whether jobs may, which somebody must add as owners of it."""
    cluster = str(settings["name"])
    _check(settings)
    refuse_mounts_of_this_machine(job.batchai, cluster)
    mapped = folder_names(job, cluster)
    results = plan_results(job, job_id, surroundings(home))
    code, notes = (dict(pinned), []) if pinned else _taken(job, home, mapped)
    if not code:
        _check_place(job)
    task = task_of(job, job_id, "" if code else job.cwd, job.python, Path(STATE))
    if not task.checkpoint_dir.startswith("/"):
        raise UsageError(
            f"{CHECKPOINTS}={task.checkpoint_dir}: pods do not know this machine's directories; name an absolute path "
            "in a volume that they mount"
        )
    if code:
        # Links lead to files of the submitter's machine, which no pod has.
        size = {"files": code.get("files", 0), "bytes": code.get("bytes", 0)}
        known = Code(id=code["id"], inside=code["inside"], source=code["source"], own=str(code.get("own", "")), **size)
        task = dataclasses.replace(task, code=known)
    folders, grants = _folders(job, cluster, home, code, mapped)
    containers = pin_containers(job.batchai, home)
    grants.update({**folder_grants(containers), **results.grants})
    store = results.routes.get("")
    if code and store:
        grants[code_store.GRANT] = code_store.code_grant(grants[store], code["id"])
        task = dataclasses.replace(task, code=dataclasses.replace(task.code, grant=code_store.GRANT))
    _check_reach(grants, folders)
    task = dataclasses.replace(
        task,
        results=results.routes,
        folders=node_folders([*folders, *containers]),
        folder_cache=f"{STATE}/folders" if folders or containers else "",
        folder_limit=cache_limit(),
    )
    options = pod_options.merged(pod_options.options_of(settings), job.kubernetes)
    wishes = _wishes(job, settings, options)
    prepare = pod_options.preparation(options, agent_words(wishes), task.prepare)
    task = dataclasses.replace(task, prepare=prepare)
    config = dataclasses.replace(config_of(job), eager=task.can_be_warm, recover_within=RECOVERY)
    if pod_options.queued(options) and job.rendezvous.join_timeout == Rendezvous().join_timeout:
        config = dataclasses.replace(config, join_timeout=0.0)
    pieces = 0 if store else _pieces(code, piece)
    with_operator = _with_operator(settings)
    if not with_operator and shares_agent:
        wishes = wishes._replace(agent=shared_agent(small_agent_bytes(STATE))["metadata"]["name"])
    if with_operator:
        objects = [pod_options.labelled(elastic_job(job_id, job, wishes), options)]
    else:
        secrets = list(job.secrets.values())
        coordinator = coordinator_job(job_id, wishes, pieces, secrets, bool(grants), suspend=True)
        nodes = pod_options.labelled(node_job(job_id, wishes, job.nodes.initial), options)
        objects = [coordinator, service(job_id), nodes]
    record = {
        "id": job_id,
        "name": job.name or job_id.rpartition("-")[0],
        "cluster": cluster,
        "submitted": time.time(),
        "command": command_line(job),
        "cwd": str(Path.cwd()),
        "code": code,
        "folders": folders,
        "results": results.shown,
        "notes": notes,
        "directory": "",
        "job": {**job_to_dict(job), **results.wish},
        "plan": {
            "task": encode_task(task),
            "config": dataclasses.asdict(config),
            "secrets": dict(job.secrets),
            "grants": grants,
            "pieces": pieces,
            "agent": wishes.agent,  # the object that holds it, if it is not the job's own
            "max_time": job.max_time,
            "namespace": namespace,
            "numbered": not with_operator,  # whether nodes have the indices 0 to their number, and no others
            "objects": objects,
            "claims": pod_options.claims(options, job_id),  # made where there are none of that name
        },
    }
    objects[0]["metadata"].setdefault("annotations", {}).update(about(record))
    return record


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


def _folders(
    job: Job, cluster: str, home: Path, code: Mapping[str, Any], mapped: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """The job's mapped folders, and what nodes may do with them."""
    if not mapped or job.folders == NONE:
        return [], {}
    if not code:
        raise UsageError("mapped folders appear inside a job's code, but this job has none; run it with --no-folders")
    folders, _ = pin_folders(job, cluster, home, code)
    return folders, folder_grants(folders)


def _check_reach(grants: Mapping[str, Mapping[str, Any]], folders: Sequence[Mapping[str, Any]]) -> None:
    """Pods see no directory of the submitter's machine."""
    local = [folder["location"] for folder in folders if folder["directory"]]
    local += [pinned["location"] for pinned in grants.values() if pinned["location"].startswith("/")]
    if local:
        raise UsageError(f"{local[0]} is a directory of this machine, which pods cannot see; use s3:// or az://")


def _taken(job: Job, home: Path, folders: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The snapshot that the job runs from, and what the submitter should hear about it."""
    if job.code == IN_PLACE:
        return {}, []
    from petctl.submission.code import code_of

    code, notes, why_not = code_of(job, home, folders)
    if not code:
        check_command(job, str(Path(job.cwd or ".").expanduser().absolute()))
    return code, [*notes, f"no code is included: {why_not}"] if why_not else notes


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


def _wishes(job: Job, settings: Mapping[str, Any], options: PodOptions) -> PodSettings:
    image = job.image or str(settings.get("image") or "")
    if not image:
        raise UsageError(
            f"a job needs an image on Kubernetes; give one with --image, or set clusters.{settings['name']}.image "
            "in petctl.yaml. Any image with Python 3.9 or newer will do; for others name one that has it as agent_image"
        )
    if job.image_credentials:
        raise UsageError(
            "image_credentials is for containers on this machine; on Kubernetes the registry's password is a Secret "
            "of the namespace, which kubernetes.pull_secrets names"
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
        gpus=job.gpus,
        gpu_resource=options.gpu_resource,
        grace=job.grace,
        patches=[
            (said, patch)
            for said, patch in (("kubernetes", pod_options.piece(options)), (place, own), ("pod", job.pod))
            if patch
        ],
        coordinator=options.coordinator,
        ttl=options.ttl_after_finished,
    )
