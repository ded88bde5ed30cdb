"""Runs: submitted with the code that is pinned, found by any unique end of their id, ended, submitted again, run here.

    jianfw_1563257309_60ce2fc7      the experiment, the second in which it was submitted, eight digits of chance

`resubmit` ends the old run before the new one is submitted, and does all that can fail before that: what is killed in
between has lost nothing, since the old run is still known and the same words go on. What a run is, as a job, is said in
`compile.py`.
"""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from petctl.clusters.base import AlreadyExists, find_cluster
from petctl.compat.act.compile import (
    GPUS,
    LABEL,
    RunRequest,
    command_of,
    compile_line,
    held_of,
    job_of,
    keep_password,
    launcher_of_one,
    layout_of,
)
from petctl.compat.act.config.accounts import opened
from petctl.compat.act.config.config import FOLDER_OF_FILES, Config, default_file, find_config, is_cluster
from petctl.compat.act.engines import without_missing_engine
from petctl.compat.act.pins import COMPILE, Pin, changed, last_pin, pin, some
from petctl.compat.act.published import pin_published
from petctl.errors import InternalError
from petctl.home import petctl_home
from petctl.job.spec import Job
from petctl.job.spec.folders import Folder
from petctl.jobs import api
from petctl.jobs.api import JobHandle
from petctl.jobs.names import LONGEST_ID, Called
from petctl.kinds import DEFAULT
from petctl.machine.gpus import visible_gpus

Say = Callable[[str], None]
ATTEMPTS = 20  # to find a free id
_CHANCE = 8


def to_stderr(sentence: str) -> None:
    """For whoever waits at a terminal."""
    print(f"act: {sentence}", file=sys.stderr, flush=True)


def submit(config: Config, wish: RunRequest, new_code: bool = False, say: Say = to_stderr) -> JobHandle:
    """Starts a run with the pinned code, or puts it in line; with `new_code` it is pinned as it is now."""
    with opened(config.accounts):
        pinned = code_for(config, new_code, say)  # of the whole configuration: its password tells what to withhold
        config = without_missing_engine(config, say)
        return _submitted(config, _job(config, wish, pinned, say), pinned)


def find_run(reference: str) -> JobHandle:
    """The run of this id, or of the only id that ends or begins so; the directory of its logs will do."""
    return api.get(reference.rstrip("/").rpartition("/")[2] or reference, called=Called("run", "act query"))


def find_runs(references: Iterable[str]) -> list[JobHandle]:
    """All of them, each once, or an error before anything is done to the first."""
    return list({run.id: run for run in map(find_run, references)}.values())


def abort(reference: str) -> str:
    """Ends a run; a sentence about it. Does not wait."""
    run = find_run(reference)
    return f"{run.id}: {run.cancel()}"


def resubmit(
    reference: str, config: Config | None = None, to: Config | None = None, new_code: bool = False, say: Say = to_stderr
) -> JobHandle:
    """Ends a run and starts it again, with the code that is pinned now: where it was, or with another configuration.
    `config`: for a run whose own is not to be found."""
    before = find_run(reference)
    record = before.record()
    job = record.job
    labels = job.get("labels", {})
    if LABEL not in labels:  # one of petctl's own
        return _replaced(before, lambda: api.resubmit(before.id, to.cluster if to else None, new_code), say)
    target = to or own_config(labels[LABEL], config)
    source = record.code.get("source", "")
    if source.startswith("/") and Path(source).resolve() != target.root.resolve():
        say(f"{before.id} had the code of {source}; the new run has code and configuration of {target.root}")
    with opened(target.accounts):
        pinned = code_for(target, new_code, say)
        target = without_missing_engine(target, say)
        again = _job(target, wish_of(job, target), pinned, say)
        # Refused now rather than when the old run is gone.
        find_cluster(target.cluster, petctl_home()).build_record(again, new_run_id(target.experiment), pinned.code)
        return _replaced(before, lambda: _submitted(target, again, pinned), say)


def local(config: Config, wish: RunRequest, say: Say = to_stderr) -> JobHandle:
    """Runs the command once on this machine, with the pinned code; mapped folders that are here are used as they
    are."""
    here = replace(config, cluster=DEFAULT, multi_process=False, elastic_num_gpu=[], num_gpu=None)
    here = without_missing_engine(here, say)
    with opened(config.accounts):
        pinned = code_for(config, False, say)
        job = _job(here, wish._replace(num_gpu=0), pinned, say)
        job = replace(job, resources={"gpus": len(visible_gpus(os.environ))}, launcher=launcher_of_one(here))
        _tell_without_mpirun(here.launcher, job, say)
        if isinstance(job.folders, dict):
            own = {name: Folder(location=str(place), mode="rw") for name, place in _present(config).items()}
            job = replace(job, folders={**job.folders, **own})
        return _submitted(here, job, pinned)


def code_for(config: Config, new_code: bool, say: Say) -> Pin:
    """The code that a run has: the last that was pinned, unless it is to be pinned now or never was."""
    last = last_pin(config)
    if new_code or config.auto_init:
        if last is not None and last.built and not changed(config, last):
            return last
        made = pin(config)
        if last is None or last.id != made.id:
            say(made.sentence())
        return made
    if last is None:
        published = pin_published(config)
        if published is not None:
            say(f"nothing was pinned here yet: took {published.code['source']}, and {published.sentence()}")
            return published
        made = pin(config)
        say(f"no code is pinned yet: {made.sentence()}")
        return made
    late = sorted(set(config.folders) - set(last.withheld))
    if late:
        made = pin(config)
        say(f"{some(late)} was not a mapped folder when the code was pinned: {made.sentence()}")
        return made
    differing = changed(config, last)
    if differing:
        say(
            f"the code has changed since it was pinned at {last.when} ({some(differing)}); the run has the "
            f"pinned code. To run today's: a init, or --new-code"
        )
    return last


def new_run_id(experiment: str) -> str:
    """A candidate; the cluster says whether it is free."""
    tail = f"_{int(time.time())}_{secrets.token_hex(_CHANCE // 2)}"
    cleaned = re.sub(r"[^a-z0-9_.-]+", "-", experiment.lower()).strip("-_.")[: LONGEST_ID - len(tail)].rstrip("-_.")
    return f"{cleaned or LABEL}{tail}"


def wish_of(job: Mapping[str, Any], config: Config) -> RunRequest:
    """What was asked for, from a run's record, for another run with this configuration."""
    argv, gpus, prepare = command_of(job), int(job["labels"].get(GPUS, 0)), job.get("prepare", "")
    as_usual = prepare in ("", compile_line(config.compile_args))  # then nobody has said how
    alone = gpus > 1 and str(job.get("procs", "1")) == "1"
    return RunRequest(
        argv,
        # what the configuration says of itself may be more than a number: a size that changes
        num_gpu=None if layout_of(config, RunRequest(argv)).total == gpus else gpus,
        single=alone and config.multi_process,
        hold=held_of(job),
        compile_args=None if as_usual else prepare.removeprefix(compile_line("")).strip(),
    )


def _job(config: Config, wish: RunRequest, pinned: Pin, say: Say) -> Job:
    """Code that was built is built again only for somebody who says how."""
    anew = [COMPILE] if pinned.built and wish.compile_args is not None else []
    job = job_of(config, wish, pinned.code, [*pinned.special, *anew])
    _tell_without_mpirun(layout_of(config, wish).launcher, job, say)
    return job


def _tell_without_mpirun(wanted: str, job: Job, say: Say) -> None:
    """Says so where one process is started without the mpirun that the configuration means."""
    if wanted == "mpi" and job.launcher != "mpi":
        say(
            "this machine has no mpirun on its PATH: petctl starts the one process itself, without OMPI_* variables; "
            "for those, install Open MPI (on Debian and Ubuntu: apt install openmpi-bin)"
        )


def _submitted(config: Config, job: Job, pinned: Pin) -> JobHandle:
    keep_password(config)
    for _ in range(ATTEMPTS):
        try:
            return api.submit(job, config.cluster, new_run_id(config.experiment), pinned.code)
        except AlreadyExists:
            continue
    raise InternalError(f"found no free id for a run of {config.experiment!r}; try again")


def own_config(name: str, config: Config | None) -> Config:
    """The configuration that a run was submitted with, as it is now."""
    if config is not None and config.name == name:
        return config
    default = default_file()
    if default is not None and default.resolve().stem == name:  # AML_CONFIG_PATH may lead anywhere
        return find_config()
    if config is not None and not (Path.cwd() / FOLDER_OF_FILES / f"{name}.yaml").is_file() and not is_cluster(name):
        return config
    return find_config(name, named_by="the run's configuration")


def _replaced(run: JobHandle, start: Callable[[], JobHandle], say: Say) -> JobHandle:
    try:
        if not run.status().final:
            say(f"{run.id}: {run.cancel()}")
            run.wait()
        return start()
    except BaseException:
        say(f"{run.id} is being aborted and no run has replaced it yet; to continue: a resubmit {run.id}")
        raise


def _present(config: Config) -> Mapping[str, Any]:
    return {name: config.root / name for name in config.folders if (config.root / name).is_dir()}
