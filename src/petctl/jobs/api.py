"""The Python API: `petctl.submit(Job(...))` gives a handle with which a job is followed, scaled and ended.

    handle = petctl.submit(petctl.Job(script="train.py", nodes="1:3"))
    for line in handle.logs(follow=True):
        print(line.rank, line.text.decode())
    print(handle.wait().exit_code)

A handle holds nothing but the job's id and cluster: it can be thrown away, and `get` makes another, also in another
process.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from petctl.clusters.base import AlreadyExists, Cluster, LogFilter, LogLine, find_cluster
from petctl.config.settings import resource_settings
from petctl.errors import InternalError, NotFound, PetctlError, Unreachable, UsageError
from petctl.home import petctl_home
from petctl.job.record import JobRecord, Output
from petctl.job.spec import IN_PLACE, Job
from petctl.jobs.names import JOBS, Called, checked_id, find_id, name_of, new_id
from petctl.jobs.registry import Registry
from petctl.jobs.secrets import own_secrets
from petctl.jobs.status import Status
from petctl.kinds import DEFAULT

ATTEMPTS = 20  # to find a free id; with four characters the second one is rare
LONGEST_WATCH = 3600.0
KILL_WITHIN = 30.0
INCOMPLETE = "# Secret values are left out, so this cannot start a job. Run petctl render with --with-secrets.\n"

log = logging.getLogger(__name__)


class JobHandle:
    """One submitted job."""

    def __init__(self, job_id: str, cluster: Cluster) -> None:
        self.id = job_id
        self._cluster = cluster

    def __repr__(self) -> str:
        return f"<JobHandle {self._cluster.name}://{self.id}>"

    @property
    def cluster(self) -> str:
        """The name of the cluster that it runs on."""
        return self._cluster.name

    def record(self) -> JobRecord:
        """What was submitted: the job, its code and all that was started for it; secrets by name only."""
        return self._cluster.record(self.id)

    def notes(self) -> list[str]:
        """What its submitter should know, one sentence each: what the snapshot leaves out, which variables of the
        environment a job that waits may lose."""
        return self._cluster.notes(self.id)

    def status(self) -> Status:
        """Where the job stands now."""
        return self._cluster.status(self.id)

    def wait(self, timeout: float | None = None) -> Status:
        """The final status, when the job is over and nothing of it runs any more; TimeoutError when that takes too
        long."""
        deadline = None if timeout is None else time.monotonic() + timeout
        status = None  # the first status differs from that, and is waited for if the cluster is away
        while True:
            again = self.attend()
            left = LONGEST_WATCH if deadline is None else deadline - time.monotonic()
            longest = min(left, LONGEST_WATCH, again if status else math.inf)
            status = self._cluster.watch(self.id, status, max(0.0, longest))
            if status.finished is not None and not status.unattended:
                break
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self.id} has not ended within {timeout:g} s: {status.sentence}")
        Registry(petctl_home()).keep([status])
        return status

    def attend(self) -> float:
        """Does what the job needs that no process looks after: finishes it where it is lost, moves its queue on. Says
        after how many seconds to do so again. `wait` does it, and whoever follows a job may; reading never does."""
        return self._cluster.attend(self.id)

    def watch(self, seen: Status | None = None, timeout: float = LONGEST_WATCH) -> Status:
        """The next status that differs from `seen`, or the same after `timeout`."""
        deadline = time.monotonic() + timeout
        status = self._cluster.watch(self.id, None, timeout)  # at once, but it waits for a cluster that is away
        while status == seen and time.monotonic() < deadline:
            status = self._cluster.watch(self.id, status, deadline - time.monotonic())
        return status

    def logs(
        self,
        follow: bool = False,
        rank: int | None = None,
        node: str | None = None,
        round: int | None = None,  # noqa: A002  the word for it, everywhere
        tail: int | None = None,
        blocks: bool = False,
    ) -> Iterator[LogLine]:
        """What the workers wrote, line by line or with `blocks` many lines in one text; with `follow` until the job
        has ended and everything is out."""
        return self._cluster.logs(self.id, LogFilter(rank, node, round, tail, blocks), follow)

    def outputs(self) -> list[Output]:
        """Where what it made lies, by output id; the first, without an id, is everything else in $PETCTL_OUTPUT_DIR."""
        return self._cluster.outputs(self.id)

    def events(self, follow: bool = False) -> Iterator[dict[str, Any]]:
        """What has happened, each with time, kind and sentence."""
        return self._cluster.events(self.id, follow)

    def scale(self, nodes: int) -> str:
        """Asks for another number of nodes, within the job's bounds; answers with a sentence."""
        if type(nodes) is not int:
            raise UsageError(f"a number of nodes is a whole number, not {nodes!r}")
        return self._cluster.scale(self.id, nodes)

    def cancel(self, kill: bool = False) -> str:
        """Ends the job; workers get their grace, or with `kill` none. Does not wait: `wait` does."""
        return self._cluster.cancel(self.id, kill)

    def remove(self, force: bool = False) -> None:
        """Forgets an ended job with its logs and outputs; with `force` ends it first: Unreachable where it does not end
        within 30 s."""
        if force:
            self._kill()
        secrets = own_secrets(self._cluster, self.id)
        self._cluster.remove(self.id)
        for name in secrets:
            self._cluster.remove_secret(name)
        Registry(petctl_home()).forget(self._cluster.name, [self.id])

    def _kill(self) -> None:
        try:
            if self.status().final:
                return
        except InternalError:  # damaged: its cluster refuses to remove one that a process looks after
            return
        self.cancel(kill=True)
        try:
            self.wait(KILL_WITHIN)
        except TimeoutError:
            advice = self._cluster.unanswered_advice(self.id)
            raise Unreachable(
                f"{self.id} was not removed: it was still running {KILL_WITHIN:g} s after it was killed. {advice}"
            ) from None

    def exec(self, argv: Sequence[str], node: str | None = None) -> int:
        """Runs a command where a node's workers run, with this process' terminal; its exit code."""
        if not argv:
            raise UsageError("there is no command to run")
        return self._cluster.execute(self.id, list(argv), node)

    def forward(
        self, port: int, local_port: int = 0, node: str | None = None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        """A local port that leads to a node's port, for as long as the context lasts. `tell` hears why a connection
        came to nothing: no program listens there, say."""
        return self._cluster.forward(self.id, port, local_port, node, tell)

    def token(self, path: str | PathLike[str], address: str | None = None) -> None:
        """Writes the join file with which another machine takes part."""
        self._cluster.token(self.id, Path(path), address)


def submit(
    job: Job,
    cluster: str | None = None,
    id: str | None = None,  # noqa: A002  the word for it
    code: Mapping[str, Any] | None = None,
) -> JobHandle:
    """Starts a job, or puts it in line; returns as soon as it is accepted.

    With an `id` of the caller's own a submission can be repeated: AlreadyExists says that it was accepted before, also
    by a process that was killed right then. `code`: that of an earlier job's record, instead of a new snapshot.
    """
    where = find_cluster(cluster or job.cluster, petctl_home())
    if id is None:
        return _submit(job, where, code)
    return _submit_as(replace(job, name=name_of(job)), where, code, checked_id(id))


def resubmit(reference: str, cluster: str | None = None, new_code: bool = False, resume: bool = False) -> JobHandle:
    """Starts a job again, as a new one: with the code that it had, or with `new_code` as that is now; with `resume`
    from the checkpoints that it left."""
    from petctl.job.file.read import job_from_dict
    from petctl.submission.folder_mounts import as_wish

    before = get(reference)
    record = before.record()
    job = replace(job_from_dict(record.job), python=record.task.python)
    if resume:
        if cluster:
            raise UsageError("--resume runs where the checkpoints are; leave --cluster out")
        job = replace(job, env={**job.env, **_left_checkpoints(before, record)})
    there = Path(record.cwd)  # what its words are relative to, wherever they are said again
    if "://" not in job.code:
        named = job.code not in ("", IN_PLACE)
        new = new_code and job.code != IN_PLACE
        nowhere = not (job.cwd or new) and _in_its_images_directory(record)
        cwd = "" if record.task.layout.work or nowhere else there / job.cwd
        job = replace(job, cwd=cwd, code=there / job.code if named else IN_PLACE if nowhere else job.code)
    job = replace(job, folders=as_wish(record.folders))
    there_before = record.cluster if before.cluster == DEFAULT else before.cluster
    where = find_cluster(cluster or job.cluster or there_before, petctl_home())
    return _submit(job, where, None if new_code else record.code)


def _in_its_images_directory(record: JobRecord) -> bool:
    """Whether pods ran it where their image puts them: it took no code along, and named no directory."""
    return not (record.code or record.task.cwd)


def _left_checkpoints(before: JobHandle, record: JobRecord) -> dict[str, str]:
    """The variable that names them, of a job that writes no more of them."""
    from petctl.job.task import CHECKPOINTS

    if not before.status().final:
        raise UsageError(f"{before.id} has not ended and may still write checkpoints; first: petctl cancel {before.id}")
    place = record.task.checkpoint_dir
    if not record.job.get("env", {}).get(CHECKPOINTS) and not Path(place).is_dir():
        raise UsageError(
            f"the checkpoints of {before.id} were deleted with its nodes; to keep the next job's, mount a volume "
            f"and name a directory in it: -e {CHECKPOINTS}=DIRECTORY"
        )
    return {CHECKPOINTS: place}


def _submit(job: Job, where: Cluster, code: Mapping[str, Any] | None) -> JobHandle:
    name = name_of(job)
    for _ in range(ATTEMPTS):
        try:
            return _submit_as(job, where, code, new_id(name))
        except AlreadyExists:
            continue
    raise InternalError(f"found no free id for {name!r}; remove ended jobs with: petctl rm --finished")


def _submit_as(job: Job, where: Cluster, code: Mapping[str, Any] | None, job_id: str) -> JobHandle:
    log.debug("submitting %s to cluster %s", job_id, where.name)
    where.submit(where.build_record(job, job_id, code))
    log.debug("submitted %s", job_id)
    if where.name != DEFAULT and not resource_settings(petctl_home(), where.name):  # those lie among the local ones
        Registry(petctl_home()).know(where.name)
    return JobHandle(job_id, where)


def render(job: Job, cluster: str | None = None, output: str = "yaml", with_secrets: bool = False) -> str:
    """Exactly what `submit` would create, as text; secrets by name only. Where another tool can start the job, it is
    what that tool takes, once it is made `with_secrets`: those of the job itself, never the user's."""
    from petctl.submission.render import as_text

    where = find_cluster(cluster or job.cluster, petctl_home())
    name = name_of(job)
    objects = where.manifests(job, new_id(name), with_secrets)
    if objects is None:
        if with_secrets:
            raise UsageError(f"only petctl can start jobs on {where.name}; leave --with-secrets out")
        return as_text([where.build_record(job, f"{name}-0000").to_dict()], output)
    Registry(petctl_home()).know(where.name)  # whoever creates it will ask for it here
    return ("" if with_secrets or output == "json" else INCOMPLETE) + as_text(objects, output)


def get(reference: str, patient: bool = False, called: Called = JOBS) -> JobHandle:
    """The job of this id, or of the only id that begins or ends so: here, or else on any cluster that is known here.

    `patient`: where it is not found and a cluster is away, that is asked again for some minutes.
    """
    home = petctl_home()
    here = find_cluster(DEFAULT, home)
    try:
        return JobHandle(find_id(reference, here.ids(), called), here)
    except NotFound:
        from petctl.clusters.patience import AWAY, Patience
        from petctl.jobs.listing import other_clusters

        others = other_clusters(home)
        if not others:
            raise
    patience = Patience()
    while True:
        ids, silent = dict.fromkeys(here.ids(), here), {}
        for name in others:
            try:
                place = find_cluster(name, home)
                ids.update(dict.fromkeys(place.ids(), place))
            except PetctlError as error:  # a cluster that is away, or was: the job may be on another
                silent[name] = error
        try:
            job_id = find_id(reference, ids, called)
            return JobHandle(job_id, ids[job_id])
        except NotFound as error:
            told = "".join(f"\ncannot reach {name}: {why}" for name, why in silent.items())
            failure = NotFound(f"{error}{told}")
        if AWAY in {why.code for why in silent.values()}:
            failure.code = AWAY  # the job may well be there
        if not patient or failure.code != AWAY:
            raise failure
        patience.wait_and_retry(failure)
