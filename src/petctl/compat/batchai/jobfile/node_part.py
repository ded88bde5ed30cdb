"""The part of a Batch AI job that its nodes need: `Task.batchai`, plain data that `agent/launchers/batchai.py`
interprets.

    segment      of this submission: SUBSCRIPTION/GROUP/workspaces/W/experiments/E/jobs/J/UUID
    cluster      what the job shall take for its cluster's name
    mounts       [{path, directory, said} | {path, location, said} | {path, command}]: below $AZ_BATCHAI_JOB_MOUNT_ROOT
    stdouterr    a path; logs are in SEGMENT/stdouterr below it
    inputs       id -> path
    outputs      id -> [path, suffix]; the directory is path/SEGMENT/outputs[/suffix]
    files        "merged": stdout.txt; "rank": stdout-3.txt; "role": stdout-wk-0.txt
    backend      of PyTorch
    work         whether the workers have a directory of their own; otherwise it is the job's

Paths may use variables, which only a node can fill in.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from petctl.errors import UsageError
from petctl.job.spec.job import IN_PLACE, Job

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"


def node_part(job: Job, job_id: str) -> dict[str, Any]:
    """Made anew for each submission, which has a place of its own for what it writes."""
    try:
        return _node_part(job, job_id)
    except (AttributeError, KeyError, TypeError):
        raise UsageError(
            "the job's `batchai` is not as petctl writes it; leave it out, or submit the Batch AI file itself"
        ) from None


def _node_part(job: Job, job_id: str) -> dict[str, Any]:
    said = job.batchai
    names, properties = said["names"], said["properties"]
    inputs, outputs = properties.get("inputDirectories", ()), properties.get("outputDirectories", ())
    return {
        "segment": "/".join(
            (
                *(SUBSCRIPTION, _part(names["group"] or "local")),
                *("workspaces", _part(job.workspace or "default"), "experiments", _part(job.experiment or "default")),
                *("jobs", _part(names["job"] or job_id), str(uuid.uuid4())),
            )
        ),
        "cluster": job.cluster or "local",
        "mounts": said["mounts"],
        "stdouterr": properties["stdOutErrPathPrefix"],
        "inputs": {entry["id"]: entry["path"] for entry in inputs},
        "outputs": {entry["id"]: [entry["pathPrefix"], entry.get("pathSuffix", "")] for entry in outputs},
        "files": said["files"],
        "backend": said["backend"],
        "work": not job.cwd and job.code in ("", IN_PLACE),
    }


def _part(name: str) -> str:
    """A name as one part of a path."""
    part = re.sub(r"[/\s]+", "_", name)
    return part if part.strip(".") else "_"
