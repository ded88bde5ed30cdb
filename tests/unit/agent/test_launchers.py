"""Command lines of the two launchers, and how many processes a node runs."""

from __future__ import annotations

import dataclasses
import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.launchers.launchers import (
    Launcher,
    comes_again,
    command,
    interpreter,
    look_for,
    torchrun_command,
)
from petctl.agent.node.host import Devices, count_processes
from petctl.agent.workers.environment import ROUND_NAMES, RoundContext
from petctl.agent.workers.snapshot_command import interpreter_words
from petctl.errors import UsageError
from petctl.job.task import Task
from petctl.rendezvous.core.messages import Place

launches = Launcher().plan
PLACE = Place(rank=1, nodes=2, first_rank=2, world_size=4, master_addr="10.0.0.1", master_port=4711)
CONTEXT = RoundContext("n1", "key", epoch=1, round=3, place=PLACE, spent=0, procs=2)


def task(kind: str, *words: str, **fields: Any) -> Task:
    return Task(job="j", kind=kind, words=list(words), **{"python": sys.executable, **fields})


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (task("script", "train.py", "--lr", "0.1 x"), [sys.executable, "-u", "train.py", "--lr", "0.1 x"]),
        (task("module", "pkg.train", "-v"), [sys.executable, "-u", "-m", "pkg.train", "-v"]),
        (task("program", "nvidia-smi", "-L"), ["nvidia-smi", "-L"]),
        (task("shell", "echo $RANK | cat"), ["/bin/sh", "-c", "echo $RANK | cat"]),
    ],
)
def test_the_users_words_survive(given: Task, wanted: list[str]) -> None:
    assert command(given, os.environ) == wanted


@pytest.mark.parametrize(
    ("given", "end"),
    [
        (task("script", "train.py", "a b"), ["train.py", "a b"]),
        (task("module", "pkg", "x"), ["--module", "pkg", "x"]),
        (task("program", "ls", "-l"), ["--no-python", "ls", "-l"]),
        (task("shell", "a | b"), ["--no-python", "/bin/sh", "-c", "a | b"]),
    ],
)
def test_torchrun_gets_its_place_and_the_users_words(given: Task, end: list[str]) -> None:
    start = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1"]
    start += ["--master-port=4711", "--nproc-per-node=2", "--max-restarts=0"]
    assert torchrun_command(given, CONTEXT, os.environ) == start + end


def test_elastic_starts_one_process_per_rank_and_torchrun_one_per_node() -> None:
    ranks = [(launch.rank, launch.local_rank) for launch in launches(task("shell", "true"), CONTEXT, {}, "/logs")]
    assert ranks == [(2, 0), (3, 1)]
    (only,) = launches(task("script", "x.py", launcher="torchrun"), CONTEXT, dict(os.environ), "/logs")
    assert (only.rank, only.out) == (2, "/logs/round-0003/rank-2.out")
    with pytest.raises(UsageError, match="mpi"):
        launches(task("shell", "true", launcher="mpi"), CONTEXT, {}, "/logs")


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("python train.py", 1),
        ("python -u -O train.py -u", 3),
        ("python -uB -X dev -W ignore -m pkg.train", 6),
        ("python -Xdev -Werror -c code", 3),
        ("python", 0),
        ("python -u", 0),
        ("python -", 0),
        ("python -I train.py", 0),
        ("python -uE train.py", 0),
        ("python -S train.py", 0),
        ("python -um pkg", 0),
        ("python --version", 0),
        ("python -i train.py", 0),
    ],
)
def test_words_of_the_interpreter(words: str, wanted: int) -> None:
    assert interpreter_words(words.split()) == wanted


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (task("script", "train.py"), 2),
        (task("module", "pkg.train"), 2),
        (task("program", "python3.11", "-O", "train.py"), 2),
        (task("program", "/usr/bin/python3", "train.py"), 1),
        (task("program", "bash", "train.sh"), 0),
        (task("program", "python-config", "train.py"), 0),
        (task("shell", "python train.py"), 0),
        (task("script", "train.py", warm=False), 0),
        (task("script", "train.py", launcher="torchrun"), 0),
    ],
)
def test_which_workers_can_be_forked(given: Task, wanted: int) -> None:
    assert {launch.interpreter for launch in launches(given, CONTEXT, dict(os.environ), "/logs")} == {wanted}


def test_only_names_of_the_round_differ_between_workers() -> None:
    other = Place(rank=0, nodes=1, first_rank=0, world_size=2, master_addr="10.0.0.2", master_port=1)
    contexts = (CONTEXT, dataclasses.replace(CONTEXT, epoch=2, round=4, place=other, spent=1))
    planned = [launch for context in contexts for launch in launches(task("script", "x.py"), context, os.environ, "/l")]
    assert len(planned) == 4
    common = [{name: launch.env[name] for name in launch.env if name not in ROUND_NAMES} for launch in planned]
    assert all(env == common[0] for env in common)
    assert all(len({launch.env[name] for launch in planned}) > 1 for name in ROUND_NAMES if name != "LOCAL_WORLD_SIZE")


def test_the_interpreter_is_the_jobs_else_the_nodes_python3(tmp_path: Path) -> None:
    fake = tmp_path / "python3"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    assert interpreter(task("script", "x", python=""), {"PATH": str(tmp_path)}) == str(fake)
    with pytest.raises(UsageError, match="--python"):
        interpreter(task("script", "x", python=""), {"PATH": str(tmp_path / "nothing")})


@pytest.mark.parametrize(
    ("procs", "devices", "environ", "wanted"),
    [
        ("3", Devices(), {}, 3),
        ("gpu", Devices(gpus="0,2"), {"CUDA_VISIBLE_DEVICES": "0"}, 2),
        ("gpu", Devices(nominal=4), {}, 4),
        ("gpu", Devices(), {"CUDA_VISIBLE_DEVICES": "0,1,-1,2"}, 2),
        ("auto", Devices(gpus="1"), {}, 1),
        ("auto", Devices(gpus=""), {}, len(os.sched_getaffinity(0))),
        ("cpu", Devices(gpus="0"), {}, len(os.sched_getaffinity(0))),
    ],
)
def test_processes_of_a_node(procs: str, devices: Devices, environ: dict[str, str], wanted: int) -> None:
    assert count_processes(procs, devices, environ) == wanted


@pytest.mark.parametrize(
    ("procs", "environ"),
    [("gpu", {"CUDA_VISIBLE_DEVICES": ""}), ("gpu", {"CUDA_VISIBLE_DEVICES": "-1"}), ("0", {}), ("x", {})],
)
def test_an_impossible_number_of_processes_is_an_error(procs: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        count_processes(procs, Devices(), environ)


def test_what_another_program_is_to_start_is_looked_for_as_that_one_would(tmp_path: Path) -> None:
    (tmp_path / "tool").touch(0o755)
    (tmp_path / "data").touch(0o644)
    for env, program in (({"PATH": str(tmp_path)}, "tool"), ({}, "./tool"), ({}, str(tmp_path / "tool")), ({}, "sh")):
        look_for(program, str(tmp_path), env)
    for program in ("tool", "./no-tool", "./data"):
        with pytest.raises(UsageError, match=f"cannot start {program}: there is no such program on this node"):
            look_for(program, str(tmp_path), {})
    with pytest.raises(UsageError, match="none does not exist on this node"):
        look_for("sh", str(tmp_path / "none"), {})


def test_what_is_missing_stays_missing_and_what_is_full_may_be_free_again() -> None:
    assert comes_again(OSError(errno.ENOENT, "")) and comes_again(PermissionError(errno.EACCES, ""))
    assert not any(comes_again(OSError(number, "")) for number in (errno.EAGAIN, errno.ENOMEM, errno.ENOSPC))
