"""A job finds its mapped folders under the same paths, and what it writes there arrives in the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.workers.processes import signal_each
from petctl.storage.stores.location import parse_location
from petctl.storage.transfer.plan import open_end
from tests.integration.local.conftest import processes_of
from tests.integration.storage.conftest import Proxy, Scene, fill
from tests.integration.waiting import until

PATIENCE = 90

READS = """
import os, pathlib, sys, time
data, go = pathlib.Path("data"), pathlib.Path(os.environ["GO"])
walk = os.walk(data, followlinks=True)
found = sorted(os.path.relpath(os.path.join(folder, name), data) for folder, _, names in walk for name in names)
print("found", len(found), *found[:4], "in round", os.environ["PETCTL_ROUND"], flush=True)
output = pathlib.Path("output")
if output.exists():
    output.joinpath("rank").mkdir(exist_ok=True)
    output.joinpath("rank", os.environ["RANK"]).write_text("begun in round " + os.environ["PETCTL_ROUND"])
while not go.exists():
    time.sleep(0.02)
if output.exists():
    output.joinpath("last").write_text("ended")
    for name in sys.argv[1:]:
        output.joinpath(name).unlink()
sys.exit(int(os.environ.get("CODE", 0)))
"""


class Project:
    """A project with mapped folders, and the command line in it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.path = scene.folder / "project"
        self.path.mkdir()
        self.go = scene.folder / "go"
        (self.path / "reads.py").write_text(READS)
        self.environment = {**scene.environ(), "GO": str(self.go), "PETCTL_SEND_EVERY": "0.3"}
        self.configure()

    def configure(self, mode: str = "rw", **more: Any) -> None:
        root = self.scene.root
        folders = {"data": f"{root}/data", "output": {"location": f"{root}/output", "mode": mode}}
        (self.path / "petctl.yaml").write_text(json.dumps({"folders": folders, **more}))

    def __call__(self, *words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "petctl", *words]
        done = subprocess.run(
            argv, capture_output=True, text=True, cwd=self.path, env=self.environment, timeout=PATIENCE
        )
        assert code is None or done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "-o", "json").stdout)

    def start(self, *words: str) -> str:
        """A job whose worker has looked at its data."""
        job = self("submit", "-q", *words).stdout.strip()
        until(lambda: self.said(job), "the worker's first line", PATIENCE)
        return job

    def said(self, job: str) -> list[str]:
        return [line for line in self("logs", job).stdout.splitlines() if "found" in line]

    def guardian(self, job: str, node: int) -> int:
        """The top process of a node, once the status tells."""
        rows = lambda: self.json("status", job)["nodes"][node:]  # noqa: E731
        return int(until(lambda: (found := rows()) and found[0]["pid"], f"the process of node {node}", PATIENCE))

    def objects(self, folder: str = "output") -> dict[str, int]:
        """What the store has of a folder; nothing, as long as it has none."""
        end = open_end(parse_location(f"{self.scene.root}/{folder}"), self.scene.surroundings())
        return {entry.path: entry.size for entry in end.place.entries(end.path)}

    def read(self, path: str) -> str:
        target = self.scene.folder / "read"
        target.unlink(missing_ok=True)
        self.scene.copy(f"{self.scene.root}/{path}", target)
        return target.read_text()

    def put(self, path: str, text: str) -> None:
        (self.scene.folder / "put").write_text(text)
        self.scene.copy(self.scene.folder / "put", f"{self.scene.root}/{path}", checksum=True)

    def copies(self) -> dict[str, Path]:
        return {row["location"]: Path(row["directory"]) for row in self.json("data", "cache", "ls")}

    def end(self, job: str, code: int = 0) -> None:
        self.go.touch()
        self("wait", job, code=code)
        self.go.unlink()


@pytest.fixture
def project(scene: Scene) -> Iterator[Project]:
    """Three files in the store's data; nothing of it on this machine."""
    found = Project(scene)
    fill(scene.folder / "source", {"voc20/a": 1000, "voc20/b": 2000, "coco/c": 3000})
    scene.copy(scene.folder / "source", f"{scene.root}/data")
    try:
        yield found
    finally:
        jobs = found("list", "-q", code=None).stdout.split()
        if jobs:
            found("rm", "--force", *jobs, code=None)


def test_data_is_there_and_output_arrives_during_the_run_and_after(project: Project) -> None:
    plan = project("render", "reads.py").stdout
    assert f"{project.scene.root}/data" in plan
    for name, value in project.scene.environment.items():
        assert "KEY" not in name or name == "AWS_ACCESS_KEY_ID" or value not in plan
    job = project.start("reads.py")
    assert project.said(job) == ["found 3 coco/c voc20/a voc20/b in round 1"]
    until(lambda: "rank/0" in project.objects(), "output in the store while the job runs", PATIENCE)
    assert "last" not in project.objects()
    page = project("status", job).stdout
    assert f"data: {project.scene.root}/data (ro)" in page and f"output: {project.scene.root}/output (rw)" in page
    project.end(job)
    assert sorted(project.objects()) == ["last", "rank/0"]
    assert project.read("output/rank/0") == "begun in round 1"
    assert not (project.path / "data").exists() and not (project.path / "output").exists()


def test_output_of_a_job_that_fails_is_up_too(project: Project) -> None:
    project.environment["PETCTL_SEND_EVERY"] = "1000"
    job = project.start("--restarts", "0", "-e", "CODE=3", "reads.py")
    project.end(job, code=3)
    assert sorted(project.objects()) == ["last", "rank/0"]


def test_a_replaced_node_has_them_too(project: Project) -> None:
    job = project.start("-n", "2", "reads.py")
    until(lambda: len(project.said(job)) == 2, "both workers", PATIENCE)
    os.kill(project.guardian(job, 1), signal.SIGKILL)
    until(lambda: sum("in round 2" in line for line in project.said(job)) == 2, "the second round", PATIENCE)
    project.end(job)
    assert all("found 3 coco/c voc20/a voc20/b" in line for line in project.said(job))
    assert len(project.copies()) == 2  # whatever the number of nodes
    assert project.read("output/rank/1") == "begun in round 2"


def test_a_later_job_brings_only_what_changed(project: Project) -> None:
    project.end(project.start("--folder", "data", "reads.py"))
    (copy,) = project.copies().values()
    before = {name: (copy / name).stat().st_ino for name in ("voc20/a", "voc20/b", "coco/c")}
    project.put("data/voc20/b", "changed")
    project.scene.petctl("rm", f"{project.scene.root}/data/coco/c")
    job = project.start("--folder", "data", "reads.py")
    assert project.said(job) == ["found 2 voc20/a voc20/b in round 1"]
    project.end(job)
    assert (copy / "voc20/b").read_text() == "changed"
    assert (copy / "voc20/a").stat().st_ino == before["voc20/a"]
    assert (copy / "voc20/b").stat().st_ino != before["voc20/b"]


def test_a_part_another_place_and_none(project: Project) -> None:
    job = project.start("--folder", "data/voc20", "reads.py")
    assert project.said(job) == ["found 2 voc20/a voc20/b in round 1"]
    project.end(job)
    job = project.start("--folder", f"data={project.scene.folder}/source/voc20", "reads.py")
    assert project.said(job) == ["found 2 a b in round 1"]
    project.end(job)
    again = project("resubmit", "-q", job).stdout.strip()
    project.end(again)
    assert project.said(again) == ["found 2 a b in round 1"]
    job = project.start("--no-folders", "reads.py")
    assert project.said(job) == ["found 0 in round 1"]
    project.end(job)


def test_sync_removes_what_the_job_removed(project: Project) -> None:
    project.put("output/old", "old")
    project.put("output/kept", "kept")
    project.configure("sync")
    job = project.start("reads.py", "old")
    until(lambda: "rank/0" in project.objects(), "the first output", PATIENCE)
    project.end(job)
    assert sorted(project.objects()) == ["kept", "last", "rank/0"]


def test_killed_while_it_fetches_it_goes_on(proxy: Proxy, project: Project) -> None:
    source = fill(project.scene.folder / "many", {f"file{number:03d}": 5000 for number in range(100)})
    project.scene.copy(source, f"{project.scene.root}/many")
    proxy.take()
    go_on, lock, begun = threading.Event(), threading.Lock(), []

    def hold(method: str, target: str) -> None:
        """Lets through so many files, and the others when the test says so."""
        if method == "GET" and "/many/file" in target:
            with lock:
                begun.append(target)
                late = len(begun) > 30
            if late:
                go_on.wait(PATIENCE)

    proxy.before = hold
    job = project("submit", "-q", "--folder", f"data={project.scene.root}/many", "reads.py").stdout.strip()
    until(lambda: len(begun) > 37, "thirty files, and requests for more", PATIENCE)
    until(lambda: " of 100 files" in project("status", "-o", "json", job).stdout, "the node's own words", PATIENCE)
    first = {passed.path for passed in proxy.take() if "/many/file" in passed.path}
    os.kill(project.guardian(job, 0), signal.SIGKILL)
    until(lambda: len(begun) > 40, "the next node's requests", PATIENCE)
    go_on.set()
    until(lambda: project.said(job), "the worker's first line", PATIENCE)
    project.end(job)
    assert project.said(job)[0].startswith("found 100 ")
    (copy,) = project.copies().values()
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }
    assert len(first) == 30
    assert not first & {passed.path for passed in proxy.take()}  # what was complete is not fetched again


def test_what_a_massacre_left_is_sent_by_the_next_job(project: Project) -> None:
    project.environment["PETCTL_SEND_EVERY"] = "1000"
    job = project.start("reads.py")
    directory = Path(project.json("status", job)["directory"])

    def lost() -> bool:  # whoever dies is replaced by somebody who still lives
        while left := processes_of(directory):
            signal_each(left, signal.SIGKILL)
        return bool(project.json("status", job)["state"] == "lost")

    until(lost, "that nobody is left", PATIENCE)
    assert listed(project, "output") == []
    project("data", "cache", "clear")
    project.end(project.start("-e", "CODE=0", "reads.py"))
    assert "rank/0" in project.objects()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
def test_a_node_on_another_machine_gets_them_without_a_key(project: Project) -> None:
    """The other machine is this one with another disk in the place of petctl's home, and no key in its environment."""
    project.configure(clusters={"local": {"slots": 1}})
    job = project.start("-n", "1:2:2", "reads.py")
    join, state, home = (project.scene.folder / name for name in ("join.json", "elsewhere", "home"))
    project("token", job, "--file", str(join))
    found = json.loads((Path(project.json("status", job)["directory"]) / "coordinator.json").read_text())
    there = {**json.loads(join.read_text()), "locator": {"address": found["address"]}, "revive": None}
    join.write_text(json.dumps(there))
    agent = f"{sys.executable} -m petctl.agent join --file {join} --node far --state-dir {state}"
    hidden = f"mount -t tmpfs none {home} && exec {agent}"
    poor = {name: value for name, value in project.environment.items() if not name.startswith(("AWS_", "AZURE_"))}
    far = subprocess.Popen(["unshare", "-m", "sh", "-c", hidden], env=poor)
    try:
        logs = "logs/round-*/rank-1.out"
        until(lambda: any("found 3" in log.read_text() for log in state.glob(logs)), "its worker's line", PATIENCE)
        project.end(job)
        assert far.wait(PATIENCE) == 0
    finally:
        far.kill()
        far.wait()
    assert sorted(path.name for path in state.glob("folders/*/files/voc20/*")) == ["a", "b"]
    assert project.read("output/rank/1") == "begun in round 2"


def listed(project: Project, folder: str) -> list[str]:
    done = project.scene.petctl("ls", "-r", "-o", "json", f"{project.scene.root}/", code=0)
    return [entry["path"] for entry in json.loads(done.stdout) if entry["path"].startswith(f"{folder}/")]


def test_the_least_recently_used_copy_makes_room(project: Project) -> None:
    for name in ("one", "two"):
        fill(project.scene.folder / name, {f"{name}.bin": 700_000})
        project.scene.copy(project.scene.folder / name, f"{project.scene.root}/{name}")
    project.configure(cache="1MiB")
    for name in ("one", "two"):
        project.end(project.start("--folder", f"data={project.scene.root}/{name}", "reads.py"))
        assert set(project.copies()) == {f"{project.scene.root}/{name}"}
    project.configure(cache="100KiB")
    job = project("submit", "-q", "--folder", f"data={project.scene.root}/one", "reads.py").stdout.strip()
    project("wait", job, code=None)
    assert "limited to 100 KiB" in project("status", job).stdout
    assert "700,000 bytes" in project("data", "cache", "clear").stderr
    assert project.copies() == {}


def test_what_is_wrong_is_told_before_anything_is_started(project: Project) -> None:
    root = project.scene.root
    nothing = project("submit", "--folder", f"data={root}/nothing", "reads.py", code=4).stderr
    assert f"{root}/nothing is empty or does not exist, but the folder data is mapped to it" in nothing
    bucket = f"{root}-not"
    assert f"{bucket} does not exist" in project("submit", "--folder", f"data={bucket}/x", "reads.py", code=4).stderr
    assert "modles is in no mapped folder" in project("submit", "--folder", "modles", "reads.py", code=2).stderr
    assert "--no-folders" in project("submit", "--no-upload", "reads.py", code=2).stderr
    for name in ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_ACCOUNT_KEY"):
        if name in project.environment:
            project.environment[name] = "d3Jvbmc="
    refused = project("submit", "reads.py", code=5).stderr
    assert "d3Jvbmc=" not in refused
    assert project.json("list") == []
