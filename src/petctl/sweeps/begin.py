"""A new sweep, or the one of that name when the same is asked for again.

The first point's job is planned before anything is made: so what the cluster refuses is told now, and the code and the
interpreter of that plan are those of every point, however long the sweep takes.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from petctl.clusters.base import find_cluster
from petctl.errors import UsageError
from petctl.home import petctl_home
from petctl.job.file.write import job_to_dict
from petctl.job.spec import IN_PLACE, Job
from petctl.jobs.names import name_of, new_id
from petctl.sweeps.decide import check_conditions
from petctl.sweeps.record import (
    CODE,
    LONGEST_NAME,
    Limits,
    Point,
    Sweep,
    SweepDirectory,
    checked_name,
    create,
    sweeps_directory,
)
from petctl.sweeps.space import check_names, variable

KEY, NAME, POINT = "sweep-key", "sweep", "sweep-point"  # labels of its jobs


class Begun(NamedTuple):
    """A sweep that is there, and whether it was there before."""

    folder: SweepDirectory
    again: bool
    notes: Sequence[str] = ()


def begin(
    points: Sequence[Mapping[str, str]],
    jobs: Sequence[Job],
    limits: Limits,
    name: str = "",
    cluster: str = "",
) -> Begun:
    """Makes a sweep of these points, each with its job."""
    check_names(list(points[0]))
    check_conditions(limits)
    jobs = [_exported(job, point) for job, point in zip(jobs, points, strict=True)]
    cluster = cluster or jobs[0].cluster
    if len({job.cluster for job in jobs}) > 1:
        raise UsageError("a sweep runs on one cluster; start one for each, with -c")
    asked = _digest([[job_to_dict(job) for job in jobs], cluster, str(Path.cwd())])
    if name:
        there = SweepDirectory(sweeps_directory() / checked_name(name))
        if there.path.exists():
            return _again(there, asked, limits)
    chosen = name or new_id(_cleaned(name_of(jobs[0])))
    where = find_cluster(cluster, petctl_home())
    sweep = Sweep(
        name=checked_name(chosen),
        key=secrets.token_hex(8),
        created=time.time(),
        cluster=where.name,
        cwd=str(Path.cwd()),
        request=asked,
        job={},
        points=[Point(values=dict(point)) for point in points],
    )
    taken = {sweep.id_of(number, 1) for number in range(1, len(points) + 1)} & set(where.ids())
    if taken:
        raise UsageError(f"job {min(taken)} already exists; choose another name with --name, or petctl rm it")
    jobs = [_labelled(job, sweep, number) for number, job in enumerate(jobs, 1)]
    record = where.build_record(jobs[0], sweep.id_of(1, 1))
    code = dict(record.code)
    notes = list(record.notes)
    if code.get("work") and not record.in_copy:
        notes.append("each point works in a copy of its code; files it writes there become its results")
    code.update({"work": ""} if code else {})  # each point has files of its own: no other overwrites them
    pinned = {"python": record.task.python, **({} if code else {"code": IN_PLACE})}
    plain = [job_to_dict(replace(job, **pinned)) for job in jobs]
    common = {field: value for field, value in plain[0].items() if all(job.get(field) == value for job in plain)}
    files = {CODE: Path(code.pop("archive"))} if code else {}
    folder = create(
        replace(
            sweep,
            job=common,
            code=code,
            points=[
                Point(values=dict(point), job={field: job[field] for field in job if field not in common})
                for point, job in zip(points, plain, strict=True)
            ],
        ),
        limits,
        files,
    )
    if folder is None:  # made by somebody else in this moment
        return _again(SweepDirectory(sweeps_directory() / sweep.name), asked, limits)
    return Begun(folder, again=False, notes=notes)


def _again(folder: SweepDirectory, asked: str, limits: Limits) -> Begun:
    if folder.sweep().request != asked:
        raise UsageError(
            f"there is a sweep {folder.name} already, of another job, other points or from another directory; "
            f"choose another name, continue it as it is (petctl sweep resume {folder.name}), or remove it "
            f"(petctl sweep rm {folder.name})"
        )
    if not folder.driven():
        folder.set_limits(limits)
    return Begun(folder, again=True)


def _cleaned(name: str) -> str:
    """A job's name as the beginning of an id."""
    return re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-_.")[: LONGEST_NAME - 8].rstrip("-_.") or "sweep"


def _exported(job: Job, point: Mapping[str, str]) -> Job:
    """The job with the point's values in its environment."""
    values = {variable(name): value for name, value in point.items()}
    taken = sorted(set(values) & (set(job.env) | set(job.secrets)))
    if taken:
        raise UsageError(f"{taken[0]} is in the job's environment already, but a parameter would set it too")
    return replace(job, env={**job.env, **values})


def _labelled(job: Job, sweep: Sweep, number: int) -> Job:
    labels = {**job.labels, NAME: sweep.name, POINT: str(number), KEY: sweep.key}
    return replace(job, name=sweep.name, labels=labels)


def _digest(asked: Any) -> str:
    return hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest()
