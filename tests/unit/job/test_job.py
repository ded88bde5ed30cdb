"""The model as Python users meet it: friendly values in, checked values out, everything wrong at once."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import petctl
from petctl.errors import SpecError
from petctl.job.spec import Command, Job, Rendezvous, Size


def test_defaults() -> None:
    job = Job(script="train.py")
    assert job.command == Command("script", ["train.py"])
    assert (job.nodes, job.procs, job.restarts, job.grace, job.max_time) == (Size(1, 1, 1), "1", 3, 30.0, 0.0)
    assert (job.launcher, job.listen, job.log_cap) == ("elastic", "127.0.0.1", 1 << 30)
    assert job.rendezvous == Rendezvous(join_timeout=600, last_call=0, resize_interval=30, silence=5, fence_after=60)


def test_friendly_values() -> None:
    job = Job(
        script=Path("train.py"),
        args=["--lr", 0.1, "--epochs", 3],
        nodes="1:3",
        procs=2,
        env={"A": 1, "B": True},
        grace="1m",
        max_time="2h",
        log_cap="2GiB",
        rendezvous={"silence": "2s"},
        name=None,
    )
    assert job.command == Command("script", ["train.py", "--lr", "0.1", "--epochs", "3"])
    assert (job.nodes, job.procs, job.env) == (Size(1, 3, 3), "2", {"A": "1", "B": "true"})
    assert (job.grace, job.max_time, job.log_cap, job.rendezvous.silence) == (60.0, 7200.0, 2 << 30, 2.0)


@pytest.mark.parametrize(
    ("fields", "command"),
    [
        ({"command": ["python", "x.py"]}, Command("program", ["python", "x.py"])),
        ({"command": "train.py --name 'a b'"}, Command("script", ["train.py", "--name", "a b"])),
        ({"command": Command("shell", ["a | b"])}, Command("shell", ["a | b"])),
        ({"program": "ls -l 'a b'", "args": ["c"]}, Command("program", ["ls", "-l", "a b", "c"])),
        ({"program": ["ls", "-l"]}, Command("program", ["ls", "-l"])),
        ({"module": "a.b", "args": "--x 1"}, Command("module", ["a.b", "--x", "1"])),
        ({"shell": "a | b"}, Command("shell", ["a | b"])),
    ],
)
def test_commands(fields: dict[str, Any], command: Command) -> None:
    assert Job(**fields).command == command


def test_is_what_petctl_calls_job() -> None:
    assert petctl.Job is Job
    assert isinstance(Job(shell="true"), Job)


def test_inputs_are_neither_changed_nor_kept() -> None:
    args, env, rendezvous = ["a", 1], {"A": 1}, {"silence": "2s"}
    job = Job(program=["p"], args=args, env=env, rendezvous=rendezvous)
    assert (args, env, rendezvous) == (["a", 1], {"A": 1}, {"silence": "2s"})
    env["A"] = 2
    args.append("more")
    assert job.env == {"A": "1"}
    assert job.command.words == ["p", "a", "1"]


def test_a_changed_copy_is_checked_too() -> None:
    job = Job(script="a.py", nodes=2)
    assert msgspec.structs.replace(job, nodes="2:4").nodes == Size(2, 4, 4)
    with pytest.raises(SpecError, match="nodes: the minimum number"):
        msgspec.structs.replace(job, nodes=0)


def test_copies_are_equal() -> None:
    job = Job(script="a.py", args=["1"], nodes="1:2:3", env={"A": "b"}, max_time=1.5)
    assert copy.deepcopy(job) == job
    assert pickle.loads(pickle.dumps(job)) == job


def test_frozen() -> None:
    with pytest.raises(AttributeError):
        Job(script="a.py").name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "no command: give one of script, module, program or shell"),
        ({"args": ["x"]}, "no command"),
        ({"script": "a.py", "module": "b"}, "module: a second command besides 'script'"),
        ({"script": "a.py", "command": ["b"]}, "command: a second command besides 'script'"),
        ({"script": ""}, "script: the script is empty"),
        ({"program": []}, "program: the program is empty"),
        ({"program": "a 'b"}, "program: cannot be split into words: no closing quotation"),
        ({"shell": "a", "args": ["b"]}, "args: a shell line takes no arguments"),
        ({"command": ["job.yaml"]}, "command: 'job.yaml' is a job file"),
        ({"command": 3}, "command: expected a list of words, got 3"),
        ({"args": ["x", None], "script": "a.py"}, r"args\[1\]: expected text, got nothing"),
        ({"scrpt": "a.py"}, "scrpt: unknown field; did you mean 'script'"),
        ({"name": "-x"}, "name: expected 1 to 64 letters"),
        ({"name": "x" * 65}, "name: expected 1 to 64 letters"),
        ({"name": "a/b"}, "name: expected 1 to 64 letters"),
        ({"name": "a\n"}, "name: expected 1 to 64 letters"),
        ({"procs": 0}, "procs: expected a positive number, cpu, gpu or auto, got 0"),
        ({"procs": "gpus"}, "procs: .* did you mean 'gpu'"),
        ({"procs": True}, "procs: expected a positive number"),
        ({"resources": {"gpus": -1}}, "resources.gpus: expected a whole number of 0 or more, got -1"),
        ({"restarts": -1}, "restarts: expected a whole number of 0 or more, got -1"),
        ({"restarts": 1.5}, "restarts: expected a whole number"),
        ({"restarts": True}, "restarts: expected a whole number"),
        ({"restarts": 1 << 40}, "restarts: .* at most"),
        ({"launcher": "torchrn"}, "launcher: expected elastic or .* plain, got 'torchrn'; did you mean 'torchrun'"),
        ({"warm": "yes"}, "warm: expected true or false, got 'yes'"),
        ({"preload": ["torch", "train.py-"]}, r"preload\[1\]: expected the name of a Python module"),
        ({"grace": "soon"}, "grace: expected seconds or a duration"),
        ({"grace": -1}, "grace: expected seconds or a duration"),
        ({"log_cap": 0}, "log_cap: must be above zero"),
        ({"env": ["A=b"]}, "env: expected a mapping of names to text, got a list"),
        ({"env": {"A=": "b"}}, "env.A=: a name in the environment has letters"),
        ({"env": {"A": "x\0y"}}, "env.A: contains a NUL"),
        ({"env": {"A": "\ud800"}}, "env.A: contains bytes that are not UTF-8"),
        ({"env": {"A": ["b"]}}, "env.A: expected text, got a list"),
        ({"labels": {" ": "b"}}, "labels. : a label's name is one line"),
        ({"env": {"A": "1"}, "secrets": {"A": "a"}}, "secrets.A: is also in env"),
        ({"listen": "0.0.0.0:80"}, "listen: expected an address or host name without a port"),
        ({"listen": ""}, "listen: expected an address"),
        ({"experiment": "a\nb"}, "experiment: expected one line"),
        ({"rendezvous": {"silnce": 1}}, "rendezvous.silnce: unknown field; did you mean 'silence'"),
        ({"rendezvous": {"silence": 0}}, "rendezvous.silence: must be above zero"),
        ({"rendezvous": {"fence_after": 1}}, r"rendezvous.fence_after: must not be shorter than silence \(5 s\)"),
        ({"rendezvous": 5}, "rendezvous: expected a mapping with join_timeout"),
    ],
)
def test_wrong(fields: dict[str, Any], sentence: str) -> None:
    about_the_command = not fields or {"script", "module", "program", "shell", "command", "args"} & set(fields)
    with pytest.raises(SpecError, match=sentence) as caught:
        Job(**fields) if about_the_command else Job(script="a.py", **fields)
    assert len(str(caught.value).splitlines()) == 1


def test_everything_wrong_is_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Job(nodes="0", procs="many", env={"1": "x", "B": None}, rendezvous={"silence": "x", "last_cal": 1})
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "no command",
        "nodes",
        "procs",
        "env.1",
        "env.B",
        "rendezvous.last_cal",
        "rendezvous.silence",
    ]


def test_a_secret_that_was_pasted_is_not_repeated() -> None:
    with pytest.raises(SpecError, match="the name of a secret") as caught:
        Job(script="a.py", secrets={"KEY": "hunter2 and more!"})
    assert "hunter2" not in str(caught.value)


def test_long_values_are_shortened_in_errors() -> None:
    with pytest.raises(SpecError) as caught:
        Job(script="a.py", grace="x" * 100_000)
    assert len(str(caught.value)) < 200


def test_importing_the_model_does_not_import_what_only_reading_needs() -> None:
    code = "import sys, petctl.job.spec; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    modules = set(done.stdout.split())
    assert "petctl.job.spec.job" in modules
    assert not modules & {"yaml", "difflib", "json", "click", "rich", "cryptography", "asyncio", "petctl.agent"}
