"""Jobs in containers of a real engine: what they see, what becomes of them when things are killed, what is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import petctl
from petctl.jobs import JobHandle, get, submit
from petctl.secret_file import set_secret
from tests.integration.containers.conftest import PYTHON, ContainerStage
from tests.integration.containers.images import MARK
from tests.integration.local.conftest import exists, job_path, processes_of, supervisor_pid
from tests.integration.waiting import until

LOOK = f"""
import os, sys
seen = os.environ.get
print("python", os.path.realpath(sys.executable), "venv", seen("VIRTUAL_ENV"), "image", os.path.exists({MARK!r}))
print("secret", seen("PASSWORD"), "host", seen("OF_THE_SUBMITTER"), "pids", os.path.exists("/proc/" + sys.argv[1]))
open(os.path.join(os.environ["PETCTL_OUTPUT_DIR"], "made"), "w").write("here")
open("waits", "w").write("yes")
while not os.path.exists("finish"):
    __import__("time").sleep(0.02)
"""


def guardian(handle: JobHandle, node: str) -> int:
    """The top process of a node that has joined."""

    def look() -> int:
        rows = [row for row in handle.status().nodes if row.name == node and row.rank is not None]
        return int((job_path(handle) / "nodes" / node / "pid").read_text()) if rows else 0

    return int(until(look, f"node {node}"))


def command(*words: str) -> subprocess.CompletedProcess[str]:
    """petctl, as a user types it."""
    return subprocess.run([sys.executable, "-m", "petctl", *words], capture_output=True, text=True, check=False)


def clients(handle: JobHandle) -> list[int]:
    """The engine's own processes that started the nodes."""
    found = []
    for pid in processes_of(job_path(handle)):
        with suppress(OSError):  # ended meanwhile
            if b"--entrypoint" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def supervisors(handle: JobHandle) -> list[int]:
    """The process that looks after the job and the one that waits to do so, once both are there."""
    found = {}
    for pid in processes_of(job_path(handle)):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"petctl.clusters.local.controller.supervisor" in words:
                found[pid] = b"--standby" in words
    return [*found] if set(found.values()) == {True, False} else []


def keepers_of_containers(handle: JobHandle) -> list[int]:
    """Whoever watches over a container for the engine: the parents of the nodes' guardians."""
    parents = [int(Path(f"/proc/{guardian(handle, node)}/stat").read_text().split()[3]) for node in ("0", "1")]
    return [pid for pid in parents if b"conmon" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def kill_at_once(pids: list[int]) -> None:
    """All are stopped first, so that nobody is brought back between two kills."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            if exists(pid):
                os.kill(pid, number)


def test_a_job_sees_its_image_its_directories_and_its_secrets_and_nothing_of_the_submitter(
    stage: ContainerStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SUBMITTER", "private-words")
    set_secret(stage.path / "home", "login", "s3cr3t-words")
    (stage.path / "look.py").write_text(LOOK)
    job = petctl.Job(
        script="look.py", args=[os.getpid()], image=PYTHON, code="none", secrets={"PASSWORD": "login"}, env={"A": "1"}
    )
    handle = submit(job)
    until((stage.path / "waits").exists, "a worker", 60)
    containers = stage.engine.containers()
    shown = stage.engine.run("inspect", *containers)
    assert "s3cr3t-words" not in shown and "private-words" not in shown
    assert json.loads(shown)[0]["Config"]["Labels"]["petctl.job"] == handle.id
    assert json.loads(shown)[0]["Name"].startswith(f"petctl-{handle.id}-0-1-")
    entered = command("exec", handle.id, "--", "sh", "-c", f"test -e {MARK} && echo $PASSWORD $A $PWD && exit 5")
    assert (entered.returncode, entered.stdout) == (5, f"s3cr3t-words 1 {stage.path}\n"), entered.stderr
    assert handle.exec(["no-such-program"]) == 127
    assert "s3cr3t-words" not in stage.engine.words()
    assert not list(job_path(handle).glob(".enter-*"))
    (stage.path / "finish").touch()
    status = handle.wait(60)
    assert status.state == "succeeded", status.error
    text = b"".join(line.text for line in handle.logs()).decode()
    assert f"python {os.path.realpath(sys.executable)} venv None image True" in text
    assert "secret s3cr3t-words host None pids True" in text
    assert (job_path(handle) / "outputs" / "made").read_text() == "here"
    assert not any("killed lost node" in event["sentence"] for event in handle.events()), "it ended by itself"
    assert stage.engine.containers() == []


def test_code_folders_what_was_left_out_and_stores_are_there(
    stage: ContainerStage, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, project = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("project")
    (data / "numbers").write_text("1 2 3")
    stage.configure(folders={"data": str(data)})
    (stage.path / "petctl.yaml").rename(project / "petctl.yaml")
    (project / ".petctlignore").write_text("built\n")
    (project / "built").mkdir()
    (project / "built" / "extension").write_text("left out")
    (project / "own.py").write_text(
        "import os\n"
        "print('in', os.getcwd(), open('data/numbers').read(), open('built/extension').read())\n"
        "open(os.path.join(os.environ['PETCTL_OUTPUT_DIR'], 'made'), 'w').write('here')\n"
    )
    monkeypatch.chdir(project)
    store = stage.path / "store"
    done = command("run", "--image", PYTHON, "--store", str(store), "own.py")
    assert done.returncode == 0, done.stderr
    assert "/code 1 2 3 left out" in done.stdout
    assert [path.read_text() for path in store.rglob("made")] == ["here"]


def test_nodes_clients_and_supervisors_can_be_killed(stage: ContainerStage) -> None:
    handle = stage.start(nodes=2)
    first = stage.running(2)
    client = clients(handle)[0]
    os.kill(client, signal.SIGKILL)
    until(lambda: not exists(client), "the end of the engine's client")
    stage.goes_on(first, 2)
    assert len(stage.engine.containers()) == 2, "a container does not need its client"
    top, old = guardian(handle, "0"), [mark.pid for mark in stage.marks(first) if mark.node == "0"]
    os.kill(top, signal.SIGKILL)
    second = stage.running(2, after=first)
    assert not any(map(exists, old)), "workers of a killed node"
    until(lambda: len(stage.engine.containers()) == 2, "one container for each node")
    until(lambda: supervisors(handle), "a supervisor and its standby")
    killed = supervisor_pid(handle)
    os.kill(killed, signal.SIGKILL)
    until(lambda: supervisor_pid(handle) != killed, "another supervisor")
    stage.goes_on(second, 2)
    os.kill(guardian(handle, "1"), signal.SIGKILL)
    third = stage.running(2, after=second)
    assert stage.status(handle, third).spent == 0
    handle.cancel()
    assert handle.wait(60).state == "cancelled"
    assert stage.engine.containers() == []


def test_a_supervisor_comes_back_when_somebody_waits(stage: ContainerStage) -> None:
    handle = stage.start(nodes=1)
    first = stage.running(1)
    # Supervisor and standby at once: no agent can start another one from inside of its container.
    both = until(lambda: supervisors(handle), "a supervisor and its standby")
    kill_at_once(both)
    until(lambda: not any(map(exists, both)), "the end of both")
    until(lambda: handle.attend() and supervisor_pid(handle) not in both, "another supervisor")
    stage.goes_on(first, 1)
    stage.finish()
    assert handle.wait(60).state == "succeeded"


def test_nothing_is_left_after_everything_was_killed(stage: ContainerStage) -> None:
    handle = stage.start(nodes=2)
    stage.running(2)
    until(lambda: supervisors(handle), "a supervisor and its standby")
    everything = [*processes_of(job_path(handle)), *keepers_of_containers(handle)]
    kill_at_once(everything)
    until(lambda: not any(map(exists, everything)), "their end")
    assert handle.wait(60).state == "lost"
    assert stage.engine.containers() == []
    get(handle.id).remove()


def test_cancelling_while_the_engine_works_leaves_nothing(stage: ContainerStage) -> None:
    handle = stage.start(nodes=2)
    until(lambda: clients(handle), "the engine at work")
    handle.cancel(kill=True)
    assert handle.wait(60).state == "cancelled"
    assert stage.engine.containers() == []


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("127.0.0.1:1/none:1", "the image 127.0.0.1:1/none:1 cannot be pulled: Error: "),
    ],
    ids=["no image"],
)
def test_an_image_that_cannot_be_used_fails_the_job_with_the_reason(
    stage: ContainerStage, image: str, words: str
) -> None:
    status = stage.start(image=image, nodes=2).wait(60)
    assert status.state == "failed"
    assert words in status.sentence, status.sentence
    assert stage.engine.containers() == []


def test_a_pull_that_takes_long_can_be_cancelled(stage: ContainerStage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections, and never answers
        handle = stage.start(image=f"127.0.0.1:{silent.getsockname()[1]}/none:1", nodes=2)

        def pulling() -> bool:
            return any(event["kind"] == "image" for event in handle.events())

        until(pulling, "the engine pulling")
        assert stage.engine.containers() == []
        handle.cancel()
        assert handle.wait(60).state == "cancelled"


def test_a_place_that_cannot_be_made_fails_the_job(stage: ContainerStage) -> None:
    (stage.path / "home" / "cache").mkdir(parents=True)
    (stage.path / "home" / "cache" / "images").touch()
    status = stage.start(nodes=2).wait(60)
    assert status.state == "failed"
    assert f"cannot make {stage.path}/home/cache/images" in status.sentence


def test_an_engine_that_cannot_start_containers_fails_the_job_in_its_own_words(stage: ContainerStage) -> None:
    stage.configure(container_options=["--network", "no-such-network"])
    status = stage.start().wait(60)
    assert (status.state, status.exit_code) == ("failed", 125)
    assert "cannot run a node in the image" in status.sentence and "network" in status.sentence


def test_without_a_container_it_says_so(stage: ContainerStage, tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(f"import os\nprint('image', os.path.exists({MARK!r}))\n")
    (tmp_path / "job.yaml").write_text(f"script: bare.py\nimage: {PYTHON}\npython: {sys.executable}\n")
    done = command("run", "--no-container", "job.yaml")
    assert done.returncode == 0, done.stderr
    assert "image False" in done.stdout
    assert f"without a container: the image {PYTHON} is not used" in done.stderr


def test_a_script_that_the_image_has_runs_where_it_lies(stage: ContainerStage) -> None:
    for words, seen in (
        (["/srv/train", "train.py", "--lr", "0.1"], "/srv/train train.py --lr 0.1"),
        (["/srv/train/train.py", "--lr"], f"{stage.path} /srv/train/train.py --lr"),
    ):
        done = command("run", "--image", PYTHON, "--no-upload", *words)
        assert (done.returncode, done.stdout) == (0, f"{seen}\n"), done.stderr
    assert not Path("/srv/train").exists(), "nothing is made on this machine for it"


def test_containers_have_shared_memory_and_volumes_of_their_own(stage: ContainerStage) -> None:
    (stage.path / "data" / "a").mkdir(parents=True)
    (stage.path / "data" / "a" / "word").write_text("kept")
    volumes = [
        {"host_path": str(stage.path / "data"), "sub_path": "a", "path": "/in", "read_only": True},
        {"empty_dir": "1MiB", "medium": "Memory", "path": "/fast"},
    ]
    (stage.path / "look.py").write_text(
        "import os\n"
        "sizes = [os.statvfs(path).f_blocks * os.statvfs(path).f_frsize for path in ('/dev/shm', '/fast')]\n"
        "print(open('/in/word').read(), *sizes, os.access('/in', os.W_OK), os.access('/fast', os.W_OK))\n"
    )
    handle = submit(petctl.Job(script="look.py", image=PYTHON, code="none", resources={"shm": "4MiB"}, volumes=volumes))
    assert handle.wait(60).state == "succeeded"
    assert b"kept 4194304 1048576 False True" in b"".join(line.text for line in handle.logs())
