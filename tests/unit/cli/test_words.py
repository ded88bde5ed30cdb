"""The words of run, submit and render: which are petctl's, which are the command's, and that those arrive untouched."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.cli.job_options import build_job, split_code
from petctl.cli.jobs.forward import parse_ports
from petctl.cli.jobs.run import command as run
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.job.spec.folders import Folder


def job_of(*words: str) -> Job:
    with run.make_context("run", list(words)) as ctx:
        return build_job(ctx.params)


any_word = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
own_words = st.lists(st.one_of(any_word, st.sampled_from(["-n", "5", "--", "--procs", "-d", "--help", "-o", "json"])))


@given(own_words)
def test_the_users_words_survive_behind_a_program(words: list[str]) -> None:
    job = job_of("-n", "1:3", "--procs", "2", "/bin/program", *words)
    assert job.command.words == ["/bin/program", *words]
    assert (job.nodes.min, job.nodes.max, job.procs) == (1, 3, "2")


@given(own_words)
def test_the_users_words_survive_behind_a_separator(words: list[str]) -> None:
    assert job_of("-n", "2", "--", "/bin/program", *words).command.words == ["/bin/program", *words]


@given(own_words.filter(lambda words: words[:1] != ["--"]))
def test_the_users_words_survive_behind_a_script_and_a_module(words: list[str]) -> None:
    script, module = job_of("train.py", *words).command, job_of("-m", "package.train", *words).command
    assert (script.kind, script.words) == ("script", ["train.py", *words])
    assert (module.kind, module.words) == ("module", ["package.train", *words])


@pytest.mark.parametrize(
    ("words", "kind", "expected"),
    [
        (["train.py", "--lr", "0.1", "-n", "5"], "script", ["train.py", "--lr", "0.1", "-n", "5"]),
        (["-n", "2", "--", "nvidia-smi"], "program", ["nvidia-smi"]),
        (["--", "git", "log", "--", "file"], "program", ["git", "log", "--", "file"]),
        (["train.py", "--", "--lr", "0.1"], "script", ["train.py", "--lr", "0.1"]),
        (["-m", "package.train", "--", "--lr"], "module", ["package.train", "--lr"]),
        (["-m", "-n", "2", "package.train", "-x"], "module", ["package.train", "-x"]),
        (["--shell", "echo $RANK | cat"], "shell", ["echo $RANK | cat"]),
        (["--", "-odd-program", "x"], "program", ["-odd-program", "x"]),
    ],
)
def test_the_rule_of_the_first_word(words: list[str], kind: str, expected: list[str]) -> None:
    command = job_of(*words).command
    assert (command.kind, command.words) == (kind, expected)


@pytest.fixture
def job_file(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: mnist\nnodes: 1:3\nscript: train.py\nargs: [--lr, '${lr}']\n"
        "restarts: 7\nenv: {A: file, B: file}\nlabels: {team: blue}\n"
    )
    return str(path)


def test_the_command_line_wins_over_the_job_file(job_file: str) -> None:
    job = job_of("--set", "lr=0.1", "-n", "4", "-e", "A=here", "--label", "k=v", job_file)
    assert str(job.nodes) == "4"
    assert job.env == {"A": "here", "B": "file"}
    assert job.labels == {"team": "blue", "k": "v"}
    assert (job.name, job.restarts, job.command.words) == ("mnist", 7, ["train.py", "--lr", "0.1"])


@pytest.mark.parametrize("separator", [[], ["--"]])
def test_words_behind_a_job_file_are_appended(job_file: str, separator: list[str]) -> None:
    job = job_of("--set", "lr=1", job_file, *separator, "--epochs", "3")
    assert job.command.words == ["train.py", "--lr", "1", "--epochs", "3"]


def test_every_option_reaches_its_field() -> None:
    typed = """
        -n 1:2:3 --procs cpu -c local --name mnist --prepare true --restarts 9 --grace 2m --max-time 1h
        --priority -4 --experiment exp --workspace ws --python /usr/bin/python3 --launcher torchrun
        --gpus 2 --listen 0.0.0.0 --cwd /tmp --secret KEY=wandb --label a=b=c -e X=
        --no-warm --preload a --preload b.c --retry-on signals,7 --retry-on 20-30 train.py
    """
    job = job_of(*typed.split())
    assert (str(job.nodes), job.procs, job.cluster, job.name, job.prepare) == ("1:2:3", "cpu", "local", "mnist", "true")
    assert (job.restarts, job.grace, job.max_time, job.priority) == (9, 120.0, 3600.0, -4)
    assert (job.experiment, job.workspace, job.python, job.launcher) == ("exp", "ws", "/usr/bin/python3", "torchrun")
    assert (job.resources.gpus, job.listen, job.cwd) == (2, "0.0.0.0", "/tmp")
    assert (job.secrets, job.labels, job.env) == ({"KEY": "wandb"}, {"a": "b=c"}, {"X": ""})
    assert (job.warm, job.preload) == (False, ["a", "b.c"])
    assert job.retry_on == ["7", "20-30", "signals"]


def test_a_name_alone_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAKEN", "a=b")
    assert job_of("-e", "TAKEN", "train.py").env == {"TAKEN": "a=b"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "nothing to run"),
        (["--shell", "echo", "x.py"], "not both"),
        (["-e", "SURELY_NOT_SET", "train.py"], "SURELY_NOT_SET"),
        (["--secret", "KEY", "train.py"], "--secret KEY"),
        (["--set", "a=b", "train.py"], "job file"),
        (["-n", "3:1", "train.py"], "nodes"),
        (["--procs", "many", "train.py"], "procs"),
        (["--grace", "soon", "train.py"], "grace"),
        (["--retry-on", "300", "train.py"], "retry_on[0]: expected exit codes from 1 to 255"),
        (["no-such-file.yaml"], "no-such-file.yaml"),
        (["echo", "\udcff"], "UTF-8"),
        (["-e", "X=\udcff", "echo"], "UTF-8"),
    ],
)
def test_wrong_words_are_named(words: list[str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        job_of(*words)
    assert told in str(error.value)


def test_an_unknown_option_is_an_error_before_the_command_only() -> None:
    with pytest.raises(click.UsageError):
        job_of("--lr", "0.1", "train.py")
    assert job_of("train.py", "--lr", "0.1").command.words[1:] == ["--lr", "0.1"]


def test_ports() -> None:
    assert parse_ports("6006") == (6006, 6006)
    assert parse_ports("8080:6006") == (8080, 6006)
    assert parse_ports("0:6006") == (0, 6006)
    for wrong in ("", "x", "1:2:3", "0", "70000", "-1:80"):
        with pytest.raises(UsageError):
            parse_ports(wrong)


@pytest.mark.parametrize(
    ("words", "code", "kind", "expected"),
    [
        (["./project", "train.py", "-n", "5"], "./project", "script", ["train.py", "-n", "5"]),
        (["-m", "./project", "package.train"], "./project", "module", ["package.train"]),
        (["code.tar.gz", "train.py"], "code.tar.gz", "script", ["train.py"]),
        (["https://h/a/main.py?v=1", "--lr", "1"], "https://h/a/main.py?v=1", "script", ["main.py", "--lr", "1"]),
        (["s3://b/dir.tar.gz", "--", "train.py", "--", "x"], "s3://b/dir.tar.gz", "script", ["train.py", "x"]),
        (["git+https://h/p@v1", "nvidia-smi"], "git+https://h/p@v1", "program", ["nvidia-smi"]),
        (["git+https://h/p.py@v1", "a.py"], "git+https://h/p.py@v1", "script", ["a.py"]),
        (["project", "train.py"], "", "program", ["project", "train.py"]),  # a program of that name, as in any shell
        (["--code", ".", "train.py"], ".", "script", ["train.py"]),
    ],
)
def test_code_in_front_of_the_command(
    words: list[str], code: str, kind: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    job = job_of(*words)
    assert (job.code, job.command.kind, job.command.words) == (code, kind, expected)


@pytest.mark.parametrize("words", [["./project"], ["a.zip"], ["--code", ".", "./project", "train.py"]])
def test_code_without_a_command_or_twice(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"needs a command|leave --code"):
        job_of(*words)


def test_folders_are_named_changed_or_left_out(tmp_path: Path) -> None:
    assert job_of("train.py").folders == "all"
    assert job_of("--no-folders", "train.py").folders == "none"
    named = job_of("--folder", "data/voc20", "--folder", "out=s3://b/out,rw", "train.py").folders
    assert named == {"data/voc20": Folder(), "out": Folder(location="s3://b/out", mode="rw")}
    (tmp_path / "job.yaml").write_text("script: train.py\nfolders: {data: s3://b/data, out: {mode: sync}}\n")
    merged = job_of("--folder", "out=/tmp", str(tmp_path / "job.yaml")).folders
    assert merged == {"data": Folder(location="s3://b/data"), "out": Folder(location="/tmp")}
    assert job_of("--no-folders", str(tmp_path / "job.yaml")).folders == "none"
    with pytest.raises(UsageError, match="give either --folder or --no-folders, not both"):
        job_of("--folder", "data", "--no-folders", "train.py")
    with pytest.raises(UsageError, match=r"the name of a folder is a path"):
        job_of("--folder", "../data", "train.py")


def test_roles_imply_the_launcher_that_has_them() -> None:
    job = job_of("-n", "2", "--role", "ps=1:--job ps", "--role", "worker=nodes", "train.py", "--lr", "1")
    assert (job.launcher, job.command.words) == ("plain", ["train.py", "--lr", "1"])
    assert [(role.name, role.count, role.words, role.serves) for role in job.roles] == [
        ("ps", 1, ["--job", "ps"], True),
        ("worker", 0, [], False),
    ]
    with pytest.raises(UsageError, match="roles: are for launcher plain, not elastic"):
        job_of("--launcher", "elastic", "--role", "worker=1", "train.py")
    with pytest.raises(UsageError, match="--role worker=x: expected a number"):
        job_of("--role", "worker=x", "train.py")


def test_roles_on_the_command_line_take_the_place_of_a_files(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("script: train.py\nlauncher: plain\nroles: [{name: worker, count: 1}]\n")
    assert [(role.name, role.count) for role in job_of("--role", "chief=1", str(file)).roles] == [("chief", 1)]


def test_the_directory_that_one_stands_in_is_code_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert split_code([".", "train.py", "--lr", "0.1"]) == (".", ["train.py", "--lr", "0.1"])
    with pytest.raises(UsageError, match=r"petctl run \. train\.py"):
        split_code(["."])


def test_without_an_upload_a_directory_in_front_is_where_the_code_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for place in ("./here", str(tmp_path / "here"), "/in/the/image", "/in/the/image/"):
        job = job_of("--no-upload", place, "train.py", "--lr", "0.1")
        assert (job.code, job.cwd, job.command.kind) == ("none", place, "script")
        assert job.command.words == ["train.py", "--lr", "0.1"]
    job = job_of("--no-upload", "/in/the/image/train.py", "--lr", "0.1")
    assert (job.cwd, job.command.words) == ("", ["/in/the/image/train.py", "--lr", "0.1"])
    program = job_of("--no-upload", "/opt/bin/simulate", "input")
    assert (program.cwd, program.command.kind, program.command.words) == ("", "program", ["/opt/bin/simulate", "input"])
    with pytest.raises(UsageError, match="keep one"):
        job_of("--no-upload", "--cwd", "/x", "/in/the/image", "train.py")
    assert job_of("--no-upload", "/in/the/image", "--", "train.py").cwd == "/in/the/image"


def test_without_an_upload_a_relative_directory_counts_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that an image has are called without a path: only a directory that is here takes their place."""
    monkeypatch.chdir(tmp_path)
    for name in ("here", "sh"):
        (tmp_path / name).mkdir()
    for place in ("here", "./here", "here/", "./there", "in/there/"):
        job = job_of("--no-upload", place, "train.py", "--lr", "0.1")
        assert (job.cwd, job.command.words) == (place, ["train.py", "--lr", "0.1"])
    for program in ("sh", "deepspeed", "here"):
        words = [program, "run" if program == "here" else "run.sh"]
        job = job_of("--no-upload", *words)
        assert (job.cwd, job.command.words) == ("", words)
