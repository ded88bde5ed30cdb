"""On this machine a job works in the user's own directory, with the code of its snapshot; nothing it writes is lost."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.cli.conftest import PATIENCE, Petctl
from tests.integration.waiting import until

TRAIN = """
import os, pathlib, part
print("cwd", os.getcwd(), part.WORD, open("data.txt").read().strip())
pathlib.Path("model.pt").write_text("weights")
pathlib.Path(__file__).with_name("beside.txt").write_text("results")
"""
WAITS = """
import os, pathlib, time
print("waits", flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.02)
"""


@pytest.fixture
def project(petctl: Petctl) -> Path:
    """A newcomer's directory: a script, a module beside it, a package, some data."""
    petctl.directory /= "project"
    (petctl.directory / "package").mkdir(parents=True)
    petctl.script("part.py", "WORD = 'old'\n")
    petctl.script("train.py", TRAIN)
    petctl.script("data.txt", "numbers\n")
    petctl.script("package/__init__.py", "")
    petctl.script("package/module.py", TRAIN)
    return petctl.directory


def job_directory(petctl: Petctl, job: str) -> Path:
    return Path(petctl.json("status", job)["directory"])


def test_relative_paths_are_the_users_and_what_lies_beside_the_script_is_kept(petctl: Petctl, project: Path) -> None:
    done = petctl("run", "train.py")
    assert done.stdout == f"cwd {project} old numbers\n"
    assert (project / "model.pt").read_text() == "weights"
    assert not (project / "beside.txt").exists()
    (job,) = petctl.json("list")
    kept = Path(job["directory"], "outputs", "beside-code")
    assert f"written beside the code, now in {kept}: beside.txt" in done.stderr
    assert str(kept) in petctl("status", job["id"]).stdout
    assert petctl("outputs", "ls", job["id"]).stdout.endswith("beside-code/beside.txt\n")
    assert "1 result file" in petctl("rm", job["id"]).stdout
    assert (project / "model.pt").exists()


@pytest.mark.parametrize("words", [["-m", "package.module"], ["--", sys.executable, "-m", "package.module"]])
def test_modules_come_from_the_snapshot_too(petctl: Petctl, project: Path, words: list[str]) -> None:
    job = petctl.submit(*words)
    petctl("wait", job)
    assert petctl("logs", job).stdout == f"cwd {project} old numbers\n"
    kept = job_directory(petctl, job) / "outputs/beside-code/package/beside.txt"
    assert kept.exists() and (project / "model.pt").exists() and not (project / "package/beside.txt").exists()


@pytest.mark.parametrize("search", ["sys.path.append('package')", "sys.path.insert(0, os.getcwd() + '/package')", ""])
def test_whatever_is_searched_in_the_project_is_the_snapshots(petctl: Petctl, project: Path, search: str) -> None:
    """Also by a process that is spawned, unless it looks in the project itself, and by way of PYTHONPATH."""
    petctl.script("package/inner.py", "WORD = 'old'\n")
    go = project.parent / "go"
    wait = WAITS.strip().replace("\n", "\n    ")
    petctl.script(
        "spawns.py",
        f"import os, sys\n{search}\ndef show():\n    import inner\n    print(inner.WORD, os.getcwd(), flush=True)\n"
        f"if __name__ == '__main__':\n    {wait}\n    import multiprocessing\n    show()\n"
        "    child = multiprocessing.get_context('spawn').Process(target=show)\n    child.start()\n    child.join()\n",
    )
    if not search:
        petctl.environment["PYTHONPATH"] += os.pathsep + str(project / "package")
    job = petctl.submit("-e", f"GO={go}", "spawns.py")
    petctl.follow_until(job, "waits")
    petctl.script("package/inner.py", "WORD = 'new'\n")
    go.touch()
    petctl("wait", job)
    own, spawned = petctl("logs", job).stdout.splitlines()[1:]
    assert own == f"old {project}" and (spawned == own or "insert" in search)


def test_a_program_of_the_project_runs_from_the_snapshot(petctl: Petctl, project: Path) -> None:
    (project / "prog").write_text("#!/bin/sh\necho $PWD $0\necho 1 >made\n")
    (project / "prog").chmod(0o755)
    job = petctl.submit("--", "./prog")
    petctl("wait", job)
    assert petctl("logs", job).stdout == f"{project} {job_directory(petctl, job)}/code/prog\n"
    assert (project / "made").exists()
    (project / "made").unlink()
    assert petctl("run", "-q", "--", "sh", "prog.sh", code=None).returncode != 0
    petctl.script("prog.sh", "pwd")
    assert petctl("run", "-q", "--", "sh", "prog.sh").stdout == f"{project}\n"


@pytest.mark.parametrize("words", [["--", "sh", "-c"], ["--shell"]])
def test_a_shell_line_works_in_the_users_directory_with_the_scripts_of_the_snapshot(
    petctl: Petctl, project: Path, words: list[str]
) -> None:
    go = project.parent / "go"
    petctl.script("part.py", "import os\nWORD = 'old'\n")
    line = f"{sys.executable} waits.py; {sys.executable} train.py; {sys.executable} -m package.module; echo 1 >made"
    petctl.script("waits.py", WAITS)
    job = petctl.submit("-e", f"GO={go}", *words, line)
    petctl.follow_until(job, "waits")
    petctl.script("part.py", "WORD = 'new'\n")
    petctl.script("train.py", "print('changed')\n")
    go.touch()
    petctl("wait", job)
    assert petctl("logs", job).stdout.splitlines()[1:] == [f"cwd {project} old numbers"] * 2
    assert (project / "made").exists() and (project / "model.pt").exists()
    assert (job_directory(petctl, job) / "outputs/beside-code/package/beside.txt").exists()


def test_a_program_without_code_works_in_the_users_directory(petctl: Petctl, project: Path) -> None:
    done = petctl("run", "--", "cp", "data.txt", "copied.txt")
    assert (project / "copied.txt").read_text() == "numbers\n" and "copy of its code" not in done.stderr


COPIED = "petctl: the job works in a copy of its code ({reason}); files it writes there become results"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--", "sh", "-c", "cd package && cat ../data.txt && echo 1 >made"], "the command changes its directory"),
        (
            ["--", sys.executable, "-I", "-c", "open('package/made', 'w'); print(open('data.txt').read(), end='')"],
            "this Python could not import the snapshot from elsewhere",
        ),
    ],
)
def test_what_must_work_in_the_copy_is_told_at_submit_and_its_files_are_results(
    petctl: Petctl, project: Path, words: list[str], reason: str
) -> None:
    submitted = petctl("submit", *words)
    job = submitted.stdout.strip()
    assert COPIED.format(reason=reason) in submitted.stderr.splitlines()
    petctl("wait", job)
    assert petctl("logs", job).stdout == "numbers\n"
    assert (job_directory(petctl, job) / "outputs/beside-code/package/made").exists()
    assert not (project / "package/made").exists()


def test_a_job_with_mapped_folders_is_told_that_it_works_in_the_copy(petctl: Petctl, project: Path) -> None:
    (project.parent / "elsewhere").mkdir()
    (project.parent / "elsewhere/x").write_text("mapped\n")
    petctl.script("petctl.yaml", f"folders: {{data: {project.parent}/elsewhere}}\n")
    petctl.script("reads.py", "print(open('data/x').read(), end='')\nopen('model.pt', 'w').write('weights')\n")
    done = petctl("run", "reads.py")
    assert COPIED.format(reason="its mapped folders are there") in done.stderr.splitlines()
    assert done.stdout == "mapped\n" and not (project / "model.pt").exists()
    (job,) = petctl.json("list")
    assert Path(job["directory"], "outputs/beside-code/model.pt").read_text() == "weights"


@pytest.mark.parametrize("warm", [True, False])
def test_tracebacks_name_the_users_own_path(petctl: Petctl, project: Path, warm: bool) -> None:
    petctl.script("part.py", "import warnings\nwarnings.warn('hm')\nraise ValueError('nothing')\n")
    words = ["--restarts", "0", *([] if warm else ["--no-warm"])]
    for command in (["train.py"], ["-m", "package.module"]):
        done = petctl("run", *words, *command, code=1)
        assert done.stderr.count(f'File "{project}/part.py", line 3') == 1  # the root cause does not repeat it
        assert f"{project}/part.py:2: UserWarning" in done.stderr
        assert "/code/" not in done.stderr


def test_warm_workers_work_there_too(petctl: Petctl, project: Path) -> None:
    """Those of a second job are forked from a process that has made their imports."""
    petctl.script("part.py", "import decimal, json, os\nWORD = os.environ['PETCTL_ROUND']\n")
    for words in (["train.py"], ["-m", "package.module"]):
        for _ in range(2):
            (project / "model.pt").unlink(missing_ok=True)
            done = petctl("run", "--preload", "decimal", *words)
            assert done.stdout == f"cwd {project} 1 numbers\n" and "cold" not in done.stderr
            assert (project / "model.pt").exists() and "beside.txt" in done.stderr


def test_without_a_snapshot_all_is_the_users(petctl: Petctl, project: Path) -> None:
    done = petctl("run", "--no-upload", "train.py")
    assert (project / "beside.txt").exists() and (project / "model.pt").exists()
    assert "beside" not in done.stderr


def test_fetched_code_has_no_other_directory_than_its_copy(petctl: Petctl, project: Path) -> None:
    archive = shutil.make_archive(str(project.parent / "all"), "gztar", project)
    done = petctl("run", "--code", archive, "train.py")
    assert COPIED.format(reason="the code was fetched") in done.stderr.splitlines()
    assert "beside.txt, model.pt" in done.stderr and not (project / "model.pt").exists()


def test_a_directory_that_is_gone_does_not_keep_the_job_from_running(petctl: Petctl, project: Path) -> None:
    go, other = project.parent / "go", project.parent / "other"
    other.mkdir()
    (other / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    (other / "waits.py").write_text(WAITS)
    petctl.directory = other
    first = petctl.submit("-e", f"GO={go}", "waits.py")
    petctl.follow_until(first, "waits")
    petctl.directory = project
    shutil.copy(other / "petctl.yaml", project)
    second = petctl.submit("train.py")
    petctl.directory = other
    shutil.rmtree(project)
    go.touch()
    petctl("wait", first, second)
    assert "model.pt" in petctl("status", second).stdout
    assert (job_directory(petctl, second) / "outputs/beside-code/model.pt").exists()


def test_a_killed_job_keeps_its_files(petctl: Petctl, project: Path) -> None:
    """Whoever buries a job that was killed with everything in it sees to them."""
    petctl.script("waits.py", TRAIN + WAITS)
    job = petctl.submit("-e", f"GO={project.parent / 'go'}", "waits.py")
    petctl.follow_until(job, "waits")
    petctl("cancel", "--kill", job)
    petctl("wait", job, code=130)
    assert (job_directory(petctl, job) / "outputs/beside-code/beside.txt").exists()


def test_resubmit_works_where_the_first_did(petctl: Petctl, project: Path) -> None:
    first = petctl.submit("train.py")
    petctl("wait", first)
    (project / "model.pt").unlink()
    petctl.script("part.py", "WORD = 'new'\n")
    petctl.directory = project.parent
    again = petctl("resubmit", "-q", first).stdout.strip()
    petctl("wait", again)
    assert petctl("logs", again).stdout == f"cwd {project} old numbers\n" and (project / "model.pt").exists()


def test_points_of_a_sweep_have_files_of_their_own(petctl: Petctl, project: Path) -> None:
    petctl.script("train.py", "import os\nopen('model.pt', 'w').write(os.environ['PARAM_LR'])\n")
    done = petctl("sweep", "run", "--name", "s", "-p", "lr=1,2", "train.py")
    assert "petctl: each point works in a copy of its code; files it writes there become its results" in done.stderr
    assert not (project / "model.pt").exists()
    kept = {path.read_text() for path in (petctl.home / "jobs").glob("*/outputs/beside-code/model.pt")}
    assert kept == {"1", "2"}


def test_what_a_preparation_builds_is_no_result(petctl: Petctl, project: Path) -> None:
    (project / "part.py").unlink()
    done = petctl("run", "--prepare", "echo \"WORD = 'built'\" >part.py", "train.py")
    assert done.stdout == f"cwd {project} built numbers\n" and "beside.txt" in done.stderr
    assert "part.py" not in done.stderr and not (project / "part.py").exists()


def test_new_files_of_the_copy_go_to_the_store(petctl: Petctl, project: Path) -> None:
    store = project.parent / "store"
    job = petctl.submit("--store", str(store), "train.py")
    petctl("wait", job)
    assert (store / job / "outputs/beside-code/beside.txt").read_text() == "results"
    petctl("outputs", "get", job, "--to", str(project.parent / "got"))
    assert (project.parent / "got/beside-code/beside.txt").read_text() == "results"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
def test_on_another_machine_new_files_are_results(petctl: Petctl, project: Path) -> None:
    """There the copy is the working directory; what is new in it is sent like any output."""
    petctl.script("petctl.yaml", "clusters: {local: {slots: 1}}\n")
    petctl.script("waits.py", "import os\nopen('made-' + os.environ['PETCTL_NODE'], 'w').write('x')\n" + WAITS)
    store, go = project.parent / "store", project.parent / "go"
    job = petctl.submit("-n", "1:2:2", "--store", str(store), "-e", f"GO={go}", "waits.py")
    petctl.follow_until(job, "waits")
    with petctl.far_node(job, project.parent / "elsewhere") as far:
        until(lambda: list((project.parent / "elsewhere").glob("code/*/made-far")), "the file of the other machine")
        go.touch()
        petctl("wait", job)
        assert far.wait(PATIENCE) == 0
    assert (store / job / "outputs/beside-code/made-far").exists()
    assert (project / "made-0").exists() and not (project / "made-far").exists()


def test_a_lost_job_keeps_its_files(petctl: Petctl, project: Path) -> None:
    petctl.script("waits.py", TRAIN + WAITS)
    job = petctl.submit("-e", f"GO={project.parent / 'go'}", "waits.py")
    petctl.follow_until(job, "waits")
    directory = job_directory(petctl, job)
    (directory / "wanted").write_text("1\n")
    ours = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _is_of(path, str(directory))]
    for process in ours:
        os.kill(process, signal.SIGSTOP)
    for process in ours:
        os.kill(process, signal.SIGKILL)
    petctl("wait", job, code=70)
    assert (directory / "outputs/beside-code/beside.txt").exists()


def _is_of(process: Path, directory: str) -> bool:
    """Is it a supervisor or a node of the job in this directory?"""
    try:
        words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    except OSError:
        return False
    return directory.encode() in words and str(os.getpid()) != process.name


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
def test_files_that_stay_on_another_machine_are_told_where_there_is_no_store(petctl: Petctl, project: Path) -> None:
    petctl.script("petctl.yaml", "clusters: {local: {slots: 1}}\n")
    petctl.script("waits.py", "import os\nopen('made-' + os.environ['PETCTL_NODE'], 'w').write('x')\n" + WAITS)
    go, elsewhere = project.parent / "go", project.parent / "elsewhere"
    job = petctl.submit("-n", "1:2:2", "-e", f"GO={go}", "waits.py")
    petctl.follow_until(job, "waits")
    with petctl.far_node(job, elsewhere) as far:
        until(lambda: list(elsewhere.glob("code/*/made-far")), "the file of the other machine")
        go.touch()
        petctl("wait", job)
        assert far.wait(PATIENCE) == 0
    told = f"node far: 1 file it wrote is only on its machine, in {elsewhere}/outputs: made-far; a store (--store)"
    assert told in petctl("status", job).stdout
    assert (elsewhere / "outputs/beside-code/made-far").exists() and (project / "made-0").exists()
