"""Jobs of Batch AI: a name in an experiment for one of petctl's own jobs.

    name reserved -> plan -> petctl's id written down -> submitted

Whoever is killed on the way leaves a name whose job says so and can be deleted; never a job without a name. How a job
stands is `job_state.py`'s to tell.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.compat.batchai.service.clusters import cluster_of, forget_secrets
from petctl.compat.batchai.service.names import Address, check_name
from petctl.compat.batchai.service.resource_store import Missing, Trail, Tree, words
from petctl.compat.batchai.service.resources import ensure_defaults, trail_of
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.files import release, take_lock
from petctl.job.record import OWN_SECRET

if TYPE_CHECKING:
    from petctl.job.record import JobRecord, Output
    from petctl.job.spec import Job
    from petctl.jobs import JobHandle
    from petctl.storage.transfer.plan import End

ATTEMPTS = 20  # to find a free id of petctl's
SUBMITTING = "submitting"  # locked by whoever submits the job


def create_job(
    home: Path,
    given: Address,
    address: Address,
    target: Mapping[str, Any],
    job: Job,
    reported: Mapping[str, Any],
    secrets: Mapping[str, str],
) -> dict[str, Any]:
    """Submits a job under a name that was free; `given` is the address before defaults were filled in."""
    check_name("job", address.name)
    tree, trail = Tree(home), trail_of("jobs", address)
    record: dict[str, Any] = {
        "created": time.time(),
        "cluster": dict(target),
        "petctl": "",
        "segment": None,
        "properties": dict(reported),
        "secrets": _own_secrets(job),
    }
    with tree.locked():
        ensure_defaults(tree, given, address)
        tree.make(trail, record)
        held = take_lock(tree.directory(trail) / SUBMITTING)
    kept: list[str] = []  # not all that it names: one that is submitted again has the secrets of the first
    try:
        _keep(home, target, secrets, kept)
        return _submit(tree, trail, target, job)
    except BaseException:
        if not _started(home, address):  # a Ctrl-C may come after the job has gone its way
            with tree.locked():
                tree.remove(trail)
            forget_secrets(home, target["petctl"], kept)
        raise
    finally:
        if held is not None:
            release(held)


def _own_secrets(job: Job) -> list[str]:
    """Those that came from job files, and go when the last job that names them does."""
    named = {*job.secrets.values(), job.image_credentials}
    return sorted(name for name in named if name.startswith(OWN_SECRET))


def _keep(home: Path, target: Mapping[str, Any], secrets: Mapping[str, str], kept: list[str]) -> None:
    """Keeps secrets where the job finds them; notes which."""
    from petctl.clusters.base import find_cluster

    where = find_cluster(target["petctl"], home)
    known = where.list_secrets() if secrets else []
    for name, value in secrets.items():
        if name not in known:  # the key of a storage account that is there is the user's own
            kept.append(name)
            where.set_secret(name, value)


def _submit(tree: Tree, trail: Trail, target: Mapping[str, Any], job: Job) -> dict[str, Any]:
    from petctl.clusters.base import AlreadyExists, find_cluster
    from petctl.jobs.names import name_of, new_id
    from petctl.jobs.registry import Registry

    where = find_cluster(target["petctl"], tree.home)
    for _ in range(ATTEMPTS):
        job_id = new_id(name_of(job))
        built = where.build_record(job, job_id)
        segment = built.task.layout.said.get("segment")
        with tree.locked():
            record = tree.change(trail, petctl=job_id, segment=segment, results=str(results_place(tree.home, job_id)))
        try:
            where.submit(built)
        except AlreadyExists:
            continue
        _link_results(Path(record["results"]), built)
        if not target.get("here"):  # those of this machine are found among its own
            Registry(tree.home).know(where.name)
        return record
    raise UsageError(f"found no free id for {job.name!r}; remove ended jobs with: petctl rm --finished")


def planned(home: Path, target: Mapping[str, Any], job: Job) -> JobRecord:
    """Exactly what would be submitted; values of secrets are not in it."""
    from petctl.clusters.base import find_cluster
    from petctl.jobs.names import name_of

    return find_cluster(target["petctl"], home).build_record(job, f"{name_of(job)}-0000")


def again(home: Path, address: Address, name: str, cluster: str) -> Job:
    """A job as it was submitted, under another name: with what its file said then, not now."""
    from msgspec.structs import replace

    from petctl.compat.batchai.jobfile import own_name
    from petctl.compat.batchai.layout import said_by
    from petctl.job.file.read import job_from_dict

    before = job_from_dict(handle_of(home, address).record().job)
    said = said_by(before)
    said = replace(said, names={**said.names, "job": name, "cluster": cluster})
    return replace(before, name=own_name(name), cluster=cluster, options={**before.options, "batchai": said})


def handle_of(home: Path, address: Address, certain: bool = False) -> JobHandle:
    """petctl's own job behind a name. `certain`: for whoever ends it; an id that was taken when its submission was cut
    off is another's."""
    from petctl.jobs import JobHandle

    record = Tree(home).read(trail_of("jobs", address))
    if not record["petctl"]:
        raise NotFound(f"{words(trail_of('jobs', address))} was not submitted; its submission was interrupted")
    handle = JobHandle(record["petctl"], cluster_of(home, record["cluster"]))
    if certain and handle.record().task.layout.said.get("segment") != record["segment"]:
        raise NotFound(f"petctl's job {record['petctl']} is not that of {words(trail_of('jobs', address))}")
    return handle


def _started(home: Path, address: Address) -> bool:
    try:
        handle_of(home, address, certain=True)
    except PetctlError:
        return False
    return True


def terminate_job(home: Path, address: Address, wait: bool = True) -> None:
    """Ends a job; its workers get their grace."""
    tree, trail = Tree(home), trail_of("jobs", address)
    with tree.locked():
        tree.change(trail, terminated=True)
    handle = handle_of(home, address, certain=True)
    handle.cancel()
    if wait:
        handle.wait()


def results_place(home: Path, job_id: str) -> Path:
    """A short way to a job's results: $PETCTL_HOME/batchai/results/JOB/ID are links to its directories."""
    return Tree(home).root / "results" / job_id


def output_directory(home: Path, address: Address, wanted: str) -> Path | End | None:
    """Where the directory of one id is: on this machine, in an object store, or (None) where only nodes can reach it. A
    wrong id is told with those there are."""
    from petctl.compat.batchai.layout import directories, stored

    record = handle_of(home, address).record()
    known = directories(record)
    exact = {name.lower(): name for name in known}
    if wanted.lower() not in exact:
        raise Missing(f"job {address.name!r} has no output directory {wanted!r}; there are: {', '.join(sorted(known))}")
    name = exact[wanted.lower()]
    remote = stored(record).get(name)
    if remote is not None:
        return _opened(home, remote)
    place = known[name]
    here = bool(place) and (bool(record.directory) or Path(place).is_dir())
    return Path(place) if here else None


def _opened(home: Path, output: Output) -> End:
    """A folder of an object store, reached as the job's nodes reach it."""
    from dataclasses import replace

    from petctl.storage.stores.location import parse_location
    from petctl.storage.transfer.plan import open_end
    from petctl.submission.stores import surroundings

    known, location = surroundings(home), parse_location(f"{output.location}/")
    if output.settings:
        known = replace(known, stores={**known.stores, location.root: output.settings})
    return open_end(location, known)


def _link_results(place: Path, record: JobRecord) -> None:
    from petctl.compat.batchai.layout import directories

    place.mkdir(parents=True, exist_ok=True)
    for name, directory in directories(record).items() if record.directory else ():
        link = place / name
        if directory and not link.is_symlink():
            link.symlink_to(directory)
