"""The words of a worker that works in the user's directory with the code of a snapshot."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.agent.warm import startup
from petctl.agent.workers.snapshot_command import command_of, named_by_user, with_snapshot_paths
from petctl.job.task import MODULE, MPI, PROGRAM, SCRIPT, SHELL, TORCHRUN, Code, Task
from petctl.rendezvous.core.messages import Failure


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """A job of a project with a copy of its code, in the project's folder `sub`."""
    copy, own = tmp_path / "job" / "code", tmp_path / "own"
    for folder in (copy / "sub", own / "sub"):
        folder.mkdir(parents=True)
    for name in ("train.py", "prog", "run.sh", "data.txt"):
        (copy / "sub" / name).touch()
    (copy / "sub" / "prog").chmod(0o755)
    code = Code(id="c" * 64, directory=str(copy), inside="sub", own=str(own))
    return Task("j", SCRIPT, ["train.py", "-x"], cwd=str(own / "sub"), code=code, root=str(copy / "sub"))


@pytest.mark.parametrize(
    ("kind", "words", "wanted", "at_home"),
    [
        (SCRIPT, "train.py data.txt", "ROOT/train.py data.txt", True),
        (MODULE, "package.module train.py", "package.module ROOT/train.py", True),
        (MODULE, "train train.py", "train train.py", True),
        (PROGRAM, "./prog run.sh", "ROOT/prog ROOT/run.sh", True),
        (PROGRAM, "bash -e run.sh data.txt", "bash -e ROOT/run.sh data.txt", True),
        (PROGRAM, "/usr/bin/python3 -u train.py run.sh", "/usr/bin/python3 -u ROOT/train.py run.sh", True),
        (PROGRAM, "python -m package.module", "python -m package.module", True),
        (PROGRAM, "python -I train.py", "python -I train.py", False),
        (PROGRAM, "make all", "make all", True),
        (PROGRAM, "./nowhere", "./nowhere", True),
        (PROGRAM, "accelerate launch train.py", "accelerate launch ROOT/train.py", True),
        (PROGRAM, "torchrun --nnodes 1 -m package.module", "torchrun --nnodes 1 -m package.module", False),
        (PROGRAM, "mkdir -m 755 made", "mkdir -m 755 made", True),
        (SHELL, "python train.py >train.py 2>&1", "python ROOT/train.py >train.py 2>&1", True),
        (SHELL, "./prog && . ./run.sh;(cat ./data.txt)", "ROOT/prog && . ROOT/run.sh;(cat ./data.txt)", True),
        (SHELL, "python -m package.module; echo train.py", "python -m package.module; echo ROOT/train.py", True),
        (SHELL, "python $FILE '$(x)/train.py'", "python $FILE '$(x)/train.py'", True),
        (SHELL, "X=1 torchrun --nproc 2 -m package.module", "X=1 torchrun --nproc 2 -m package.module", False),
        (SHELL, "cd ../other && python train.py", "cd ../other && python train.py", False),
        (SHELL, "cd /data && ls", "cd /data && ls", True),
    ],
)
def test_files_of_the_code_are_the_snapshots(task: Task, kind: str, words: str, wanted: str, at_home: bool) -> None:
    one = dataclasses.replace(task, kind=kind, words=[words] if kind == SHELL else words.split())
    found = command_of(one)
    assert " ".join(found.words) == wanted.replace("ROOT", task.root)
    assert found.cwd == (task.cwd if at_home else task.root)


def test_the_line_of_a_shell_that_is_named_is_a_line_too(task: Task) -> None:
    for words, line in ((["bash", "-e", "-lc", "./prog x", "y"], 3), (["/bin/sh", "-c", "python train.py"], 2)):
        found = command_of(dataclasses.replace(task, kind=PROGRAM, words=words))
        assert found.cwd == task.cwd and task.root in found.words[line]
        assert [*found.words[:line], words[line], *found.words[line + 1 :]] == words


def test_a_path_that_needs_quotes_is_quoted_in_a_line(task: Task, tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    root = (tmp_path / "job" / "code").rename(tmp_path / "a b" / "code") / "sub"
    one = dataclasses.replace(task, kind=SHELL, root=str(root))
    assert command_of(dataclasses.replace(one, words=["python train.py"])).words == [f"python '{root}/train.py'"]
    assert command_of(dataclasses.replace(one, words=["sh -c 'python train.py'"])).words == ["sh -c 'python train.py'"]


def test_without_a_directory_of_the_users_nothing_changes(task: Task) -> None:
    for one in (dataclasses.replace(task, cwd=task.root), dataclasses.replace(task, root="")):
        assert command_of(one) == (["train.py", "-x"], one.cwd, False)
        assert with_snapshot_paths({"PYTHONPATH": "x"}, one, True) == {"PYTHONPATH": "x"}


def test_torchrun_finds_modules_in_the_snapshot(task: Task) -> None:
    one = dataclasses.replace(task, kind=MODULE, launcher=TORCHRUN)
    assert command_of(one).cwd == task.root
    assert command_of(dataclasses.replace(one, launcher=MPI)).cwd == task.cwd


def test_python_path_leads_to_the_snapshot_where_that_has_the_directory(task: Task, tmp_path: Path) -> None:
    given = os.pathsep.join([".", "..", "absent", "/usr/lib", str(tmp_path / "own/sub")])
    env = with_snapshot_paths({"PYTHONPATH": given}, task, False)
    absent = str(tmp_path / "own/sub/absent")
    assert env["PYTHONPATH"].split(os.pathsep) == [task.root, task.copy, absent, "/usr/lib", task.root]


def test_a_failure_is_told_with_the_users_paths(task: Task) -> None:
    failure = Failure("0", 0, 0, 1, message=f"{task.root}/a", traceback=f'File "{task.copy}/b.py", line 1')
    own = named_by_user(failure, task)
    assert (own.message, own.traceback) == (f"{task.cwd}/a", f'File "{task.code.own}/b.py", line 1')
    fetched = dataclasses.replace(task, code=dataclasses.replace(task.code, own=""))
    assert named_by_user(failure, fetched).traceback == 'File "b.py", line 1'


def test_python_looks_for_the_project_in_the_snapshot(task: Task, tmp_path: Path) -> None:
    """But not for what the snapshot only has a link to, and what is elsewhere."""
    own, copy = tmp_path / "own", Path(task.copy)
    (own / "linked").mkdir()
    (copy / "linked").symlink_to(own / "linked")
    for folder, word in ((own / "sub", "live"), (copy / "sub", "snapshot"), (own / "linked", "live")):
        (folder / f"of_{folder.name}.py").write_text(f"WORD = {word!r}\n")
    program = (
        "import os, sys; sys.path[:0] = ['../linked', os.getcwd()]; import of_sub, of_linked; "
        "print(of_sub.WORD, of_linked.WORD, sys.path[:2], os.environ.get('PYTHONPATH'))"
    )
    env = startup.with_snapshot({"PATH": os.environ["PATH"]}, task.copy, task.code.own)
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=own / "sub", capture_output=True, text=True, check=True
    )
    assert done.stdout == f"snapshot live {['../linked', task.root]} None\n"
