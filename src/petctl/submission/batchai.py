"""A Batch AI job, seen from the submitting side: where its directories are, and whether a cluster can have it.

What its nodes do is `agent/launchers/batchai.py`'s; the job file is read by `petctl.compat.batchai.jobfile`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.agent.launchers.batchai import FOLDER, variables
from petctl.agent.launchers.batchai import directories as places_of
from petctl.errors import PetctlError, UsageError
from petctl.job.record import JobRecord, Output
from petctl.job.spec.job import IN_PLACE, Job

SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
_OUTPUT = "AZ_BATCHAI_OUTPUT_"


def node_part(job: Job, job_id: str) -> dict[str, Any]:
    """What its nodes need, plain data that `agent/launchers/batchai.py` interprets (`Task.batchai`). Made for each
    submission, which has a place of its own for what it writes.

        segment      of this submission: SUBSCRIPTION/GROUP/workspaces/W/experiments/E/jobs/J/UUID
        cluster      what the job shall take for its cluster's name
        mounts       [{path, directory, said} | {path, location, said} | {path, command}], below the mounts
        stdouterr    a path; logs are in SEGMENT/stdouterr below it
        inputs       id -> path
        outputs      id -> [path, suffix]; the directory is path/SEGMENT/outputs[/suffix]
        files        "merged": stdout.txt; "rank": stdout-3.txt; "role": stdout-wk-0.txt
        backend      of PyTorch
        work         whether the workers have a directory of their own; otherwise it is the job's

    Paths may use variables, which only a node can fill in.
    """
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


def directories(record: JobRecord) -> dict[str, str]:
    """Where "stdouterr" and each output of a job are on this machine; empty where that is known to its nodes only."""
    said, env = record.task.batchai, record.task.env
    places = places_of(record.directory, "0")  # any: what lies on a mount is the same for all
    found = {"stdouterr": "", **dict.fromkeys(said["outputs"], "")}
    try:
        known = variables(said, places, env)
    except PetctlError:
        return found
    mounts = [mount for mount in said["mounts"] if "directory" in mount]
    targets = {f"{places.mounts}/{mount['path']}": mount["directory"] for mount in mounts}
    for name in found:
        path = known["AZ_BATCHAI_STDOUTERR_DIR" if name == "stdouterr" else _OUTPUT + name]
        resolved = _resolved(path, targets)
        found[name] = resolved if resolved.startswith("/") else ""
    return found


def stored(record: JobRecord) -> dict[str, Output]:
    """Those of the same directories that lie in an object store: where there, and how that is reached."""
    said, places = record.task.batchai, places_of(record.directory, "0")
    try:
        known = variables(said, places, record.task.env)
    except PetctlError:
        return {}
    pinned = {folder["name"]: folder for folder in record.folders}
    found = {}
    for mount in (mount for mount in said["mounts"] if "location" in mount):
        folder = pinned.get(FOLDER + mount["path"], {})
        settings = {name: folder[name] for name in ("endpoint", "region", "anonymous") if folder.get(name)}
        for name in ("stdouterr", *said["outputs"]):
            path = known["AZ_BATCHAI_STDOUTERR_DIR" if name == "stdouterr" else _OUTPUT + name]
            location = _resolved(path, {f"{places.mounts}/{mount['path']}": mount["location"].rstrip("/")})
            if location != path:
                found[name] = Output(name, location, settings)
    return found


def environment(record: JobRecord, node: str) -> tuple[dict[str, str], str]:
    """What a command gets that is run beside a node's workers, and where it runs; empty: where they do."""
    said, places = record.task.batchai, places_of(record.directory, node)
    return variables(said, places, record.task.env), places.work if said["work"] else ""


def _resolved(path: str, targets: Mapping[str, str]) -> str:
    """The path with the link that a node makes replaced by what it leads to: also before there is a node."""
    for link, target in targets.items():
        if path == link or path.startswith(f"{link}/"):
            return target + path[len(link) :]
    return path


def pin_containers(batchai: Mapping[str, Any], home: Path) -> list[dict[str, Any]]:
    """The mounts of a job that lie in object stores, pinned as its mapped folders are; `folder_mounts` knows the
    rest."""
    remote = [mount for mount in batchai.get("mounts", ()) if "location" in mount]
    if not remote:
        return []
    from petctl.submission.store_grants import pin
    from petctl.submission.stores import surroundings

    known = surroundings(home)
    return [
        {"name": path, "path": path, "mode": "rw", "directory": "", **pin(mount["location"], known)}
        for mount in remote
        for path in [FOLDER + mount["path"]]
    ]


def check_mounts(batchai: Mapping[str, Any]) -> None:
    """For nodes that are on this machine: what they are to mount must be here."""
    for mount in batchai.get("mounts", ()):
        if "directory" in mount and not Path(mount["directory"]).is_dir():
            raise UsageError(f"{mount['said']} is {mount['directory']}, which does not exist on this machine")


def refuse_mounts_of_this_machine(batchai: Mapping[str, Any], cluster: str) -> None:
    """For clusters whose nodes are elsewhere: they have what the configuration names, and nothing of this machine's."""
    local = [mount for mount in batchai.get("mounts", ()) if mount.get("here")]
    if local:
        said, directory = local[0]["said"], local[0]["directory"]
        raise UsageError(
            f"{said} is {directory} on this machine, which the nodes of {cluster} do not have; mount it there "
            f"(volumes in the job file) and set where in petctl.yaml: mounts: {{{said}: DIRECTORY}}"
        )
