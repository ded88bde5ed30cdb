"""A job with code runs from a snapshot of it, whatever happens to the files afterwards."""

from __future__ import annotations

import functools
import http.server
import os
import signal
import subprocess
import tarfile
import threading
from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.cli.conftest import PATIENCE, Petctl
from tests.integration.waiting import until

SAYS = "import part, sys\nprint('says', part.WORD, *sys.argv[1:])\n"
STEPS = """
import os, pathlib, time
last = pathlib.Path(os.environ["PETCTL_CHECKPOINT_DIR"], "last")
step = int(last.read_text()) + 1 if last.exists() else 1
last.write_text(str(step))
print("step", step, flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.02)
"""
WAITS = """
import os, pathlib, time
print("waits", flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.02)
import part
print("says", part.WORD, "in round", os.environ["PETCTL_ROUND"], flush=True)
"""


@pytest.fixture
def project(petctl: Petctl) -> Path:
    """A little project beside the directory in which petctl keeps its state."""
    petctl.directory /= "project"
    petctl.directory.mkdir()
    petctl.script("part.py", "WORD = 'old'\n")
    petctl.script("says.py", SAYS)
    petctl.script("waits.py", WAITS)
    return petctl.directory


@pytest.fixture
def address(project: Path) -> Iterator[str]:
    """The project behind an address."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(project))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def waiting(petctl: Petctl, *words: str) -> tuple[str, Path]:
    """A job that stands before its import, and the file that lets it go on."""
    go = petctl.directory.parent / "go"
    job = petctl.submit("-e", f"GO={go}", *words)
    petctl.follow_until(job, "waits")
    return job, go


def change(petctl: Petctl) -> None:
    petctl.script("part.py", "WORD = 'new'\n")


def test_what_is_edited_later_does_not_touch_it(petctl: Petctl, project: Path) -> None:
    job, go = waiting(petctl, "--code", ".", "waits.py")
    change(petctl)
    go.touch()
    petctl("wait", job)
    assert "says old in round 1" in petctl("logs", job).stdout
    assert f"of {project}, 3 files" in petctl("status", job).stdout


def test_a_node_that_comes_later_has_the_same_code(petctl: Petctl, project: Path) -> None:
    job, go = waiting(petctl, "--code", ".", "waits.py")
    change(petctl)
    os.kill(until(lambda: petctl.json("status", job)["nodes"][0]["pid"], "its process"), signal.SIGKILL)
    until(lambda: petctl.json("status", job)["round"] == 2, "the second round")
    go.touch()
    petctl("wait", job)
    assert "says old in round 2" in petctl("logs", job).stdout


def test_nothing_said_the_project_is_the_code(petctl: Petctl, project: Path) -> None:
    (project / ".petctlignore").touch()
    (project / "sub").mkdir()
    (project / "sub" / "waits.py").write_text("import sys; sys.path.append('..')\n" + WAITS)
    petctl.directory = project / "sub"
    go = project.parent / "go"
    job = petctl.submit("-e", f"GO={go}", "waits.py")
    petctl.follow_until(job, "waits")
    (project / "part.py").write_text("WORD = 'new'\n")
    assert petctl("exec", job, "--", "pwd").stdout == f"{project}/sub\n"
    go.touch()
    petctl("wait", job)
    assert "says old in round 1" in petctl("logs", job).stdout


def test_no_upload_runs_where_it_lies(petctl: Petctl, project: Path) -> None:
    job, go = waiting(petctl, "--no-upload", "waits.py")
    change(petctl)
    go.touch()
    petctl("wait", job)
    assert "says new in round 1" in petctl("logs", job).stdout
    assert petctl("submit", "--no-upload", "--code", ".", "waits.py", code=2).stderr.count("give either") == 1


def test_a_project_that_cannot_be_a_snapshot_runs_in_place_and_says_why(petctl: Petctl, project: Path) -> None:
    (project / ".env").write_text("TOKEN=x\n")
    done = petctl("run", "says.py")
    assert "running in place (no snapshot)" in done.stderr and ".env" in done.stderr
    assert "no snapshot" in petctl.json("list")[0]["code"]
    assert "in place" not in petctl("run", "-q", "says.py").stderr
    elsewhere = petctl("run", str(project / "says.py")).stderr  # an absolute name is meant as it is
    assert "is not a path inside" in elsewhere
    assert "no script nowhere.py" in petctl("submit", "nowhere.py", code=2).stderr


def test_petctls_own_directory_is_never_in_it(petctl: Petctl, project: Path) -> None:
    petctl.environment["PETCTL_HOME"] = str(project / "state")
    for _ in range(2):
        petctl("run", "-q", "says.py")
    assert {job["code"].split(", ")[-1] for job in petctl.json("list")} == {"3 files"}


def test_resubmit_runs_what_ran(petctl: Petctl, project: Path) -> None:
    first = petctl.submit("--code", ".", "says.py", "--lr", "0 1")
    petctl("wait", first)
    change(petctl)
    petctl.directory = project.parent  # from anywhere
    again = petctl("resubmit", "-q", first).stdout.strip()
    fresh = petctl.json("resubmit", first, "--new-code")["id"]
    petctl("wait", again, fresh)
    assert petctl("logs", again).stdout == "says old --lr 0 1\n"
    assert petctl("logs", fresh).stdout == "says new --lr 0 1\n"
    petctl("rm", first)  # its snapshot is that of another job, too
    third = petctl("resubmit", "-q", again).stdout.strip()
    petctl("wait", third)
    assert petctl("logs", third).stdout == "says old --lr 0 1\n"


def test_resubmit_without_a_snapshot_runs_in_the_same_directory(petctl: Petctl, project: Path) -> None:
    first = petctl.submit("--no-upload", "says.py")
    petctl("wait", first)
    petctl.directory = project.parent
    again = petctl("resubmit", "-q", first).stdout.strip()
    petctl("wait", again)
    assert petctl("logs", again).stdout == "says old\n"


def test_resume_goes_on_from_the_checkpoints_that_are_left(petctl: Petctl, project: Path) -> None:
    (project / "says.py").write_text(STEPS)
    go = project.parent / "go"
    first = petctl.submit("-e", f"GO={go}", "says.py")
    until(lambda: "step 1" in petctl("logs", first).stdout, "its first checkpoint")
    refused = petctl("resubmit", "--resume", first, code=2)
    assert f"{first} has not ended" in refused.stderr and f"petctl cancel {first}" in refused.stderr
    petctl("cancel", first)
    petctl("wait", first, code=130)
    again = petctl("resubmit", "-q", "--resume", first).stdout.strip()
    until(lambda: "step 2" in petctl("logs", again).stdout, "a step from the checkpoint")
    refused = petctl("rm", first, code=2)
    assert f"{first} has the checkpoints that {again} uses, which has not ended" in refused.stderr
    assert f"{first} has the checkpoints" in petctl("rm", "--finished").stderr
    go.touch()
    petctl("wait", again)
    third = petctl("resubmit", "-q", "--resume", again).stdout.strip()
    petctl("wait", third)
    assert petctl("logs", third).stdout == "step 3\n"
    assert "leave --cluster out" in petctl("resubmit", "--resume", "-c", "local", third, code=2).stderr
    assert len(petctl.json("rm", "--finished")["removed"]) == 3


def test_a_store_has_it_when_this_machine_has_it_no_longer(petctl: Petctl, project: Path) -> None:
    store = project.parent / "store"
    first = petctl.submit("--store", str(store), "says.py")
    petctl("wait", first)
    (stored,) = store.glob("code/*/code.tar.gz")
    change(petctl)
    (petctl.home / "bundles" / f"{stored.parent.name}.tar.gz").unlink()
    (petctl.home / "jobs" / first / "code.tar.gz").unlink()
    again = petctl("resubmit", "-q", first).stdout.strip()
    petctl("wait", again)
    assert petctl("logs", again).stdout == "says old\n"


def test_archives_are_shared_and_go_with_the_last_job(petctl: Petctl, project: Path) -> None:
    jobs = [petctl.submit("--code", ".", "says.py") for _ in range(2)]
    petctl("wait", *jobs)
    (archive,) = (petctl.home / "bundles").iterdir()
    os.utime(archive, (0, 0))  # what was asked for a moment ago stays: somebody may be about to submit
    petctl("rm", jobs[0])
    assert archive.exists()
    petctl("rm", jobs[1])
    assert not archive.exists()


def test_what_is_left_out_is_linked_on_this_machine(petctl: Petctl, project: Path) -> None:
    (project / ".gitignore").write_text("data/\n*.so\n")
    (project / "data").mkdir()
    (project / "data" / "in").write_text("numbers")
    petctl.script("reads.py", "open('data/out', 'w').write(open('data/in').read())\nopen('beside', 'w')\n")
    job = petctl.submit("--code", ".", "reads.py")
    petctl("wait", job)
    assert (project / "data" / "out").read_text() == "numbers"
    assert (project / "beside").exists()
    assert Path(petctl.json("status", job)["directory"], "code", "data").readlink() == project / "data"


def test_a_subdirectory_keeps_its_place(petctl: Petctl, project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "here.py").write_text(
        "import os; print(sorted(os.listdir('..'))[:2], os.path.basename(os.getcwd()))"
    )
    petctl.directory = project / "sub"
    assert petctl("run", "-q", "--code", "..", "here.py").stdout == "['part.py', 'says.py'] sub\n"
    petctl.directory = project
    assert petctl("run", "-q", "--code", ".", "--cwd", "sub", "here.py").stdout == "['part.py', 'says.py'] sub\n"


def test_code_in_front_of_the_command(petctl: Petctl, project: Path, address: str) -> None:
    with tarfile.open(project / "all.tar.gz", "w:gz") as archive:
        for name in ("part.py", "says.py"):
            archive.add(project / name, name)
    petctl.script("alone.py", "import sys; print('alone', *sys.argv[1:])")
    petctl.directory = project.parent
    for code in ("./project", "project/all.tar.gz", f"{address}/all.tar.gz"):
        assert petctl("run", "-q", code, "says.py", "--x", "1").stdout == "says old --x 1\n"
    assert petctl("run", "-q", f"{address}/alone.py", "--x", "1").stdout == "alone --x 1\n"
    assert petctl("run", "-q", "--code", "project/alone.py", "alone.py").stdout == "alone\n"


def test_a_commit_without_the_edits(petctl: Petctl, project: Path) -> None:
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(project)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["tag", "v1"]):
        subprocess.run([*git, *words], check=True)
    change(petctl)
    assert petctl("run", "-q", "--code", f"git+file://{project}@v1", "says.py").stdout == "says old\n"


def test_what_cannot_be_a_snapshot_is_refused_before_anything_is_made(petctl: Petctl, project: Path) -> None:
    refused = petctl("submit", "--code", ".", "nowhere.py", code=2)
    assert "no script nowhere.py in the snapshot" in refused.stderr
    (project / ".env").write_text("TOKEN=x\n")
    refused = petctl("submit", "--code", ".", "says.py", code=2)
    assert ".env" in refused.stderr and "--allow-secret" in refused.stderr
    for words in (["--code", "nowhere", "says.py"], ["--code", "git+file:///nowhere@x", "says.py"], ["./"]):
        refused = petctl("submit", *words, code=2)
        assert "Traceback" not in refused.stderr
    assert petctl.json("list") == []
    petctl("run", "-q", "--code", ".", "--allow-secret", ".env", "says.py")


def test_a_damaged_archive_fails_the_job_with_its_reason(petctl: Petctl, project: Path) -> None:
    petctl.script("petctl.yaml", "clusters: {local: {slots: 1}}\n")
    first, go = waiting(petctl, "waits.py")
    second = petctl.submit("--code", ".", "--restarts", "0", "says.py")
    archive = Path(petctl.json("status", second)["directory"]) / "code.tar.gz"
    archive.chmod(0o644)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    go.touch()
    petctl("wait", first)
    petctl("wait", second, code=None)
    assert "the code archive is damaged" in petctl("status", second).stdout


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
def test_a_node_on_another_machine_gets_it_from_the_coordinator(petctl: Petctl, project: Path) -> None:
    petctl.script("petctl.yaml", "clusters: {local: {slots: 1}}\n")
    job, go = waiting(petctl, "-n", "1:2:2", "--code", ".", "waits.py")
    state = project.parent / "elsewhere"
    with petctl.far_node(job, state) as far:
        until(lambda: list(state.glob("code/*/part.py")), "the code on the other machine")
        go.touch()
        petctl("wait", job)
        assert far.wait(PATIENCE) == 0
    assert next(state.glob("code/*/part.py")).read_text() == "WORD = 'old'\n"
