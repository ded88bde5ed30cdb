"""Builds the record of a job that is about to be submitted: what is the same for every cluster, said once.

    results -> code -> the nodes' task -> folders and grants -> what only this cluster knows

Each backend derives from `RecordBuilder` and says what differs there. No cluster and no store is asked; values of
secrets and the submitter's environment are in no record.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec.structs

from petctl.config.settings import project_root, top_setting
from petctl.errors import UsageError
from petctl.job.fields import encode
from petctl.job.file.write import job_to_dict
from petctl.job.record import JobRecord, ResultsRecord
from petctl.job.spec import IN_PLACE, Job
from petctl.job.spec.folders import NONE
from petctl.job.spec.problems import FieldError
from petctl.job.spec.resources import Resources, shared_memory_problems
from petctl.job.spec.shape import Shape, struct_from, take
from petctl.job.spec.volumes import merged_volumes, volumes
from petctl.job.task import Mount, Task
from petctl.rendezvous.core.config import Config
from petctl.submission.folders import folder_names
from petctl.submission.task import check_command, command_line, config_of, interpreter, task_of, working_directory

_OF_NODES: Shape = {"resources": partial(struct_from, Resources), "volumes": volumes}


class RecordBuilder:
    """One job on its way to one cluster; `pinned`: the code of an earlier record; `settings`: the cluster's, which may
    give `resources` and `volumes` to the nodes of every job."""

    uncoded = ""
    """How the note begins that says why no snapshot of the code is taken."""
    here = False
    """Are its nodes on this machine?"""

    def __init__(
        self,
        job: Job,
        job_id: str,
        home: Path,
        cluster: str,
        pinned: Mapping[str, Any] | None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.job, self.id, self.home, self.cluster = job, job_id, home, cluster
        self.pinned = bool(pinned)
        self.notes: list[str] = []
        self.in_copy = False
        self._set_needs(settings or {})
        self.mapped = folder_names(job, cluster)  # they are no code, wanted or not
        self.shows = bool(self.mapped) and job.folders != NONE
        self.routes: dict[str, str] = {}
        self._shown, self._wish = ResultsRecord(), dict[str, Any]()
        self._sent = self._results()
        self.code = dict(pinned) if pinned else self._taken()

    # -- what differs --------------------------------------------------------------------------------------------------

    def task(self) -> Task:
        """A node's share of the job, without folders and results; checks that the job can run there."""
        raise NotImplementedError

    def config(self, task: Task) -> Config:
        """The bounds of its rounds."""
        return replace(config_of(self.job), eager=task.can_be_warm)

    def check(self, grants: Mapping[str, Mapping[str, Any]], folders: Sequence[Mapping[str, Any]]) -> None:
        """Refuses places that the cluster's nodes cannot reach."""

    def request(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> object:
        """What only this cluster knows: its own dataclass."""
        raise NotImplementedError

    @property
    def called(self) -> str:
        """The cluster's name in the record."""
        return self.cluster

    @property
    def cwd(self) -> str:
        """The submitter's directory."""
        return str(Path.cwd())

    @property
    def directory(self) -> str:
        """The job's own, where the cluster has such a place."""
        return ""

    @property
    def folder_cache(self) -> str:
        """Where nodes keep copies of folders."""
        raise NotImplementedError

    # -- what is the same ----------------------------------------------------------------------------------------------

    def build_record(self) -> JobRecord:
        """The whole record; UsageError says what the job lacks."""
        task = self.task()
        self._check_mounts(task.layout.mounts)
        folders, task, grants = self._with_folders(task)
        grants.update(self._sent)
        task = self._with_stored_code(replace(task, results=self.routes), grants)
        self.check(grants, folders)
        return JobRecord(
            id=self.id,
            name=self.job.name or self.id.rpartition("-")[0],
            cluster=self.called,
            submitted=time.time(),
            command=command_line(self.job),
            config=self.config(task),
            task=task,
            cwd=self.cwd,
            code=self.code,
            folders=folders,
            results=self._shown,
            in_copy=self.in_copy,
            notes=self.notes,
            directory=self.directory,
            job={**job_to_dict(self.job), **self._wish},
            secrets=dict(self.job.secrets),
            grants=grants,
            max_time=self.job.max_time,
            request=encode(self.request(task, grants)),
        )

    def _set_needs(self, settings: Mapping[str, Any]) -> None:
        """What each node is to have: what the job says, over what the cluster's settings say for every job."""
        try:
            usual = take(_OF_NODES, {name: settings[name] for name in _OF_NODES if name in settings})
            self.resources = self.job.resources.over(usual.get("resources", Resources()))
            self.volumes = merged_volumes(usual.get("volumes", []), self.job.volumes)
            if problems := shared_memory_problems(self.resources, self.volumes):
                raise FieldError(problems)
        except FieldError as error:
            raise UsageError("\n".join(f"clusters.{self.cluster}.{problem}" for problem in error.problems)) from None

    def _results(self) -> dict[str, dict[str, Any]]:
        """What nodes may send where; nothing where results stay in the job's directory, or go with its nodes."""
        if not self.job.store and not any(self.job.outputs.values()) and top_setting("store") is None:
            return {}
        from petctl.submission.results import plan_results  # few jobs have a store
        from petctl.submission.stores import surroundings

        found = plan_results(self.job, self.id, surroundings(self.home))
        self._shown, self._wish, self.routes = found.shown, found.wish, found.routes
        return found.grants

    def _taken(self) -> dict[str, Any]:
        """The snapshot that the job runs from; adds what the submitter should hear about it to the notes."""
        if self.job.code == IN_PLACE:
            return {}
        from petctl.submission.code import code_of

        code, notes, why_not = code_of(self.job, self.home, [*self.mapped, *self._made_inside()])
        self.notes = [*notes, f"{self.uncoded}: {why_not}"] if why_not else list(notes)
        return code

    def _made_inside(self) -> list[str]:
        """Directories of the project that results go to: what earlier jobs have made is no code."""
        root = project_root()
        places = [Path(pinned["location"]) for pinned in self._sent.values()]
        return [str(place.relative_to(root)) for place in places if place != root and place.is_relative_to(root)]

    def _with_folders(self, task: Task) -> tuple[list[dict[str, Any]], Task, dict[str, dict[str, Any]]]:
        """The mapped folders, and the layout's mounts that lie in object stores; what nodes may do with them."""
        stored = [mount for mount in task.layout.mounts if mount.location]
        if not self.shows and not stored:
            return [], task, {}
        from petctl.submission.folder_mounts import cache_limit, folder_grants, node_folders, pin_folders, pin_mounts

        folders: list[dict[str, Any]] = []
        if self.shows:
            folders, self.notes = pin_folders(self.job, self.cluster, self.home, self.code, self.notes)
        pinned = [*folders, *pin_mounts(stored, self.home)]
        shown = node_folders(pinned)
        task = replace(task, folders=shown, folder_cache=self.folder_cache, folder_limit=cache_limit())
        return folders, task, folder_grants(pinned)

    def _check_mounts(self, mounts: Sequence[Mount]) -> None:
        """Refuses directories of this machine that do not exist, or that nodes elsewhere do not have."""
        for mount in mounts:
            if self.here and mount.directory and not Path(mount.directory).is_dir():
                raise UsageError(f"{mount.said} is {mount.directory}, which does not exist on this machine")
            if mount.here and not self.here:
                raise UsageError(
                    f"{mount.said} is {mount.directory} on this machine, which the nodes of {self.cluster} do not "
                    f"have; mount it there as a volume and set where in petctl.yaml: "
                    f"mounts: {{{mount.said}: DIRECTORY}}"
                )

    def _with_stored_code(self, task: Task, grants: dict[str, dict[str, Any]]) -> Task:
        """Nodes that have not got the code get it from the job's store, where there is one."""
        store = self.routes.get("")
        if not self.code or not store:
            return task
        from petctl.submission.code_store import GRANT, code_grant

        grants[GRANT] = code_grant(grants[store], self.code["id"])
        return replace(task, code=replace(task.code, grant=GRANT))


class InPlaceBuilder(RecordBuilder):
    """A job of this machine that runs in its submitter's own directory, and keeps what it makes in one of its own."""

    folder_cache = ""
    here = True

    def __init__(self, job: Job, job_id: str, home: Path, cluster: str) -> None:
        plain = msgspec.structs.replace(job, code=IN_PLACE, folders=NONE, store=NONE)
        super().__init__(plain, job_id, home, cluster, None)
        self.own: object = {}  # what only this cluster knows

    @property
    def directory(self) -> str:
        return str(self.home / self.cluster / self.id)

    def task(self) -> Task:
        cwd = working_directory(self.job)
        check_command(self.job, cwd)
        return task_of(self.job, self.id, cwd, interpreter(self.job, cwd, os.environ), Path(self.directory))

    def request(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> object:
        return self.own


def refuse(job: Job, cluster: str, names: Sequence[str], more: Sequence[str] = ()) -> None:
    """UsageError where a job says something in these fields, or `more`, with which the cluster can do nothing."""
    usual = Job(program=["true"], code=job.code if job.code == IN_PLACE else "")
    said = [*(name for name in names if getattr(job, name) != getattr(usual, name)), *more]
    if said:
        raise UsageError(f"{cluster} cannot do this: {', '.join(said)}")
