"""What a Batch AI file says that a Job has no field for: `options: {batchai: ...}`; and where its directories are.

What its nodes do is `agent/layouts/batchai.py`'s; the job file is read by `jobfile/`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import field

from petctl.agent.layouts.batchai import directories as places_of
from petctl.agent.layouts.batchai import variables
from petctl.compat.batchai.service.names import SUBSCRIPTION
from petctl.errors import PetctlError, UsageError
from petctl.job.record import JobRecord, Output
from petctl.job.spec.job import IN_PLACE, Job
from petctl.job.spec.options import Options, options_for
from petctl.job.task import Layout, Mount


class BatchAIOptions(Options, frozen=True):
    """Plain data without secrets; written by `jobfile/compile.py`."""

    tool: str = ""  # which block: "chainer", "pytorch", ... as in `toolType`
    properties: dict[str, Any] = field(default_factory=dict)  # the file's fields, checked
    names: dict[str, str] = field(default_factory=dict)  # those of `Names`; empty: as the job says, else a default
    mounts: list[dict[str, Any]] = field(default_factory=list)  # fields of `Mount`, below $AZ_BATCHAI_JOB_MOUNT_ROOT
    files: str = ""  # how its files of output are named: "merged", "rank" or "role"
    backend: str = ""  # of PyTorch

    def node_layout(self, job: Job, job_id: str) -> Layout:
        """Another one for each submission, which has a place of its own for what it writes."""
        try:
            return self._layout(job, job_id)
        except (AttributeError, KeyError, TypeError):
            raise UsageError(
                "the job's options.batchai are not as petctl writes them; leave them out, or submit the Batch AI file "
                "itself"
            ) from None

    def _layout(self, job: Job, job_id: str) -> Layout:
        inputs = {entry["id"]: entry["path"] for entry in self.properties.get("inputDirectories", ())}
        outputs = self.properties.get("outputDirectories", ())
        written = [self.properties["stdOutErrPathPrefix"], *(entry["pathPrefix"] for entry in outputs)]
        read = (path for path in inputs.values() if Path(path).exists())
        group, workspace, experiment = self.names["group"] or "local", job.workspace, job.experiment
        parts = map(_part, (group, workspace or "default", experiment or "default", self.names["job"] or job_id))
        return Layout(
            kind="batchai",
            mounts=[Mount(**mount) for mount in self.mounts],
            work="" if job.cwd or job.code not in ("", IN_PLACE) else places_of("", "NODE").work,
            outputs={entry["id"]: [entry["pathPrefix"], entry.get("pathSuffix", "")] for entry in outputs},
            places=[path for path in (*written, *read) if "$" not in path],
            said={
                "segment": "{}/{}/workspaces/{}/experiments/{}/jobs/{}/{}".format(SUBSCRIPTION, *parts, uuid.uuid4()),
                "cluster": job.cluster or "local",
                "stdouterr": written[0],
                "inputs": inputs,
                "files": self.files,
                "backend": self.backend,
            },
        )


OPTIONS = BatchAIOptions


def said_by(job: Job) -> BatchAIOptions:
    """What a job's file said."""
    return options_for(job.options, BatchAIOptions)


def _part(name: str) -> str:
    """A name as one part of a path."""
    part = re.sub(r"[/\s]+", "_", name)
    return part if part.strip(".") else "_"


def directories(record: JobRecord) -> dict[str, str]:
    """Where "stdouterr" and each output of a job are on this machine; empty where that is known to its nodes only."""
    targets = {mount.path: mount.directory for mount in record.task.layout.mounts if mount.directory}
    return {name: path if path.startswith("/") else "" for name, path in _resolved(record, targets).items()}


def stored(record: JobRecord) -> dict[str, Output]:
    """Those of the same directories that lie in an object store: where there, and how that is reached."""
    from petctl.submission.folder_mounts import GRANT  # takes as long as all the rest

    found = {}
    for mount in (mount for mount in record.task.layout.mounts if mount.location):
        grant, location = record.grants.get(GRANT + mount.folder, {}), mount.location.rstrip("/")
        settings = {name: grant[name] for name in ("endpoint", "region", "anonymous") if grant.get(name)}
        for name, path in _resolved(record, {mount.path: location}).items():
            if f"{path}/".startswith(f"{location}/"):
                found[name] = Output(name, path, settings)
    return found


def _resolved(record: JobRecord, targets: Mapping[str, str]) -> dict[str, str]:
    """The paths of those directories, with the links that nodes make replaced by what they lead to: also before there
    is a node."""
    layout, places = record.task.layout, places_of(record.directory, "0")  # any: mounts are the same for all
    names = {"stdouterr": "STDOUTERR_DIR", **{name: f"OUTPUT_{name}" for name in layout.outputs}}
    try:
        known = variables(layout, places, record.task.env)
    except PetctlError:
        return dict.fromkeys(names, "")
    found = {name: known[f"AZ_BATCHAI_{variable}"] for name, variable in names.items()}
    for path, target in targets.items():
        link = f"{places.mounts}/{path}"
        for name, place in found.items():
            if f"{place}/".startswith(f"{link}/"):
                found[name] = target + place[len(link) :]
    return found
