"""From a job description to exactly what would be started on this machine, as plain data.

The plan is what `petctl render` prints, what is kept as job.json, and all that the supervisor reads: so what was
shown is what runs, and the supervisor needs no job model. It holds names of secrets, never values, and nothing of the
submitter's environment.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from petctl.agent.workers.snapshot_command import copy_reason
from petctl.clusters.local.addresses import advertised_address
from petctl.clusters.local.commands import node_argv, supervisor_argv
from petctl.clusters.local.gpus import gpu_options, gpus_per_node, visible_gpus
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.pools.spec import check_size, read_spec, shared_places
from petctl.clusters.local.queue.slots import default_slots
from petctl.config.settings import positive_setting, project_root, top_setting
from petctl.errors import UsageError
from petctl.job.file.write import job_to_dict
from petctl.job.spec import IN_PLACE, Job
from petctl.job.task import CHECKPOINTS, Code, Task, encode_task
from petctl.submission.folders import folder_names
from petctl.submission.task import (
    check_command,
    check_interpreter,
    command_line,
    config_of,
    interpreter,
    task_of,
    working_directory,
)
from petctl.text import counted


def make_plan(
    job: Job, directory: JobDirectory, settings: Mapping[str, Any], pinned: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The record of a job that is about to be submitted; `pinned`: the code of an earlier record."""
    cluster = str(settings.get("name", ""))
    mapped = folder_names(job, cluster)
    results = _results(job, directory)
    code, notes = (dict(pinned), []) if pinned else _taken(job, directory.home, [*mapped, *_made_inside(results)])
    cwd = str(Path.cwd()) if code else working_directory(job)
    if not code:
        check_command(job, cwd)
    fleet = read_spec(directory.home, cluster) if settings.get("resource") else None
    slots = fleet.high if fleet else positive_setting(dict(settings), "local", "slots", default_slots())
    if fleet:
        check_size(fleet, job.nodes.min)
    elif job.nodes.min > slots:
        raise UsageError(
            f"the job needs at least {job.nodes.min} nodes and this machine has {counted(slots, 'node slot')}; "
            "ask for fewer with -n, or raise clusters.local.slots in petctl.yaml"
        )
    devices = visible_gpus(os.environ)
    gpus = gpus_per_node(job.gpus or (fleet.gpus_per_node if fleet else 0), job.procs, job.nodes.max, devices)
    address = advertised_address(job.listen)
    python = job.python if job.image and not job.python else interpreter(job, cwd, os.environ)
    if not (job.image or job.prepare or fleet):  # these may bring it
        check_interpreter(job, python)
    if job.env.get(CHECKPOINTS):  # in the record too: it may be submitted again from elsewhere
        named = str(Path(job.env[CHECKPOINTS]).expanduser().absolute())
        job = replace(job, env={**job.env, CHECKPOINTS: named})
    task = task_of(job, directory.id, cwd, python, directory.path)
    shared = shared_places(directory.home, fleet) if fleet else []
    if shared:
        task = dataclasses.replace(task, env={"PETCTL_CLUSTER_MOUNTS": shared[0], **task.env})
    if code:
        task = dataclasses.replace(task, cwd=_own_directory(job, code, mapped), code=_code(code, directory))
        reason = _copy_reason(job, code, mapped, task)
        if reason and not pinned:
            notes = [*notes, f"the job works in a copy of its code ({reason}); files it writes there become results"]
    folders: list[dict[str, Any]] = []
    grants: dict[str, dict[str, Any]] = {}  # what nodes may ask the coordinator to sign for
    if mapped:
        from petctl.submission.folder_mounts import cache_limit, folder_grants, node_folders, pin_folders

        folders, notes = pin_folders(job, cluster, directory.home, code, notes)
        grants.update(folder_grants(folders))
        cache = str(directory.home / "cache" / "folders")
        task = dataclasses.replace(task, folders=node_folders(folders), folder_cache=cache, folder_limit=cache_limit())
    if job.batchai:
        task, more = _with_containers(job, directory, task)
        grants.update(more)
    own = [] if address == "127.0.0.1" else ["--address", address]
    grants.update(results.get("grants", {}))
    store = results.get("routes", {}).get("")
    if code and store:
        from petctl.submission.code_store import GRANT, code_grant

        grants[GRANT] = code_grant(grants[store], code["id"])
        task = dataclasses.replace(task, code=dataclasses.replace(task.code, grant=GRANT))
    task = dataclasses.replace(task, results=results.get("routes", {}))
    container = _container(job, directory, settings, task, grants, shared) if job.image else {}
    return {
        "id": directory.id,
        "name": job.name or directory.id.rpartition("-")[0],
        "cluster": fleet.name if fleet else "local",
        "submitted": time.time(),
        "command": command_line(job),
        "cwd": cwd,
        "code": code,
        "folders": folders,
        "results": results.get("shown", {}),
        "notes": notes,
        "directory": str(directory.path),
        "job": {**job_to_dict(job), **results.get("wish", {})},
        "plan": {
            "supervisor": supervisor_argv(directory),
            "nodes": [
                node_argv(directory, str(index), [*own, *gpu_options(index, gpus, devices)], container)
                for index in range(job.nodes.initial)
            ],
            "task": encode_task(task),
            "config": dataclasses.asdict(dataclasses.replace(config_of(job), eager=task.can_be_warm)),
            "secrets": dict(job.secrets),
            "grants": grants,
            "listen": job.listen,
            "address": address,
            "max_time": job.max_time,
            "priority": job.priority,
            "slots": slots,
            "container": container,
            "gpus": gpus,
            "devices": devices,
        },
    }


def _taken(job: Job, home: Path, folders: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The snapshot that the job runs from, and what the submitter should hear about it."""
    if job.code == IN_PLACE:
        return {}, []
    from petctl.submission.code import code_of

    code, notes, why_not = code_of(job, home, folders)
    return code, [*notes, f"running in place (no snapshot): {why_not}"] if why_not else notes


def _results(job: Job, directory: JobDirectory) -> dict[str, Any]:
    """Where what the job makes is sent; nothing where it stays in the job's directory."""
    if not job.store and not any(job.outputs.values()) and top_setting("store") is None:
        return {}
    from petctl.submission.results import plan_results
    from petctl.submission.stores import surroundings

    return dataclasses.asdict(plan_results(job, directory.id, surroundings(directory.home)))


def _with_containers(job: Job, directory: JobDirectory, task: Task) -> tuple[Task, dict[str, dict[str, Any]]]:
    """The task with a Batch AI job's mounts that lie in object stores, and what nodes may do with them."""
    from petctl.submission.batchai import check_mounts, pin_containers
    from petctl.submission.folder_mounts import cache_limit, folder_grants, node_folders

    check_mounts(job.batchai)
    pinned = pin_containers(job.batchai, directory.home)
    if not pinned:
        return task, {}
    cache = str(directory.home / "cache" / "folders")
    folders = [*task.folders, *node_folders(pinned)]
    task = dataclasses.replace(task, folders=folders, folder_cache=cache, folder_limit=cache_limit())
    return task, folder_grants(pinned)


def _container(
    job: Job,
    directory: JobDirectory,
    settings: Mapping[str, Any],
    task: Task,
    grants: Mapping[str, Mapping[str, Any]],
    shared: Sequence[str],
) -> dict[str, Any]:
    """How the nodes' containers are started, with every directory of this machine that their workers see."""
    from petctl.clusters.local.containers.engines import engine_options, find_engine
    from petctl.clusters.local.containers.node_containers import container_plan

    places = [
        task.cwd if Path(task.cwd).is_dir() else "",
        *task.code.links.values(),
        *(folder.directory for folder in task.folders),
    ]
    places += [mount.get("directory", "") for mount in task.batchai.get("mounts", ())]
    places += [*shared, task.folder_cache, *(str(grant["location"]) for grant in grants.values())]
    places += _batchai_places(task.batchai)
    if task.checkpoint_dir != str(directory.checkpoints):
        places.append(task.checkpoint_dir)
    here = [place for place in places if place.startswith("/")]
    engine = find_engine(settings, job.image)
    return container_plan(engine, job.image, engine_options(settings), directory, here, job.image_credentials)


def _batchai_places(said: Mapping[str, Any]) -> list[str]:
    """What a Batch AI job names of this machine; where nodes put what lies in its mounts follows from these."""
    written = [said.get("stdouterr", ""), *(prefix for prefix, _ in said.get("outputs", {}).values())]
    read = [path for path in said.get("inputs", {}).values() if Path(path).exists()]
    mounted = [mount.get("directory", "") for mount in said.get("mounts", ())]
    return [place for place in (*written, *read, *mounted) if "$" not in place]


def _made_inside(results: Mapping[str, Any]) -> list[str]:
    """Directories of the project that results go to: what earlier jobs have made is no code."""
    root = project_root()
    places = [Path(pinned["location"]) for pinned in results.get("grants", {}).values()]
    return [str(place.relative_to(root)) for place in places if place != root and place.is_relative_to(root)]


def _own_directory(job: Job, code: Mapping[str, Any], mapped: Sequence[str]) -> str:
    """The user's directory, in which workers run; empty: they run in the snapshot, which has all that they open."""
    own = "" if mapped or job.batchai else str(code.get("work", ""))
    return own if Path(own).is_dir() else ""


def _copy_reason(job: Job, code: Mapping[str, Any], mapped: Sequence[str], task: Task) -> str:
    """Says why the workers run in the snapshot; empty: they run in the user's directory, or in a Batch AI job's own."""
    if job.batchai:
        return ""
    if mapped:
        return "its mapped folders are there"
    if not code.get("work"):
        return "the code was fetched"
    return copy_reason(task)


def _code(record: Mapping[str, Any], directory: JobDirectory) -> Code:
    return Code(
        id=record["id"],
        archive=str(directory.code),
        directory=str(directory.unpacked),
        inside=record["inside"],
        source=record["source"],
        files=record.get("files", 0),
        bytes=record.get("bytes", 0),
        links=dict(record["links"]),
        own=str(record.get("own", "")),
    )
