"""Which engine is used, the exact words that it is given, and that none of them is a secret."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.node.native import words_of
from petctl.clusters.local.build_record import build_record
from petctl.clusters.local.commands import node_argv
from petctl.clusters.local.containers.images import full_name, registry_config
from petctl.clusters.local.containers.node_containers import (
    container_argv,
    container_plan,
    remove_containers,
    why_not_started,
)
from petctl.clusters.local.gpus import device_words, inside_container
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import LocalRequest
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.machine.engines import Engine, engine_options, find_engine, last_words

PODMAN = """case "$1" in --version) echo podman version 4.3.1;; info) echo false;; esac"""
DOCKER = """case "$1" in --version) echo Docker version 28.2.2;; info) echo '["name=seccomp"]';; esac"""
ASLEEP = """case "$1" in --version) echo Docker version 28.2.2;; info) echo is it running? >&2; exit 1;; esac"""


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is all of the PATH."""
    place = tmp_path / "bin"
    place.mkdir()
    monkeypatch.setenv("PATH", str(place))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    return place


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def directory(tmp_path: Path) -> JobDirectory:
    return JobDirectory(tmp_path / "home" / "jobs" / "x-2222")


def after(words: list[str], option: str) -> list[str]:
    """Every value of an option."""
    return [value for name, value in zip(words, words[1:], strict=False) if name == option]


def test_podman_is_taken_before_docker_and_only_what_answers(programs: Path) -> None:
    docker = program(programs / "docker", ASLEEP)
    with pytest.raises(UsageError) as refusal:
        find_engine({}, "x:1")
    text = str(refusal.value)
    assert "podman is not installed and docker does not work here (is it running?)" in text
    assert "install podman" in text and "--no-container" in text
    program(docker, DOCKER)
    assert find_engine({}, "x:1") == Engine(str(docker), "docker", False)
    podman = program(programs / "podman", PODMAN)
    assert find_engine({}, "x:1") == Engine(str(podman), "podman", False)
    assert find_engine({"container": "docker"}, "x:1").kind == "docker"


def test_an_engine_is_known_by_what_it_says_not_by_its_name(programs: Path, tmp_path: Path) -> None:
    program(programs / "docker", PODMAN.replace("echo false", "echo true"))
    assert find_engine({}, "x:1") == Engine(str(programs / "docker"), "podman", True)
    own = program(tmp_path / "engine", DOCKER.replace("name=seccomp", "name=rootless"))
    assert find_engine({"container": str(own)}, "x:1") == Engine(str(own), "docker", True)
    with pytest.raises(UsageError, match="nowhere/podman is not installed"):
        find_engine({"container": "/nowhere/podman"}, "x:1")


@pytest.mark.parametrize("settings", [{"container": 3}, {"container": ""}])
def test_a_setting_that_means_nothing_is_told(settings: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"clusters\.local\.container .*must be podman, docker or a path"):
        find_engine(settings, "x:1")
    with pytest.raises(UsageError, match="must be a list of words"):
        engine_options({"container_options": "--memory 2g"})


def test_a_plan_has_the_words_of_its_containers(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(programs / "podman", PODMAN)
    monkeypatch.setenv("OF_THE_SUBMITTER", "private-words")
    monkeypatch.setenv("VIRTUAL_ENV", "/opt/of-the-submitter")
    job = Job(shell="x", code="none", nodes=2, image="x:1", image_credentials="registry", secrets={"KEY": "wandb"})
    record = build_record(job, directory(tmp_path), {"slots": 5, "container_options": ["--memory=2g"]})
    request = LocalRequest.of(record)
    first = request.nodes[0]
    assert first[:2] == [str(programs / "podman"), "run"]
    home = request.container["home"]
    assert after(first, "--name") == [f"petctl-x-2222-0-1-{home}"]
    assert after(first, "--label") == ["petctl.job=x-2222", "petctl.node=0", f"petctl.home={home}"]
    elsewhere = build_record(job, directory(tmp_path / "other"), {}).request["container"]["home"]
    assert elsewhere != home, "a job of the same id in another home has containers of its own"
    assert (after(first, "--network"), after(first, "--pid"), after(first, "--ipc")) == (["host"], ["host"], ["host"])
    agent = first.index("x:1")
    assert first[agent - 1] == "--memory=2g", "what the user says comes last, and counts"
    python = request.container["python"]
    own = words_of(python)
    assert after(first, "--entrypoint") == own[:1], "whatever Python the image has, the agent has its own"
    assert first[agent + 1 :][: len(own) + 1] == [*own[1:], str(directory(tmp_path).agent), "join"]
    mounted = [value.partition("dst=")[2] for value in after(first, "--mount")]
    assert mounted == [str(tmp_path), f"{python},readonly"], "the directory that it runs in holds all others here"
    assert record.task.python == "", "the image's own python3"
    assert request.container["credentials"] == "registry"
    for text in ("private-words", "of-the-submitter"):
        assert text not in json.dumps(record.to_dict())
    assert node_argv(directory(tmp_path), "0", [], request.container, 3)[2:] != first[2:]


def test_a_named_interpreter_stays_the_one_that_was_named(programs: Path, tmp_path: Path) -> None:
    program(programs / "docker", DOCKER)
    job = Job(shell="x", code="none", image="x:1", python="/opt/python")
    assert build_record(job, directory(tmp_path), {}).task.python == "/opt/python"


def test_the_memory_of_a_job_limits_its_containers_and_the_users_options_win(programs: Path, tmp_path: Path) -> None:
    program(programs / "docker", DOCKER)
    job = Job(shell="x", code="none", image="x:1", resources={"memory": "1GiB"})
    record = build_record(job, directory(tmp_path), {"container_options": ["--memory=2g"]})
    assert LocalRequest.of(record).container["options"] == ["--memory=1073741824", "--memory=2g"]
    assert record.notes == []


def test_containers_have_what_a_job_asks_of_its_nodes(programs: Path, tmp_path: Path) -> None:
    program(programs / "docker", DOCKER)
    volumes: list[Any] = [
        {"host_path": "/data", "path": "/in", "sub_path": "a", "read_only": True},
        {"empty_dir": "1MiB", "medium": "Memory", "path": "/fast"},
        {"claim": "models", "path": "/models"},
    ]
    asked = {"cpu": "1500m", "shm": "64MiB"}
    job = Job(shell="x", code="none", image="x:1", resources=asked, volumes=volumes)
    record = build_record(job, directory(tmp_path), {})
    container = LocalRequest.of(record).container
    own = ["--mount", "type=bind,src=/data/a,dst=/in,readonly", "--mount", "type=tmpfs,dst=/fast,tmpfs-size=1048576"]
    assert container["options"] == ["--cpus=1.5", *own]
    assert after(container["run"], "--shm-size") == ["67108864"]
    assert after(container["run"], "--ipc") == ["private"]
    assert LocalRequest.of(record).limits == {}
    assert record.notes == [
        "not mounted on this machine: claim models at /models; "
        "containers (--image) here have host_path and empty_dir in memory, Kubernetes has all of them"
    ]


def test_what_this_machine_does_not_give_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volumes = [{"claim": "data", "path": "/data"}, {"host_path": "/in/", "path": "/in"}]
    asked = {"memory": "1GiB", "cpu": 2, "shm": "64MiB"}
    job = Job(shell="x", code="none", resources=asked, volumes=volumes)
    parents = "petctl.clusters.local.controller.cgroups.parents"
    monkeypatch.setattr(parents, lambda limits: ({"cpu": None}, {"memory": "/x cannot be written"}))
    record = build_record(job, directory(tmp_path), {})
    assert LocalRequest.of(record).limits == {"cpu": 2.0}
    assert record.notes == [
        "--memory 1GiB is not enforced: no control group can be made for it here (/x cannot be written); it takes "
        "root, a scope of the user's own (systemd-run --user --scope petctl run ...), or a container (--image)",
        "--shm-size 64MiB: no effect on processes of this machine, which share its /dev/shm; "
        "containers (--image) have their own",
        "not mounted on this machine: claim data at /data; "
        "containers (--image) here have host_path and empty_dir in memory, Kubernetes has all of them",
    ]
    monkeypatch.setattr(parents, lambda limits: (dict.fromkeys(limits), {}))
    assert LocalRequest.of(build_record(job, directory(tmp_path), {})).limits == {"memory": 1 << 30, "cpu": 2.0}


def test_a_cluster_may_give_something_to_the_nodes_of_every_job(tmp_path: Path) -> None:
    settings = {"name": "lab", "resources": {"gpus": 2, "shm": "64MiB"}, "volumes": [{"claim": "old", "path": "/data"}]}
    job = Job(shell="x", code="none", resources={"gpus": 1}, volumes=[{"claim": "new", "path": "/data"}])
    record = build_record(job, directory(tmp_path), settings)
    assert LocalRequest.of(record).gpus == 1
    assert [note.partition(":")[0] for note in record.notes] == ["--shm-size 64MiB", "not mounted on this machine"]
    assert "claim new at /data; " in record.notes[1] and "old" not in record.notes[1]
    assert record.job["resources"] == {"gpus": 1}, "on another cluster it has what that gives"
    assert LocalRequest.of(build_record(Job(shell="x", code="none"), directory(tmp_path), settings)).gpus == 2
    for wrong, said in (
        ({"resources": {"cpu": "x"}}, r"clusters\.lab\.resources\.cpu: expected processors"),
        ({"volumes": [{"claim": "a"}]}, r"clusters\.lab\.volumes\[0\]: its path on the nodes is missing"),
        (
            {"volumes": [{"claim": "a", "path": "/dev/shm"}]},
            r"clusters\.lab\.resources\.shm: there is a volume at /dev/shm",
        ),
    ):
        with pytest.raises(UsageError, match=said):
            build_record(job, directory(tmp_path), {**settings, **wrong})


def test_no_engine_is_needed_without_an_image(tmp_path: Path) -> None:
    record = build_record(Job(shell="x", code="none"), directory(tmp_path), {})
    assert LocalRequest.of(record).container == {}
    with pytest.raises(UsageError, match="--no-container"):
        build_record(Job(shell="x", code="none", image="x:1"), directory(tmp_path), {})


def test_files_belong_to_the_submitter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    monkeypatch.setattr(os, "getgid", lambda: 100)
    monkeypatch.setattr(os, "getgroups", lambda: [100, 44])

    def words(kind: str, rootless: bool) -> list[str]:
        plan = container_plan(Engine("/bin/engine", kind, rootless), "x:1", [], directory(tmp_path), [], "")
        return list(plan["run"])

    rootless = words("podman", True)
    assert (after(rootless, "--userns"), after(rootless, "--user")) == (["keep-id"], ["1000:100"])
    assert f"HOME={directory(tmp_path).path}/home" in after(rootless, "--env")
    rootful = words("docker", False)
    assert (after(rootful, "--user"), after(rootful, "--group-add")) == (["1000:100"], ["44"])
    assert after(words("docker", True), "--user") == ["0:0"], "which is the submitter, for a daemon of his own"


def test_places_are_mounted_once_and_under_their_own_name(tmp_path: Path) -> None:
    places = [str(tmp_path / "data,1"), str(tmp_path / "data,1" / "inner"), str(tmp_path / "data")]
    engine = Engine("/bin/engine", "podman", False)
    plan = container_plan(engine, "x:1", [], directory(tmp_path), places, "")
    mounts = after(plan["run"], "--mount")
    assert f'type=bind,"src={places[0]}","dst={places[0]}"' in mounts, "engines read lists with commas"
    assert f"type=bind,src={places[2]},dst={places[2]}" in mounts
    assert not any("inner" in mount for mount in mounts)


def test_a_container_gets_the_gpus_of_its_node_and_counts_them_from_zero(tmp_path: Path) -> None:
    assert inside_container(["join", "--gpus", "2,3", "--node", "1"]) == (
        ["2", "3"],
        ["join", "--gpus", "0,1", "--node", "1"],
    )
    assert inside_container(["join", "--nominal-gpus", "2"]) == ([], ["join", "--nominal-gpus", "2"])
    assert device_words("docker", ["2", "3"]) == ["--gpus", '"device=2,3"']
    assert device_words("podman", ["2", "3"]) == ["--device", "nvidia.com/gpu=2", "--device", "nvidia.com/gpu=3"]
    assert device_words("podman", []) == []
    plan = container_plan(Engine("/bin/engine", "docker", False), "x:1", [], directory(tmp_path), [], "")
    words = container_argv(plan, directory(tmp_path), "1", 1, ["join", "--gpus", "2,3"])
    assert after(words, "--gpus") == ['"device=2,3"', "0,1"]


def test_what_an_engine_says_last_is_what_counts() -> None:
    said = b"Trying to pull x:1...\nError: initializing source x:1:\n  connection refused\n"
    assert last_words(said) == "Error: initializing source x:1: connection refused"
    assert last_words(b"one\ntwo\n") == "two"
    assert last_words(b"") == ""
    container = {"engine": "/usr/bin/podman", "image": "x:1"}
    assert why_not_started(container, 125, b"") == "podman cannot run a node in the image x:1: exit code 125"


def test_an_engine_that_has_gone_is_told_where_containers_are_removed(tmp_path: Path) -> None:
    container = {"engine": str(tmp_path / "gone"), "kind": "podman", "home": "1234"}
    assert remove_containers(container, "x-2222").startswith("cannot list the containers of x-2222: ")


def test_credentials_are_for_the_registry_of_the_image() -> None:
    key = base64.b64encode(b"me:a:b").decode()
    assert registry_config("example.org:5000/a/b:1", "me:a:b\n") == {"auths": {"example.org:5000": {"auth": key}}}
    assert registry_config("localhost/a", "me:a:b") == {"auths": {"localhost": {"auth": key}}}
    hub = registry_config("library/python:3", "me:a:b")["auths"]
    assert set(hub) == {"docker.io", "https://index.docker.io/v1/"}
    whole = {"auths": {"example.org": {"auth": key}}}
    assert registry_config("x", json.dumps({**whole, "credsStore": "desktop"})) == whole
    for wrong in ("nobody", ":", "{", '{"auths": 1}'):
        with pytest.raises(UsageError, match="image_credentials") as refusal:
            registry_config("x", wrong)
        assert wrong not in ("nobody",) or wrong not in str(refusal.value)


def test_a_name_without_a_registry_is_docker_hubs() -> None:
    assert full_name("pytorch/pytorch:2.13.0") == "docker.io/pytorch/pytorch:2.13.0"
    assert full_name("python") == "docker.io/library/python"
    assert full_name("tensorflow@sha256:12") == "docker.io/library/tensorflow@sha256:12"
    for whole in ("docker.io/a/b", "localhost/a", "quay.io/a/b:1", "127.0.0.1:5000/a", "host:5000/a"):
        assert full_name(whole) == whole
