"""`ManagedCluster`: every verb of the Cluster interface, written once over a `Backend`.

A job's truth is what its platform keeps of it, and, while it runs, what its coordinator answers; nothing is kept here
but the version of the newest answer. Whoever follows a job waits for a cluster that is away (`patience.py`); whoever
asks once hears of it. News are waited for where they arise, at the coordinator, else at the platform.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from petctl.clusters.backend import COORDINATOR, NODE, Backend, Inspection
from petctl.clusters.base import EXEC, FORWARD, JOIN, SCALE, Listed, LogFilter, LogLine
from petctl.clusters.patience import AWAY, Patience
from petctl.errors import InternalError, NotFound, PetctlError, Unreachable, UsageError
from petctl.job.record import JobRecord, Output
from petctl.job.status import JobStatus

if TYPE_CHECKING:
    from petctl.clusters.node_ends import NodeEnd
    from petctl.job.spec import Job

WATCH = 20.0  # seconds that one question may stay open
LOOK_ANYWAY = 5.0  # seconds: not all that becomes of a job shows in its coordinator, or in the platform's news of that


Supplied = TypeVar("Supplied", bound=Backend[Any])


class ManagedCluster(Generic[Supplied]):
    """The jobs of one backend."""

    def __init__(self, backend: Supplied) -> None:
        self.backend, self.name, self.home = backend, backend.name, backend.home
        self.capabilities = backend.capabilities
        self._versions: dict[str, int] = {}  # job -> of the last status that its coordinator told

    # -- submitting ----------------------------------------------------------------------------------------------------

    def build_record(self, job: Job, job_id: str, code: Mapping[str, Any] | None = None) -> JobRecord:
        asked = [*job.resources.asked(), *(["volumes"] if job.volumes else [])]
        refused = [name for name in asked if name not in self.backend.honours]
        if refused:
            raise UsageError(
                f"{self.name} cannot give its nodes what the job asks for: {', '.join(refused)}; leave it out, or "
                "choose another cluster with -c"
            )
        return self.backend.request(job, job_id, code)

    def manifests(self, job: Job, job_id: str, with_secrets: bool) -> list[dict[str, Any]] | None:
        return self.backend.manifests(job, job_id, with_secrets)

    def submit(self, record: JobRecord) -> None:
        self._check_secrets(record.secrets.values())
        check_stores(record, self.home)
        self.backend.create(record)

    def record(self, job_id: str) -> JobRecord:
        """With its code, which is brought here where this machine does not have it."""
        record = self.backend.record(job_id)
        code = record.code
        if not code:
            return record
        archive = self.backend.own_archive(record)
        if archive is not None:
            return replace(record, code={**code, "archive": str(archive)})
        # Never the path that the record names: whoever may edit it could have any file of this machine sent.
        from petctl.bundle.bundle_cache import Cabinet, is_snapshot_id
        from petctl.submission.code import bounds_of

        cabinet = Cabinet(self.home / "bundles")
        if not is_snapshot_id(code.get("id")):
            raise UsageError(f"the record of {job_id} is damaged: {code.get('id')!r} is not a snapshot id")
        if self.backend.keeps_code(record) and not cabinet.has(code["id"]):
            cabinet.take_in(code["id"], partial(self.backend.fetch_code, record), bounds_of(code))
        return replace(record, code={**code, "archive": str(cabinet.path(code["id"]))})

    def notes(self, job_id: str) -> list[str]:
        return self.backend.notes(self.backend.record(job_id))

    # -- reading -------------------------------------------------------------------------------------------------------

    def ids(self) -> list[str]:
        return [listed.id for listed in self.backend.list(lambda job_id: False)]

    def statuses(self, wanted: Callable[[str], bool]) -> Iterator[Listed]:
        return self.backend.list(wanted)

    def attend(self, job_id: str) -> float:
        return self.backend.attend(job_id)

    def status(self, job_id: str) -> JobStatus:
        """From the coordinator while it lives, else from what is left of it."""
        return self._look(job_id)[0]

    def _look(self, job_id: str) -> tuple[JobStatus, Inspection]:
        found = self.backend.inspect(job_id)
        if found.over or not found.asks:
            return found.status(), found
        try:
            answer = found.ask("watch", seen=-1, within=0.0)
        except Unreachable:
            return found.status(), found
        self._versions[job_id] = int(answer["version"])
        return found.explain(not_over(JobStatus.from_dict(answer["status"]))), found

    def watch(self, job_id: str, seen: JobStatus | None, timeout: float) -> JobStatus:
        from petctl.clusters.node_ends import is_short

        deadline, patience = time.monotonic() + timeout, Patience()
        while True:
            try:
                status, found = self._look(job_id)
                left = deadline - time.monotonic()
                if status != seen or left <= 0:
                    return status
                self._wait_for_news(found, min(left, LOOK_ANYWAY if is_short(status) else WATCH))
                patience.restored()
            except PetctlError as failure:
                if failure.code != AWAY:
                    raise
                patience.wait_and_retry(failure, deadline)

    def _wait_for_news(self, found: Inspection, timeout: float) -> None:
        """Until the coordinator has some, or where it cannot be asked, until the platform does."""
        if found.asks:
            with suppress(Unreachable):
                version = self._versions.get(found.job_id, -1)
                found.ask("watch", timeout + 10.0, seen=version, within=timeout)
                return
        found.wait(min(timeout, LOOK_ANYWAY))

    def events(self, job_id: str, follow: bool) -> Iterator[dict[str, Any]]:
        from petctl.clusters import node_ends
        from petctl.clusters.printed import event_lines

        self.backend.inspect(job_id)
        printed = self.backend.printed(job_id, COORDINATOR)
        if follow:
            told = event_lines(printed.follow(partial(self._over, job_id)))
            return node_ends.explained_as_they_come(told, partial(self._ends, job_id))
        return node_ends.explained(event_lines(printed.so_far()), self._ends(job_id, gone=True))

    def _ends(self, job_id: str, gone: bool = False) -> Sequence[NodeEnd]:
        """How its nodes ended; none where that is not to be had: what a coordinator tells is told without them."""
        with suppress(PetctlError):
            found: Inspection = self.backend.inspect(job_id)
            return found.ends(gone)
        return ()

    def logs(self, job_id: str, wanted: LogFilter, follow: bool) -> Iterator[LogLine]:
        """What nodes have printed for the workers; of a job that has ended, what its store has."""
        over = partial(self._over, job_id)
        own = self.backend.log_files(job_id, wanted, over if follow else None)
        if own is not None:
            return own
        if not follow and over():
            record = self.backend.record(job_id)
            if record.results.logs:
                from petctl.clusters.archived_logs import stored_lines

                return stored_lines(record, self.home, wanted)
        from petctl.clusters.printed import worker_lines

        printed = self.backend.printed(job_id, NODE)
        if not follow:
            return worker_lines(printed.so_far(), wanted)
        past = printed.so_far(then_follow=True) if wanted.tail is not None else ()
        coming = printed.follow(over)
        return chain(worker_lines(past, wanted), worker_lines(coming, wanted._replace(tail=None)))

    def _over(self, job_id: str) -> bool:
        return bool(self.backend.inspect(job_id).over)

    def outputs(self, job_id: str) -> list[Output]:
        """In the job's store, or in its directory; without either they go with its nodes."""
        record = self.backend.record(job_id)
        if not record.results.outputs and not record.directory:
            raise UsageError(
                f"the outputs of {job_id} are only on its nodes, and are deleted with them; --store keeps them"
            )
        from petctl.submission.results import outputs_of

        return outputs_of(record)

    # -- changing ------------------------------------------------------------------------------------------------------

    def scale(self, job_id: str, wanted: int) -> str:
        self._needs(SCALE)
        self.attend(job_id)
        found = self._live(job_id, "scaled")
        return self.backend.resize(found, wanted, partial(self._ask_soon, found, "scaled"))

    def cancel(self, job_id: str, kill: bool) -> str:
        found = self.backend.inspect(job_id)
        try:
            return self.backend.cancel(found, kill, partial(self._ask_soon, found, "cancelled"))
        except UsageError:
            if not self._over(job_id):
                raise
            return "has ended already"

    def _live(self, job_id: str, verb: str) -> Inspection:
        found: Inspection = self.backend.inspect(job_id)
        if found.over:
            raise UsageError(f"{job_id} has ended ({found.status().state}) and cannot be {verb}")
        return found

    def _ask_soon(self, found: Inspection, verb: str, call: str, **params: Any) -> Any:
        """The coordinator's answer, also where one is just starting or being replaced."""
        began = time.monotonic()
        while True:
            try:
                return found.ask(call, **params)
            except Unreachable:
                left = began + found.replaced_within - time.monotonic()
                if left <= 0:
                    raise
                found.wait(min(left, 1.0))
            found = self._live(found.job_id, verb)

    def unanswered_advice(self, job_id: str) -> str:
        return f"{self.backend.stuck_advice(job_id)} run petctl rm --force {job_id} again"

    def remove(self, job_id: str) -> None:
        with suppress(InternalError):  # a damaged job can be removed, too
            self.attend(job_id)
        found = self.backend.inspect(job_id)
        if not found.over:
            raise UsageError(f"{job_id} has not ended; cancel it first: petctl cancel {job_id}")
        self.backend.delete(found)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def execute(self, job_id: str, argv: list[str], node: str | None) -> int:
        self._needs(EXEC)
        found = self._live(job_id, "entered")
        return self.backend.execute(found, self._node(found, node), argv)

    def forward(
        self, job_id: str, port: int, local_port: int, node: str | None, tell: Callable[[str], None] | None = None
    ) -> AbstractContextManager[int]:
        from petctl.clusters.port_forward import forwarded

        self._needs(FORWARD)
        there = self._node(self._live(job_id, "reached"), node)
        return forwarded(lambda: self.backend.dial(there, port), local_port, tell)

    def token(self, job_id: str, path: Path, address: str | None) -> None:
        from petctl.rendezvous.net.join_file import write_join_file

        found = self._live(job_id, "joined")
        self._needs(JOIN)
        write_join_file(path, self.backend.join_file(found, address))

    def _node(self, found: Inspection, node: str | None) -> Any:
        """This node, or the first one that runs."""
        alive = self.backend.nodes(found)
        if node is None and not alive:
            raise UsageError(f"{found.job_id} has no node yet: {found.status().sentence}")
        name = next(iter(alive)) if node is None else node
        if name not in alive:
            known = ", ".join(alive) or "none"
            raise NotFound(f"{found.job_id} has no running node {name!r}; its nodes: {known}")
        return alive[name]

    def _needs(self, capability: str) -> None:
        if capability not in self.capabilities:
            raise UsageError(f"{self.name} cannot do this: it has no {capability!r} among its capabilities")

    def capacity(self) -> dict[str, object]:
        return self.backend.capacity()

    # -- secrets -------------------------------------------------------------------------------------------------------

    def set_secret(self, name: str, value: str) -> None:
        self.backend.secrets.set(name, value)

    def list_secrets(self) -> list[str]:
        return self.backend.secrets.names()

    def remove_secret(self, name: str) -> None:
        self._check_secrets([name])
        self.backend.secrets.remove(name)

    def _check_secrets(self, names: Iterable[str]) -> None:
        wanted = set(names)
        missing = sorted(wanted - set(self.list_secrets())) if wanted else []
        if missing:
            raise NotFound(
                f"there is no secret {missing[0]!r} in {self.name}; create it with: petctl secret set {missing[0]} "
                f"-c {self.name}"
            )


def not_over(told: JobStatus) -> JobStatus:
    """What a coordinator tells before its platform knows that it has ended: until then the job goes on."""
    return told if told.finished is None else replace(told, finished=None, state="running", exit_code=None, error=None)


def check_stores(record: JobRecord, home: Path) -> None:
    """A missing bucket or a wrong key is told now; code that a store can keep is sent there."""
    if record.grants:
        from petctl.submission.folder_mounts import check_folders
        from petctl.submission.results import check_results

        check_folders(record.folders, home)
        check_results(record.grants, home)
    code = record.code
    if code and (record.task.code.grant or not Path(code["archive"]).exists()):
        from petctl.submission.code_store import keep_code

        keep_code(code, record.grants, home)
