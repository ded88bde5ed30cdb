"""A configuration and a command to one of petctl's jobs: GPUs become nodes and processes, keys become fields.

    nodes      GPUs / gpu_per_node; fewer GPUs than that are one node
    processes  multi_process: process_count_per_node, else the node's GPUs; otherwise one on each node
    launcher   mpi, also for one process; not where no GPU is asked for, as in ACT

The command is kept as it was typed. One that is to be held when it ends runs through a few lines of shell, with its
words passed on as they are; `command_of` takes them off again. Nothing is submitted here, and no file of the project is
looked at.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from petctl.compat.act.config.config import Config, kind_of
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.job.spec.folders import ALL, Folder
from petctl.kinds import DEFAULT

LABEL, GPUS = "act", "act-gpus"
REQUIREMENTS, COMPILE = "requirements.txt", "compile.aml.sh"
TORCH_HOME = "./output/torch_home"
LOW_PRIORITY = -1000
HOLD_FAILED, HOLD_DONE, HOLD_LINE = "fail", "succeed", "line"
HOLD = """\
ended=
trap 'ended=yes' TERM INT
"$@"
code=$?
[ -z "$ended" ] || exit "$code"
trap - TERM INT
case "$0 $code" in
*succeed*" 0") ;;
*" 0") exit 0 ;;
*fail*) ;;
*) exit "$code" ;;
esac
echo "act: the command has ended with code $code, and its node is held; to let it go: act abort $PETCTL_JOB_ID" >&2
exec sleep 2147483647
"""


class RunRequest(NamedTuple):
    """What is asked for on the command line, over what the configuration says."""

    argv: Sequence[str]
    num_gpu: int | None = None
    single: bool = False
    hold: bool = False
    compile_args: str | None = None


class Layout(NamedTuple):
    """How many nodes, processes and GPUs. `total` is what was asked for."""

    nodes: str
    procs: int
    gpus: int  # on each node
    launcher: str
    total: int


def job_of(
    config: Config, wish: RunRequest, code: Mapping[str, Any] | None = None, special: Collection[str] = ()
) -> Job:
    """The job. `code`: the record of the snapshot that it is to run from; `special`: which of requirements.txt and
    compile.aml.sh are in that."""
    layout = layout_of(config, wish)
    if layout.launcher == "mpi" and not _has_mpirun(config):
        layout = _without_mpirun(layout)
    arguments = config.compile_args if wish.compile_args is None else wish.compile_args
    held = [HOLD_FAILED] * (wish.hold or config.sleep_if_fail) + [HOLD_DONE] * config.sleep_if_succeed
    line = _is_line(wish.argv)
    command: dict[str, Any] = {"shell": wish.argv[0]} if line else {"program": list(wish.argv)}
    if held:
        command = {"program": _held(wish.argv, held, line)}
    return Job(
        **command,
        name=name_of(config.experiment),
        nodes=layout.nodes,
        procs=layout.procs,
        resources={"gpus": layout.gpus} if layout.gpus and config.device != "cpu" else {},
        launcher=layout.launcher,
        env={"TORCH_HOME": TORCH_HOME, **config.env},
        prepare=compile_line(arguments) if COMPILE in special else "",
        requirements=REQUIREMENTS if REQUIREMENTS in special else "",
        python="" if config.interpreter_path == "python" else config.interpreter_path,
        restarts=config.restarts,
        retry_on=config.retry_on,
        stall_after=0 if held else None,  # a held process makes no steps
        priority=LOW_PRIORITY if config.preemption_allowed else 0,
        labels={LABEL: config.name, GPUS: str(layout.total)},
        experiment=config.experiment,
        cluster=config.cluster,
        cwd="" if code else str(config.root),
        image=config.image,
        image_credentials=password_name(config) if config.image_password and _is_here(config) else "",
        allow_secrets=config.allow_secrets,
        folders={name: Folder(location=place.location, mode=place.mode) for name, place in config.folders.items()}
        or ALL,
    )


def command_of(job_record: Mapping[str, Any]) -> list[str]:
    """The words that were wished for, from a job's record; also when they were held."""
    if "shell" in job_record:
        return [str(job_record["shell"])]
    for kind, words in (("script", []), ("module", ["-m"])):  # a job that was not submitted here
        if kind in job_record:
            return [*words, str(job_record[kind]), *map(str, job_record.get("args", []))]
    words = [*map(str, job_record.get("program", [])), *map(str, job_record.get("args", []))]
    if words[:3] != ["/bin/sh", "-c", HOLD]:
        return words
    return words[-1:] if HOLD_LINE in words[3] else words[4:]


def compile_line(arguments: str) -> str:
    """compile.aml.sh with its words, for a shell."""
    try:
        return shlex.join(["bash", COMPILE, *shlex.split(arguments)])
    except ValueError:
        raise UsageError(f"compile_args (-ca) {arguments!r}: a quote is not closed") from None


def held_of(job_record: Mapping[str, Any]) -> bool:
    """Whether its nodes are kept when it fails."""
    words = list(job_record.get("program", []))
    return words[:3] == ["/bin/sh", "-c", HOLD] and HOLD_FAILED in words[3]


def layout_of(config: Config, wish: RunRequest) -> Layout:
    """From a number of GPUs to nodes and processes; UsageError names the nearest numbers that can be."""
    total = wish.num_gpu if wish.num_gpu is not None else config.num_gpu
    if total is None:
        total = config.gpu_per_node
    if total < 0:
        raise UsageError(f"{total} GPUs: the number of GPUs must be 0 or more")
    if total == 0:
        return Layout("1", 1, 0, "elastic", 0)
    each = config.gpu_per_node
    gpus = min(total, each)
    nodes = _nodes(total, each)
    size = str(nodes)
    if len(config.elastic_num_gpu) > 1 and wish.num_gpu is None:
        counts = [_nodes(number, each, "elastic_num_gpu: ", whole=True) for number in config.elastic_num_gpu]
        size = f"{min(nodes, *counts)}:{nodes}:{max(nodes, *counts)}"
        gpus = each
    procs = (config.process_count_per_node or gpus) if config.multi_process and not wish.single else 1
    return Layout(size, procs, gpus, config.launcher, total)


def name_of(experiment: str) -> str:
    """A name that any cluster takes, from an experiment's."""
    cleaned = re.sub(r"[^a-z0-9_.]+", "-", experiment.lower()).strip("-_.")[:24].rstrip("-_.")
    return cleaned or "act"


def password_name(config: Config) -> str:
    """The secret that holds the registry's user and password."""
    registry = config.image.rpartition("/")[0] or "docker.io"
    return "act-registry-" + re.sub(r"[^A-Za-z0-9._-]+", "-", f"{registry}-{config.image_user}").strip("-.")


def keep_password(config: Config) -> None:
    """Keeps the registry's password among the secrets of this machine, whose engine gets the image."""
    if not config.image_password or not _is_here(config):
        return
    from petctl.home import petctl_home
    from petctl.jobs.secrets import set_secret
    from petctl.secret_file import secret_value

    name, value = password_name(config), f"{config.image_user}:{config.image_password}"
    if secret_value(petctl_home(), name) != value:
        set_secret(name, value)


def _nodes(gpus: int, each: int, where: str = "", whole: bool = False) -> int:
    if each == 0:
        raise UsageError(f"{where}{gpus} GPUs were requested, but gpu_per_node is 0; correct one of them")
    if gpus <= each and not (whole and gpus < each):
        return 1
    if gpus % each:
        below = gpus // each * each
        near = f"{below} or {below + each}" if below else f"{each}"
        raise UsageError(f"{where}{gpus} GPUs are not whole nodes of {each} (gpu_per_node); ask for {near}")
    return gpus // each


def _is_line(argv: Sequence[str]) -> bool:
    """One word with blanks in it is a line for the shell."""
    if not argv or not argv[0].strip():
        raise UsageError("no command: give one after submit: act submit python train.py")
    return len(argv) == 1 and len(argv[0].split()) > 1


def _held(argv: Sequence[str], held: Sequence[str], line: bool) -> list[str]:
    words = ["/bin/sh", "-c", argv[0]] if line else list(argv)
    return ["/bin/sh", "-c", HOLD, "-".join(["act", *held, *([HOLD_LINE] if line else [])]), *words]


def _is_here(config: Config) -> bool:
    return kind_of(config.cluster) == DEFAULT


def _has_mpirun(config: Config) -> bool:
    """Whether mpirun is on this machine's PATH; an image, and other machines, have their own."""
    from petctl.agent.launchers.mpi import find_mpirun

    if config.image or not _is_here(config):
        return True
    try:
        return bool(find_mpirun({**os.environ, **config.env}))
    except UsageError:
        return False


def launcher_of_one(config: Config) -> str:
    """What starts a single process: mpirun, where there is one."""
    return "elastic" if config.launcher == "mpi" and not _has_mpirun(config) else config.launcher


def _without_mpirun(layout: Layout) -> Layout:
    """The layout for a machine without mpirun, on which one process is all that can be started."""
    if (layout.nodes, layout.procs) == ("1", 1):
        return layout._replace(launcher="elastic")
    raise UsageError(
        "several processes need mpirun, which is not on the PATH of this machine; install Open MPI "
        "(on Debian and Ubuntu: apt install openmpi-bin), or write launcher: elastic into the configuration, under "
        "which petctl starts them itself with RANK, WORLD_SIZE and MASTER_ADDR; for one process: -single, or -n 1"
    )
