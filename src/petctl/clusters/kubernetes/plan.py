"""From a job description to the objects that would be created for it, as plain data; no cluster is asked.

The record is what `petctl render` prints and what the coordinator reads. It holds names of secrets, never values.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.agent.task import Code, encode_task
from petctl.clusters.config import top_setting
from petctl.clusters.folders import folder_names
from petctl.clusters.kubernetes.manifests import MOST_PIECES, PIECE, Wishes, coordinator_job, node_job, service
from petctl.clusters.local.plan import command_line
from petctl.clusters.task import check_command, config_of, task_of
from petctl.errors import UsageError
from petctl.spec import IN_PLACE, Job, job_to_dict

RECOVERY = 15.0
"""Seconds in which all nodes find a new coordinator: some still try the address of the old one's pod, in vain."""
_SETTINGS = ("kind", "name", "context", "kubeconfig", "namespace", "image", "pull_policy", "pull_secrets", "python")


def make_plan(
    job: Job, job_id: str, home: Path, namespace: str, settings: Mapping[str, Any], pinned: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The record of a job that is about to be submitted; `pinned`: the code of an earlier record."""
    cluster = str(settings["name"])
    _check(job, cluster, settings)
    code, notes = (dict(pinned), []) if pinned else _taken(job, home)
    cwd = str(Path.cwd())
    task = task_of(job, job_id, "" if code else job.cwd, job.python)
    if code:
        # Links lead to files of the submitter's machine, which no pod has.
        task = dataclasses.replace(task, code=Code(id=code["id"], inside=code["inside"], source=code["source"]))
    wishes = _wishes(job, settings)
    pieces = _pieces(code)
    coordinator = coordinator_job(job_id, wishes, pieces, list(job.secrets.values()), suspend=True)
    return {
        "id": job_id,
        "name": job.name or job_id.rpartition("-")[0],
        "cluster": cluster,
        "submitted": time.time(),
        "command": command_line(job),
        "cwd": cwd,
        "code": code,
        "folders": [],
        "results": {},
        "notes": notes,
        "directory": "",
        "job": job_to_dict(job),
        "plan": {
            "task": encode_task(task),
            "config": dataclasses.asdict(
                dataclasses.replace(config_of(job), eager=task.can_be_warm, recover_within=RECOVERY)
            ),
            "secrets": dict(job.secrets),
            "max_time": job.max_time,
            "namespace": namespace,
            "objects": [coordinator, service(job_id), node_job(job_id, wishes, job.nodes.initial)],
        },
    }


def _check(job: Job, cluster: str, settings: Mapping[str, Any]) -> None:
    for name in settings:
        if name not in _SETTINGS:
            raise UsageError(f"clusters.{cluster} has no setting {name!r}; it has {', '.join(_SETTINGS)}")
    if folder_names(job, cluster):
        raise UsageError(f"mapped folders do not reach pods yet; run it on {cluster} with --folder none")
    if job.store != "none" and (job.store or any(job.outputs.values()) or top_setting("store") is not None):
        raise UsageError(f"results are not sent from pods yet; run it on {cluster} with --store none and without --out")


def _taken(job: Job, home: Path) -> tuple[dict[str, Any], list[str]]:
    """The snapshot that the job runs from, and what the submitter should hear about it."""
    if job.code == IN_PLACE:
        return {}, []
    from petctl.clusters.code import own_code, take_code

    if job.code:
        code = take_code(job, home)
        return code, list(code["notes"])
    code, why_not = own_code(job, home)
    if not code:
        check_command(job, str(Path(job.cwd or ".").expanduser().absolute()))
    return code, [f"no code is taken along: {why_not}"] if why_not else []


def _pieces(code: Mapping[str, Any]) -> int:
    if not code:
        return 0
    size = Path(code["archive"]).stat().st_size
    if size > MOST_PIECES * PIECE:
        raise UsageError(
            f"the code's archive has {size >> 20} MiB, and {MOST_PIECES * PIECE >> 20} MiB can be kept in a cluster; "
            "leave more out with .petctlignore"
        )
    return -(-size // PIECE)


def _wishes(job: Job, settings: Mapping[str, Any]) -> Wishes:
    image = job.image or str(settings.get("image") or "")
    if not image:
        raise UsageError(
            f"a job needs an image on Kubernetes; give one with --image, or set clusters.{settings['name']}.image "
            "in petctl.yaml. Any image with Python 3.9 or newer will do"
        )
    secrets = settings.get("pull_secrets") or []
    return Wishes(
        image=image,
        pull_policy=str(settings.get("pull_policy") or ""),
        pull_secrets=[secrets] if isinstance(secrets, str) else list(secrets),
        python=str(settings.get("python") or "python3"),
        gpus=job.gpus,
        grace=job.grace,
    )
