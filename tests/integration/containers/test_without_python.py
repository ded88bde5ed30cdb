"""Images without any Python, or with one that is too old for an agent: their jobs are jobs as any other."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import petctl
from petctl.jobs import JobHandle, get, list_jobs, submit
from petctl.jobs.diagnosis import diagnose
from tests.integration.containers.conftest import (
    BARE,
    HUB,
    HUB_OFFICIAL,
    OLD_PYTHON,
    ContainerEngine,
    ContainerStage,
    staged,
)
from tests.integration.containers.docker import docker_engine
from tests.integration.containers.registry import Registry
from tests.integration.containers.test_containers import (
    clients,
    command,
    guardian,
    keepers_of_containers,
    kill_at_once,
    supervisors,
)
from tests.integration.local.conftest import exists, job_path, processes_of, supervisor_pid
from tests.integration.waiting import until

WORKER = """\
echo "rank $RANK of $WORLD_SIZE in round $PETCTL_ROUND"
echo "$PETCTL_ROUND $RANK $WORLD_SIZE $$ $PETCTL_NODE" >> "$1/marks"
trap 'touch "$1/asked-$RANK"; exit 0' TERM
[ "$2" = fail ] && [ $RANK = 1 ] && { echo "the shell's own words" >&2; exit 7; }
[ "$2" = kill ] && kill -SEGV $$
while [ ! -e "$1/finish" ]; do printf . >> "$1/steps-$PETCTL_ROUND-$RANK"; sleep 0.02; done
"""


class ShellStage(ContainerStage):
    """Jobs whose workers are shell scripts, in an image that has nothing but a shell: no Python and no C library."""

    def start(self, *words: str, **fields: object) -> JobHandle:
        (self.path / "worker.sh").write_text(WORKER)
        told = {"image": BARE, "code": "none", "grace": 2, "cwd": self.path, **fields}
        return submit(petctl.Job(program=["sh", "worker.sh", str(self.path), *words], **told))


@pytest.fixture(scope="module")
def docker(image_files: dict[str, Path], docker_hub: Registry) -> Iterator[ContainerEngine]:
    with docker_engine(image_files, [BARE], docker_hub) as engine:
        yield engine


@pytest.fixture(params=["podman", pytest.param("docker", marks=pytest.mark.long)])
def shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ContainerStage]:
    with staged(tmp_path, monkeypatch, request.getfixturevalue(request.param), ShellStage) as stage:
        yield stage


def said(handle: JobHandle) -> str:
    return b"".join(line.text for line in handle.logs()).decode()


def test_a_job_runs_in_an_image_that_has_no_python(shell: ContainerStage) -> None:
    handle = shell.start(nodes=2, procs=2, env={"A": "1 2"}, secrets={})
    first = shell.running(4)
    assert handle.exec(["sh", "-c", f'test "$A" = "1 2" && test $PWD = {shell.path} && exit 5']) == 5
    assert handle.exec(["no-such-program"]) == 127
    shell.finish()
    status = handle.wait(60)
    assert (status.state, status.spent, status.round) == ("succeeded", 0, first), status.error
    assert sorted(said(handle).splitlines()) == [f"rank {rank} of 4 in round 1" for rank in range(4)]
    assert shell.engine.containers() == []


def test_workers_inherit_nothing_of_the_agents_python(shell: ContainerStage) -> None:
    handle = submit(petctl.Job(shell="env; echo; env > all", image=BARE, code="none", cwd=shell.path))
    assert handle.wait(60).state == "succeeded"
    names = {line.partition("=")[0] for line in (shell.path / "all").read_text().splitlines()}
    assert "RANK" in names
    assert not names & {"PYTHONHOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "LC_CTYPE", "SSL_CERT_FILE"}


def test_exit_codes_signals_and_the_first_error_reach_the_user(shell: ContainerStage) -> None:
    failed = shell.start("fail", nodes=2, restarts=1).wait(90)
    assert (failed.state, failed.exit_code, failed.spent) == ("failed", 7, 1), failed.sentence
    assert failed.error is not None and failed.error.rank == 1
    assert "the shell's own words" in str(failed.error)
    killed = shell.start("kill", restarts=0).wait(60)
    assert (killed.state, killed.exit_code) == ("failed", 128 + signal.SIGSEGV)
    assert shell.engine.containers() == []


def test_workers_get_their_grace(shell: ContainerStage) -> None:
    handle = shell.start(nodes=1, procs=2, grace=20)
    shell.running(2)
    handle.cancel()
    assert handle.wait(60).state == "cancelled"
    assert (shell.path / "asked-0").exists() and (shell.path / "asked-1").exists()


def test_nodes_clients_and_supervisors_can_be_killed(shell: ContainerStage) -> None:
    handle = shell.start(nodes=2)
    first = shell.running(2)
    client = clients(handle)[0]
    os.kill(client, signal.SIGKILL)
    until(lambda: not exists(client), "the end of the engine's client")
    shell.goes_on(first, 2)
    top, old = guardian(handle, "0"), [mark.pid for mark in shell.marks(first) if mark.node == "0"]
    os.kill(top, signal.SIGKILL)
    second = shell.running(2, after=first)
    assert not any(map(exists, old)), "workers of a killed node"
    until(lambda: supervisors(handle), "a supervisor and its standby")
    killed = supervisor_pid(handle)
    os.kill(killed, signal.SIGKILL)
    until(lambda: supervisor_pid(handle) != killed, "another supervisor")
    shell.goes_on(second, 2)
    worker = next(mark.pid for mark in shell.marks(second) if mark.rank == 0)
    os.kill(worker, signal.SIGKILL)
    third = shell.running(2, after=second)
    assert shell.status(handle, third).spent == 1, "a killed worker is a failure, a killed node is none"
    until(lambda: len(shell.engine.containers()) == 2, "one container for each node")
    shell.finish()
    assert handle.wait(60).state == "succeeded"
    assert shell.engine.containers() == []


def test_nothing_is_left_after_everything_was_killed(shell: ContainerStage) -> None:
    handle = shell.start(nodes=2)
    shell.running(2)
    until(lambda: supervisors(handle), "a supervisor and its standby")
    everything = [*processes_of(job_path(handle)), *keepers_of_containers(handle)]
    kill_at_once(everything)
    until(lambda: not any(map(exists, everything)), "their end")
    assert handle.wait(60).state == "lost"
    assert shell.engine.containers() == []
    get(handle.id).remove()


def test_a_script_needs_a_python_of_its_own_and_the_job_says_so(shell: ContainerStage) -> None:
    (shell.path / "train.py").write_text("print(1)\n")
    status = submit(petctl.Job(script="train.py", image=BARE, code="none")).wait(60)
    assert status.state == "failed"
    assert "there is no python3" in status.sentence and "--python" in status.sentence
    assert shell.engine.containers() == []


@pytest.mark.parametrize("image", OLD_PYTHON)
def test_scripts_run_under_an_images_old_python(stage: ContainerStage, image: str) -> None:
    if not stage.has(image):
        pytest.skip("needs that Python, from pyenv")
    (stage.path / "train.py").write_text(
        "import os, sys, json\n"
        "print('python %d.%d' % sys.version_info[:2])\n"
        "assert sorted(os.environ['PYTHONPATH'].split(':')) and not [p for p in sys.path if 'startup' in p]\n"
        "sys.exit(int(os.environ['PETCTL_ROUND'] == '1') * 3)\n"
    )
    handle = submit(petctl.Job(script="train.py", image=image, restarts=2))
    status = handle.wait(60)
    assert (status.state, status.spent) == ("succeeded", 1), status.sentence
    assert said(handle).splitlines() == ["python " + image.rpartition(":")[2]] * 2, "and nothing of petctl's own"


@pytest.mark.parametrize("image", [HUB, HUB_OFFICIAL.partition("/")[2], f"docker.io/{HUB}"])
def test_an_image_of_docker_hub_is_pulled_by_its_short_name(
    shell: ContainerStage, docker_hub: Registry, image: str
) -> None:
    before = len(docker_hub.asked)
    done = command("run", "--image", image, "--no-upload", "--", "echo", "in the image")
    assert (done.returncode, done.stdout) == (0, "in the image\n"), done.stderr
    name = (HUB_OFFICIAL if "/" not in image else HUB).replace(":", "/manifests/")
    assert name in docker_hub.asked[before:]
    before = len(docker_hub.asked)
    assert command("run", "--image", image, "--no-upload", "--", "echo", "again").returncode == 0
    assert docker_hub.asked[before:] == [], "it is there"
    shell.engine.run("rmi", "-f", image)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("petctltests/none:1", "manifest unknown|requested access|reading manifest"),
        ("127.0.0.1:1/none:1", "refused"),
        ("Upper/Case", "must be lowercase"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_the_cause_that_is_named(
    shell: ContainerStage, image: str, words: str
) -> None:
    if "docker" in shell.engine.run("--version").lower() and image.startswith("petctltests/"):
        pytest.skip("what a mirror does not have, docker asks the real Docker Hub for")
    (shell.path / "job.yaml").write_text(f"shell: echo never\nimage: {image}\n")
    done = command("run", "--no-upload", "job.yaml")
    assert done.returncode == 125
    assert f"the image {image} cannot be pulled: " in done.stderr
    assert re.search(words, done.stderr), done.stderr
    (status,) = list_jobs()
    root = diagnose(get(status.id)).root
    assert root is not None and (status.state, root.cause) == ("failed", "image")
