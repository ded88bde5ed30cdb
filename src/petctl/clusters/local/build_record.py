"""From a job description to exactly what would be started on this machine, as plain data.

The record is what `petctl render` prints, what is kept as job.json, and all that the supervisor reads: so what was
shown is what runs, and the supervisor needs no job model. It holds names of secrets, never values, and nothing of the
submitter's environment.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from petctl.agent.workers.snapshot_command import copy_reason
from petctl.clusters.building import RecordBuilder
from petctl.clusters.local.addresses import advertised_address
from petctl.clusters.local.commands import node_argv, supervisor_argv
from petctl.clusters.local.gpus import gpu_options, gpus_per_node
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.queue.queue_claims import LOCAL
from petctl.clusters.local.queue.slots import default_slots
from petctl.clusters.local.record import LocalRequest
from petctl.config.settings import positive_setting
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import Job, format_bytes, parse_bytes
from petctl.job.spec.volumes import Volume
from petctl.job.task import CHECKPOINTS, Code, Task
from petctl.machine.gpus import visible_gpus
from petctl.submission.task import check_command, check_interpreter, interpreter, task_of, working_directory
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.clusters.local.pools.spec import FleetSpec

_VOLUMES_HERE = "containers (--image) here have host_path and empty_dir in memory, Kubernetes has all of them"


def build_record(
    job: Job, directory: JobDirectory, settings: Mapping[str, Any], pinned: Mapping[str, Any] | None = None
) -> JobRecord:
    """The record of a job that is about to be submitted; `pinned`: the code of an earlier record."""
    return LocalBuilder(job, directory, settings, pinned).build_record()


class LocalBuilder(RecordBuilder):
    """A job on its way to this machine, or to a cluster that was made on it."""

    uncoded = "running in place (no snapshot)"
    here = True

    def __init__(
        self, job: Job, place: JobDirectory, settings: Mapping[str, Any], pinned: Mapping[str, Any] | None
    ) -> None:
        self.place, self.settings = place, settings
        super().__init__(job, place.id, place.home, str(settings.get("name", "")), pinned, settings)
        self.fleet: FleetSpec | None = None
        self.shared: list[str] = []
        if settings.get("resource"):
            from petctl.clusters.local.pools.spec import read_spec, shared_places

            self.fleet = read_spec(place.home, self.cluster)
            self.shared = shared_places(place.home, self.fleet)

    @property
    def called(self) -> str:
        return self.fleet.name if self.fleet else LOCAL

    @property
    def cwd(self) -> str:
        return self._cwd

    @property
    def directory(self) -> str:
        return str(self.place.path)

    @property
    def folder_cache(self) -> str:
        return str(self.home / "cache" / "folders")

    def task(self) -> Task:
        """With the snapshot where this machine has it, or in the user's own directory."""
        job, code = self.job, self.code
        self._cwd = str(Path.cwd()) if code else working_directory(job)
        if not code:
            check_command(job, self._cwd)
        self._slots = self._checked_slots()
        self._devices = visible_gpus(os.environ)
        asked, usual = self.resources.gpus, self.fleet.gpus_per_node if self.fleet else 0
        self._gpus = gpus_per_node(usual if asked is None else asked, job.procs, job.nodes.max, self._devices)
        self._address = advertised_address(job.listen)
        self._limits, refused = ({}, []) if job.image else self._process_limits()
        self.notes = [*self.notes, *refused, *self._not_here()]
        python = job.python if job.image and not job.python else interpreter(job, self._cwd, os.environ)
        if not (job.image or job.prepare or self.fleet):  # these may bring it
            check_interpreter(job, python)
        if job.env.get(CHECKPOINTS):  # in the record too: it may be submitted again from elsewhere
            named = str(Path(job.env[CHECKPOINTS]).expanduser().absolute())
            self.job = job = replace(job, env={**job.env, CHECKPOINTS: named})
        task = task_of(job, self.id, self._cwd, python, self.place.path)
        if self.shared:
            task = dataclasses.replace(task, env={"PETCTL_CLUSTER_MOUNTS": self.shared[0], **task.env})
        if not code:
            return task
        task = dataclasses.replace(task, cwd=self._own_directory(task), code=_code(code, self.place))
        reason = self._copy_reason(task)
        self.in_copy = bool(reason)
        if reason and not self.pinned:
            said = f"the job works in a copy of its code ({reason}); files it writes there become results"
            self.notes = [*self.notes, said]
        return task

    def request(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> LocalRequest:
        """The exact words that start it, and what it takes up."""
        job, gpus, devices = self.job, self._gpus, self._devices
        own = [] if self._address == "127.0.0.1" else ["--address", self._address]
        container = self._container(task, grants) if job.image else {}
        return LocalRequest(
            supervisor=supervisor_argv(self.place),
            nodes=[
                node_argv(self.place, str(index), [*own, *gpu_options(index, gpus, devices)], container)
                for index in range(job.nodes.initial)
            ],
            listen=job.listen,
            address=self._address,
            priority=job.priority,
            slots=self._slots,
            container=container,
            limits=self._limits,
            gpus=gpus,
            devices=devices,
        )

    def _checked_slots(self) -> int:
        fleet, least = self.fleet, self.job.nodes.min
        if fleet:
            from petctl.clusters.local.pools.spec import check_size

            check_size(fleet, least)
            return fleet.high
        slots = positive_setting(dict(self.settings), "local", "slots", default_slots())
        if least > slots:
            raise UsageError(
                f"the job needs at least {least} nodes and this machine has {counted(slots, 'node slot')}; "
                "ask for fewer with -n, or raise clusters.local.slots in petctl.yaml"
            )
        return slots

    def _container(self, task: Task, grants: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """How the nodes' containers are started, with every directory of this machine that their workers see."""
        from petctl.clusters.local.containers.node_containers import container_plan
        from petctl.machine.engines import engine_options, find_engine

        job = self.job
        places = [
            task.cwd if Path(task.cwd).is_dir() else "",
            *task.code.links.values(),
            *(folder.directory for folder in task.folders),
            *(mount.directory for mount in task.layout.mounts),
            *task.layout.places,
        ]
        places += [*self.shared, task.folder_cache, *(str(grant["location"]) for grant in grants.values())]
        if task.checkpoint_dir != str(self.place.checkpoints):
            places.append(task.checkpoint_dir)
        here = [place for place in places if place.startswith("/")]
        engine = find_engine(self.settings, job.image)
        resources = self.resources
        limits = [f"--memory={resources.memory}"] if resources.memory else []
        limits += [f"--cpus={resources.cpu:g}"] if resources.cpu else []
        limits += [word for volume in self.volumes if self._is_here(volume) for word in _mount_words(volume)]
        options = [*limits, *engine_options(self.settings)]  # the last one counts
        return container_plan(engine, job.image, options, self.place, here, job.image_credentials, resources.shm or 0)

    def _process_limits(self) -> tuple[dict[str, float], list[str]]:
        """What processes may use here, a node; and what of it cannot be enforced, in words."""
        asked = {"memory": self.resources.memory, "cpu": self.resources.cpu}
        limits: dict[str, float] = {name: amount for name, amount in asked.items() if amount}
        if not limits:
            return {}, []
        from petctl.clusters.local.controller.cgroups import parents

        possible, refused = parents(limits)
        said = self.resources.to_plain()
        notes = [
            f"--{name} {said[name]} is not enforced: no control group can be made for it here ({why}); it takes root, "
            "a scope of the user's own (systemd-run --user --scope petctl run ...), or a container (--image)"
            for name, why in refused.items()
        ]
        return {name: limits[name] for name in possible}, notes

    def _not_here(self) -> list[str]:
        """What else the nodes are to have and this machine does not give them, in words."""
        notes, shm = [], self.resources.shm
        if shm and not self.job.image:
            notes.append(
                f"--shm-size {format_bytes(shm)}: no effect on processes of this machine, which share its /dev/shm; "
                "containers (--image) have their own"
            )
        away = [f"{one.kind} {one.source} at {one.path}" for one in self.volumes if not self._is_here(one)]
        if away:
            notes.append(f"not mounted on this machine: {', '.join(away)}; {_VOLUMES_HERE}")
        return notes

    def _is_here(self, volume: Volume) -> bool:
        """Whether the nodes see it at its path: in containers what can be mounted, else what has this very path."""
        if self.job.image:
            return volume.kind == "host_path" or bool(volume.medium)
        return volume.kind == "host_path" and not volume.sub_path and volume.source.rstrip("/") == volume.path

    def _own_directory(self, task: Task) -> str:
        """The user's directory, in which workers run; empty: they run in the snapshot, which has all that they open."""
        own = "" if self.mapped or task.layout.kind else str(self.code.get("work", ""))
        return own if Path(own).is_dir() else ""

    def _copy_reason(self, task: Task) -> str:
        """Says why the workers run in the snapshot; empty: in the user's directory, or in a layout's own."""
        if task.layout.kind:
            return ""
        if self.mapped:
            return "its mapped folders are there"
        if not self.code.get("work"):
            return "the code was fetched"
        return copy_reason(task)


def _mount_words(volume: Volume) -> list[str]:
    """For a host path, or a directory in memory."""
    from petctl.clusters.local.containers.node_containers import bind

    if volume.kind == "host_path":
        words = bind(str(Path(volume.source, volume.sub_path)), volume.path)
    else:
        size = [f"tmpfs-size={parse_bytes(f'{volume.source}B')}"] if volume.source else []
        words = ",".join(["type=tmpfs", f"dst={volume.path}", *size])
    return ["--mount", f"{words},readonly" if volume.read_only else words]


def _code(taken: Mapping[str, Any], directory: JobDirectory) -> Code:
    return Code(
        id=taken["id"],
        archive=str(directory.code),
        directory=str(directory.unpacked),
        inside=taken["inside"],
        source=taken["source"],
        files=taken.get("files", 0),
        bytes=taken.get("bytes", 0),
        links=dict(taken["links"]),
        own=str(taken.get("own", "")),
    )
