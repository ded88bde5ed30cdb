"""Jobs of Batch AI: a name in an experiment for one of petctl's own jobs.

    name reserved -> plan -> petctl's id written down -> submitted

Whoever is killed on the way leaves a name whose job says so and can be deleted; never a job without a name. What runs,
and how it stands, is asked of `petctl.jobs` each time; only an end is written down, since that stays when the job is
gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from petctl.batchai.clusters import cluster_or_machine, forget_secrets
from petctl.batchai.names import Address, check_name
from petctl.batchai.resources import ensure_defaults, trail_of
from petctl.batchai.tree import Missing, Trail, Tree, words
from petctl.clusters.local.jobdir import is_locked, take_lock
from petctl.errors import NotFound, PetctlError, UsageError

if TYPE_CHECKING:
    from petctl.clusters.base import Output
    from petctl.jobs import JobHandle, Status
    from petctl.spec import Job
    from petctl.store.plan import End

OWN_SECRET = "batchai."  # how names of secrets begin that came from a job file
ATTEMPTS = 20  # to find a free id of petctl's
SUBMITTING = "submitting"  # locked by whoever submits the job
STATES = {
    "pending": "queued",
    "queued": "queued",
    "starting": "running",
    "running": "running",
    "recovering": "running",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "failed",
    "lost": "failed",
}


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
        "secrets": sorted(name for name in {*secrets, *job.secrets.values()} if name.startswith(OWN_SECRET)),
    }
    with tree.locked():
        ensure_defaults(tree, given, address)
        tree.make(trail, record)
        held = take_lock(tree.directory(trail) / SUBMITTING)
    try:
        return _submit(tree, trail, target, job, secrets)
    except BaseException:
        if not _started(home, address):  # a Ctrl-C may come after the job has gone its way
            with tree.locked():
                tree.remove(trail)
            forget_secrets(home, target["petctl"], record["secrets"])
        raise
    finally:
        if held is not None:
            os.close(held)


def _submit(
    tree: Tree, trail: Trail, target: Mapping[str, Any], job: Job, secrets: Mapping[str, str]
) -> dict[str, Any]:
    from petctl.clusters.base import DEFAULT, AlreadyExists, find_cluster
    from petctl.jobs.names import name_of, new_id
    from petctl.jobs.registry import Registry

    where = find_cluster(target["petctl"], tree.home)
    known = where.list_secrets() if secrets else []
    for name, value in secrets.items():
        if name not in known:  # the key of a storage account that is there is the user's own
            where.set_secret(name, value)
    for _ in range(ATTEMPTS):
        job_id = new_id(name_of(job))
        plan = where.plan(job, job_id)
        segment = plan["plan"]["task"]["batchai"].get("segment")
        with tree.locked():
            record = tree.change(trail, petctl=job_id, segment=segment, results=str(results_place(tree.home, job_id)))
        try:
            where.submit(plan)
        except AlreadyExists:
            continue
        _link_results(Path(record["results"]), plan)
        if where.name != DEFAULT:
            Registry(tree.home).know(where.name)
        return record
    raise UsageError(f"found no free id for {job.name!r}; remove ended jobs with: petctl rm --finished")


def planned(home: Path, target: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """Exactly what would be submitted; values of secrets are not in it."""
    from petctl.clusters.base import find_cluster
    from petctl.jobs.names import name_of

    return find_cluster(target["petctl"], home).plan(job, f"{name_of(job)}-0000")


def again(home: Path, address: Address, name: str, cluster: str) -> Job:
    """A job as it was submitted, under another name: with what its file said then, not now."""
    from msgspec.structs import replace

    from petctl.spec import job_from_dict

    record = handle_of(home, address).record()
    before = job_from_dict(record["job"])
    names = {**before.batchai["names"], "job": name, "cluster": cluster}
    return replace(
        before,
        name=name,
        cluster=cluster,
        cwd=str(Path(record["cwd"], before.cwd)),
        batchai={**before.batchai, "names": names},
    )


def look(home: Path, address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    """A job's record, and what is true of it now, for `reported.job`."""
    tree, trail = Tree(home), trail_of("jobs", address)
    record = tree.read(trail)
    if "end" in record:
        return record, record["end"]
    if not record["petctl"] or is_locked(tree.directory(trail) / SUBMITTING):
        return record, _submitting(record, is_locked(tree.directory(trail) / SUBMITTING))
    try:
        seen = _seen(record, handle_of(home, address).status())
    except NotFound:
        return record, _gone(record)
    if seen["ended"] is not None:
        with tree.locked():
            if tree.find(trail) is not None:
                record = tree.change(trail, end=seen)
    return record, seen


def handle_of(home: Path, address: Address, certain: bool = False) -> JobHandle:
    """petctl's own job behind a name. `certain`: for whoever ends it; an id that was taken when its submission was cut
    off is another's."""
    from petctl.jobs import JobHandle

    record = Tree(home).read(trail_of("jobs", address))
    if not record["petctl"]:
        raise UsageError(f"{words(trail_of('jobs', address))} has not been submitted; its submission was cut off")
    handle = JobHandle(record["petctl"], cluster_or_machine(home, record["cluster"]["petctl"]))
    if certain and handle.record()["plan"]["task"].get("batchai", {}).get("segment") != record["segment"]:
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


def watch_states(home: Path, address: Address, tell: Callable[[str], None]) -> Status:
    """The final status; every state on the way is told as it comes."""
    handle = handle_of(home, address)
    status, told = handle.status(), ""
    while True:
        state = _seen(Tree(home).find(trail_of("jobs", address)) or {}, status)["state"]
        if state != told:
            tell(state)
            told = state
        if status.final and status.finished is not None:
            return status
        status = handle.watch(status)


def results_place(home: Path, job_id: str) -> Path:
    """A short way to a job's results: $PETCTL_HOME/batchai/results/JOB/ID are links to its directories."""
    return Tree(home).root / "results" / job_id


def output_directory(home: Path, address: Address, wanted: str) -> Path | End | None:
    """Where the directory of one id is: on this machine, in an object store, or (None) where only nodes can reach it. A
    wrong id is told with those there are."""
    from petctl.clusters.batchai import directories, stored

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
    here = bool(place) and (bool(record["directory"]) or Path(place).is_dir())
    return Path(place) if here else None


def _opened(home: Path, output: Output) -> End:
    """A folder of an object store, reached as the job's nodes reach it."""
    from dataclasses import replace

    from petctl.clusters.stores import surroundings
    from petctl.store.location import parse_location
    from petctl.store.plan import open_end

    known, location = surroundings(home), parse_location(f"{output.location}/")
    if output.settings:
        known = replace(known, stores={**known.stores, location.root: output.settings})
    return open_end(location, known)


def _link_results(place: Path, plan: Mapping[str, Any]) -> None:
    from petctl.clusters.batchai import directories

    place.mkdir(parents=True, exist_ok=True)
    for name, directory in directories(plan).items() if plan["directory"] else ():
        link = place / name
        if directory and not link.is_symlink():
            link.symlink_to(directory)


def _seen(record: Mapping[str, Any], status: Status) -> dict[str, Any]:
    final = status.final and status.finished is not None
    state = STATES.get(status.state, status.state)
    if record.get("terminated") and not final:
        state = "terminating"
    return {
        "state": state,
        "sentence": status.sentence,
        "since": status.since,
        "started": status.started,
        "ended": status.finished if final else None,
        "exit_code": status.exit_code if final else None,
        "errors": [_failure(status)] if final and state == "failed" else [],
    }


def _failure(status: Status) -> tuple[str, str, dict[str, str]]:
    """Code, sentence and details: never a failure without its reason."""
    details = {"State": status.state}
    if status.error is not None:
        error = status.error
        details |= {"Node": error.node, "Rank": str(error.rank), "ExitCode": str(error.code)}
        if error.signal:
            details["Signal"] = error.signal
        if error.traceback or error.message:
            details["Output"] = error.traceback or error.message
    code = {"cancelled": "JobTerminated", "lost": "JobLost"}.get(status.state, "JobFailed")
    return code, status.sentence, details


def _submitting(record: Mapping[str, Any], alive: bool) -> dict[str, Any]:
    if alive:
        seen = {"state": "queued", "sentence": "it is being submitted", "since": record["created"], "started": None}
        return {**seen, "ended": None, "exit_code": None, "errors": []}
    return _lost(record, "NotSubmitted", "its submission was cut off; delete it and create it again")


def _gone(record: Mapping[str, Any]) -> dict[str, Any]:
    return _lost(record, "JobRemoved", f"petctl's job {record['petctl']} is not there any more; nobody knows its end")


def _lost(record: Mapping[str, Any], code: str, sentence: str) -> dict[str, Any]:
    seen = {"state": "failed", "sentence": sentence, "since": record["created"], "started": None}
    return {**seen, "ended": record["created"], "exit_code": None, "errors": [(code, sentence, {})]}
