"""A job's outputs and logs in its store: during the run, at its end, after kills, from other machines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.local.processes import node_processes
from petctl.storage.core.files import Depot, direct
from petctl.storage.core.grants import Grants
from petctl.storage.stores.credentials import Surroundings
from petctl.submission.store_grants import grant_of, pin
from tests.integration.storage.conftest import NUMBERS, Proxy, Scene, tree
from tests.integration.storage.servers import Azurite, SeaweedFS
from tests.integration.waiting import until

WORKER = """
import os, pathlib, sys, time
here, code = pathlib.Path(sys.argv[1]), int(sys.argv[2])
rank, number = os.environ["RANK"], os.environ["PETCTL_ROUND"]
model = pathlib.Path(os.environ["PETCTL_OUTPUT_MODEL"])
if not (model / f"first-{rank}").exists():
    (model / f"first-{rank}").write_bytes(rank.encode() * 100_000)
print(f"rank {rank} in round {number}", flush=True)
(here / f"ready-{number}-{rank}").touch()
while not (here / "go").exists():
    time.sleep(0.02)
print(f"rank {rank} ends", flush=True)
(model / f"last-{rank}").write_text("last")
(model.parent / f"loose-{rank}").write_text("loose")
sys.exit(code)
"""
LONG = 90.0


class Runs:
    """Jobs of one test, by the command line; none is left behind."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.folder = scene, scene.folder
        self.home = scene.folder / "home"
        self.jobs: list[str] = []
        (self.folder / "makes.py").write_text(WORKER)

    def petctl(self, *words: object, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "petctl", *map(str, words)],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env={**self.scene.environ(), "PETCTL_SEND_EVERY": "0.3"},
            timeout=110,
        )
        assert code is None or done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def submit(self, *options: object, code: int = 0) -> str:
        words = ("--out", "model", *options, "makes.py", self.folder, code)
        self.jobs.append(self.petctl("submit", "-q", *words).stdout.strip())
        return self.jobs[-1]

    def directory(self, job: str) -> Path:
        return self.home / "jobs" / job

    def ready(self, number: int, ranks: int = 1) -> None:
        wanted = [self.folder / f"ready-{number}-{rank}" for rank in range(ranks)]
        until(lambda: all(path.exists() for path in wanted), f"workers of round {number}", LONG)

    def go(self) -> None:
        (self.folder / "go").touch()

    def stored(self, job: str) -> dict[str, int]:
        """What the store has of a job: path -> size."""
        return {entry.path: entry.size for entry in self.depot(f"runs/{job}").entries("it")}

    def depot(self, below: str) -> Depot:
        """A node's way to the store, straight: what the tests look with must not be what they look at."""
        known = Surroundings(self.scene.server.environment())
        return Depot(direct(Grants({"it": grant_of(pin(self.scene.root, known), known, False, below)})))

    def sent(self, job: str, path: str) -> None:
        until(lambda: path in self.stored(job), f"{path} in the store", LONG)

    def all_up(self, job: str) -> None:
        """The store has exactly what the job made."""
        back = self.folder / f"back-{job}"
        depot = self.depot(f"runs/{job}/outputs")
        for entry in depot.entries("it"):
            (back / entry.path).parent.mkdir(parents=True, exist_ok=True)
            depot.fetch("it", entry, str(back / entry.path))
        assert tree(back) == tree(self.directory(job) / "outputs")

    def status(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.petctl("status", "-o", "json", job).stdout)
        return found

    def events(self, job: str, kind: str) -> list[str]:
        lines = (self.directory(job) / "events.jsonl").read_text().splitlines()
        return [event["sentence"] for event in map(json.loads, lines) if event["kind"] == kind]

    def processes(self, job: str) -> list[int]:
        """Everything of a job that runs."""
        found = set(node_processes(job, self.directory(job) / "nodes"))
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.directory(job)).encode() in path.read_bytes().split(b"\0"):
                    found.add(int(path.parent.name))
            except OSError:
                continue
        return sorted(found)

    def supervisor(self, job: str) -> int:
        return int(json.loads((self.directory(job) / "coordinator.json").read_text())["pid"])

    def agent(self, job: str, node: str) -> int:
        guardian = int((self.directory(job) / "nodes" / node / "pid").read_text())
        return int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])

    def kill_all(self, job: str) -> None:
        def gone() -> bool:
            for pid in self.processes(job):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            return not self.processes(job)

        until(gone, f"the end of everything of {job}")


@pytest.fixture
def runs(scene: Scene) -> Iterator[Runs]:
    yield from _runs(scene)


@pytest.fixture
def s3(seaweedfs: SeaweedFS, tmp_path: Path) -> Scene:
    """Where one kind of store is enough."""
    return Scene(seaweedfs, seaweedfs.make(f"bucket-{next(NUMBERS)}"), tmp_path, seaweedfs.environment())


@pytest.fixture
def on_s3(s3: Scene) -> Iterator[Runs]:
    yield from _runs(s3)


def _runs(scene: Scene) -> Iterator[Runs]:
    runs = Runs(scene)
    try:
        yield runs
    finally:
        for job in runs.jobs:
            runs.kill_all(job)


def test_results_are_up_during_the_run_and_after_a_failure(runs: Runs) -> None:
    store, root = f"{runs.scene.root}/runs", runs.scene.root
    own = ("--out", f"model={root}/models/best")
    plan = json.loads(runs.petctl("render", "-o", "json", "--store", store, "makes.py").stdout)
    assert plan["results"]["logs"] == f"{store}/{plan['id']}/logs"
    assert not [value for name, value in runs.scene.environment.items() if "KEY" in name and value in json.dumps(plan)]

    job = runs.submit("--store", store, "--restarts", "0", code=3)
    runs.ready(1)
    runs.sent(job, "outputs/model/first-0")
    runs.sent(job, "logs/round-0001/rank-0.out.000000")
    listed = json.loads(runs.petctl("outputs", "ls", "-o", "json", job, "model").stdout)
    assert [row["path"] for row in listed] == ["model/first-0"]
    runs.go()
    runs.petctl("wait", job, code=3)
    runs.all_up(job)
    found = runs.stored(job)
    assert set(found) >= {"outputs/model/last-0", "outputs/loose-0", "logs/round-0001/rank-0.out.000000"}
    assert not any("progress" in path for path in found)
    assert runs.status(job)["results"] == f"{store}/{job}"
    assert not runs.events(job, "results")

    runs.petctl("outputs", "get", "--to", "here", job)
    assert tree(runs.folder / "here") == tree(runs.directory(job) / "outputs")
    link = runs.petctl("outputs", "url", job, "model", "last-0").stdout.strip()
    import urllib.request

    with urllib.request.urlopen(link, timeout=30) as answer:
        assert answer.read() == b"last"
    wrong = runs.petctl("outputs", "ls", job, "modle", code=2)
    assert "its outputs: model" in wrong.stderr

    second = runs.submit(*own)  # no store: only this output has a place
    runs.petctl("wait", second)
    assert [entry.path for entry in runs.depot("models/best").entries("it")] == ["first-0", "last-0"]
    listed = json.loads(runs.petctl("outputs", "ls", "-o", "json", second, "model").stdout)
    assert [row["path"] for row in listed] == ["model/first-0", "model/last-0"]
    (one,) = json.loads(runs.petctl("outputs", "ls", "-o", "json", second, "model", "last-0").stdout)
    assert (one["path"], one["size"]) == ("model/last-0", 4)


def test_a_wrong_place_is_told_at_submit(runs: Runs) -> None:
    missing = runs.scene.root + "-missing"
    words = ("--out", "model", "makes.py", runs.folder, 0)
    assert "does not exist" in runs.petctl("submit", "--store", missing, *words, code=4).stderr
    name = "AWS_SECRET_ACCESS_KEY" if runs.scene.root.startswith("s3") else "AZURE_STORAGE_ACCOUNT_KEY"
    right = runs.scene.environment
    runs.scene.environment = {**right, name: "d3Jvbmc="}
    assert "key" in runs.petctl("submit", "--store", runs.scene.root, *words, code=5).stderr
    runs.scene.environment = {key: value for key, value in right.items() if "KEY" not in key}
    assert "found no key" in runs.petctl("submit", "--store", runs.scene.root, *words, code=5).stderr
    runs.scene.environment = right
    assert "letters, digits" in runs.petctl("submit", "--out", "a/b", "makes.py", code=2).stderr
    assert not (runs.home / "jobs").exists() or not list((runs.home / "jobs").iterdir())


def test_the_configuration_names_the_store(on_s3: Runs) -> None:
    url = on_s3.scene.environment.pop("AWS_ENDPOINT_URL")
    config = {"store": f"{on_s3.scene.root}/runs", "stores": {"s3://": {"endpoint": url}}}
    (on_s3.folder / "petctl.yaml").write_text(json.dumps(config))
    on_s3.go()
    job = on_s3.submit()
    on_s3.petctl("wait", job)
    config.pop("store")  # where results went is in the record
    (on_s3.folder / "petctl.yaml").write_text(json.dumps(config))
    again = on_s3.petctl("resubmit", "-q", job).stdout.strip()
    on_s3.jobs.append(again)
    on_s3.petctl("wait", again)
    listed = json.loads(on_s3.petctl("outputs", "ls", "-o", "json", again).stdout)
    assert [row["path"] for row in listed] == ["loose-0", "model/first-0", "model/last-0"]
    assert "petctlsecret" not in (on_s3.directory(job) / "job.json").read_text()
    none = on_s3.submit("--store", "none")
    on_s3.petctl("wait", none)
    listed = json.loads(on_s3.petctl("outputs", "ls", "-o", "json", none).stdout)
    assert len(listed) == 3 and on_s3.status(none)["results"] == ""


def puts(proxy: Proxy, name: str) -> int:
    return sum(one.method == "PUT" and one.path.endswith(name) for one in proxy.passed)


def test_kills_of_agent_and_supervisor(on_s3: Runs) -> None:
    with Proxy(on_s3.scene.server.port) as proxy:
        on_s3.scene.through(proxy)
        job = on_s3.submit("--store", f"{on_s3.scene.root}/runs", "-n", "2")
        on_s3.ready(1, 2)
        noted = on_s3.directory(job) / ".results.json"
        until(lambda: noted.exists() and noted.read_text().count("model/first-") == 2, "both are noted as sent", LONG)
        for node in ("0", "1"):  # whichever of them it is that sends
            os.kill(on_s3.agent(job, node), signal.SIGKILL)
        until(lambda: len(on_s3.events(job, "running")) >= 2, "another round", LONG)
        first = on_s3.supervisor(job)
        os.kill(first, signal.SIGKILL)
        until(lambda: on_s3.supervisor(job) != first, "another supervisor", LONG)
        on_s3.go()
        on_s3.petctl("wait", job)
        on_s3.all_up(job)
        assert puts(proxy, "model/first-0") == puts(proxy, "model/first-1") == 1, "sent twice"


@pytest.mark.parametrize("victim", ["nobody", "supervisor", "agent"])
def test_a_store_that_is_away_for_a_while(on_s3: Runs, victim: str) -> None:
    """... at the worst moment: when the job is over. Whoever is killed meanwhile, the rest is sent."""
    with Proxy(on_s3.scene.server.port) as proxy:
        on_s3.scene.through(proxy)
        job = on_s3.submit("--store", f"{on_s3.scene.root}/runs")
        on_s3.ready(1)
        on_s3.sent(job, "outputs/model/first-0")
        refused: list[str] = []

        def away(method: str, target: str) -> str:
            refused.append(target)
            return ("503", "reset")[len(refused) % 2]

        proxy.trouble = away
        on_s3.go()
        until(lambda: len(refused) >= 4, "some attempts", LONG)
        status = until(lambda: _over(on_s3, job), "the outcome, while results are on their way", LONG)
        assert status["finished"] is None, "a job is final when its results are up"
        assert [node["sentence"] for node in status["nodes"]] == ["sending results"]
        if victim != "nobody":
            pid = on_s3.supervisor(job) if victim == "supervisor" else on_s3.agent(job, "0")
            os.kill(pid, signal.SIGKILL)
            count = len(refused)
            until(lambda: len(refused) >= count + 3, "more attempts", LONG)
        proxy.trouble = lambda method, target: ""
        on_s3.petctl("wait", job)
        on_s3.all_up(job)
        assert on_s3.status(job)["results"] == f"{on_s3.scene.root}/runs/{job}"


def _over(runs: Runs, job: str) -> dict[str, Any] | None:
    status = runs.status(job)
    over = (runs.directory(job) / "outcome.json").exists()
    return status if over and status["nodes"][0]["sentence"] == "sending results" else None


def test_what_cannot_be_sent_is_said_and_stays(azurite: Azurite, tmp_path: Path) -> None:
    name = f"bucket-{next(NUMBERS)}"
    for runs in _runs(Scene(azurite, azurite.make(name), tmp_path, azurite.environment())):
        job = runs.submit("--store", f"{runs.scene.root}/runs")
        runs.ready(1)
        runs.sent(job, "outputs/model/first-0")
        azurite.client().delete_container(name)
        runs.go()
        runs.petctl("wait", job)
        assert (runs.directory(job) / "outputs/model/last-0").read_text() == "last"
        status = runs.status(job)
        assert (status["state"], status["exit_code"]) == ("succeeded", 0)
        assert f"not uploaded: the container {runs.scene.root} does not exist" in status["results"]
        assert len(runs.events(job, "results")) == 1
        assert "does not exist" in runs.petctl("status", job).stdout


def test_everything_is_killed(on_s3: Runs) -> None:
    job = on_s3.submit("--store", f"{on_s3.scene.root}/runs")
    on_s3.ready(1)
    on_s3.sent(job, "outputs/model/first-0")
    on_s3.kill_all(job)
    until(lambda: on_s3.status(job)["state"] == "lost", "the job is lost", LONG)
    assert on_s3.stored(job)["outputs/model/first-0"] == 100_000
    assert (on_s3.directory(job) / "outputs/model/first-0").stat().st_size == 100_000


def test_a_killed_job_leaves_nothing_half(on_s3: Runs) -> None:
    with Proxy(on_s3.scene.server.port) as proxy:
        on_s3.scene.through(proxy)
        job = on_s3.submit("--store", f"{on_s3.scene.root}/runs")
        on_s3.ready(1)
        proxy.trouble = lambda method, target: "503"
        on_s3.petctl("cancel", "--kill", job)
        on_s3.petctl("wait", job, code=130)
        proxy.trouble = lambda method, target: ""
        assert on_s3.stored(job).get("outputs/model/first-0", 100_000) == 100_000
        assert "the user killed the job" in on_s3.status(job)["results"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
@pytest.mark.parametrize("leaves", [False, True], ids=["at the end", "before it"])
def test_a_node_on_another_machine(on_s3: Runs, leaves: bool) -> None:
    """The other machine is this one with another disk in the place of petctl's home; then that disk is gone."""
    (on_s3.folder / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    job = on_s3.submit("--store", f"{on_s3.scene.root}/runs", "-n", "1:2:2")
    on_s3.ready(1)
    join, state = on_s3.folder / "join.json", on_s3.folder / "elsewhere"
    on_s3.petctl("token", job, "--file", join)
    found = json.loads((on_s3.directory(job) / "coordinator.json").read_text())
    there = {**json.loads(join.read_text()), "locator": {"address": found["address"]}, "revive": None}
    join.write_text(json.dumps(there))
    agent = [sys.executable, "-m", "petctl.agent", "join", "--file", str(join), "--node", "far"]
    agent += ["--state-dir", str(state)]
    clean = {name: value for name, value in on_s3.scene.environ().items() if not name.startswith("AWS_")}
    far = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {on_s3.home} && exec {' '.join(agent)}"],
        env={**clean, "PETCTL_SEND_EVERY": "600" if leaves else "0.3"},
    )
    try:
        until(lambda: (on_s3.folder / "ready-2-1").exists(), "a round with the other machine", LONG)
        assert (state / "logs/round-0002/rank-1.out").exists()
        if leaves:  # nothing was sent before: all of it goes at the end
            far.send_signal(signal.SIGTERM)
        else:
            on_s3.go()
        assert far.wait(LONG) == 0
    finally:
        far.kill()
        far.wait()
    shutil.rmtree(state)
    assert not (on_s3.directory(job) / "logs/round-0002/rank-1.out").exists()
    lines = "rank 1 in round 2\n" if leaves else "rank 1 in round 2\nrank 1 ends\n"
    if not leaves:
        on_s3.petctl("wait", job)
    assert on_s3.petctl("logs", "--round", "2", "--rank", "1", job).stdout == lines
    last = lines.splitlines(keepends=True)[-1]
    assert on_s3.petctl("logs", "--round", "2", "--tail", "1", "--rank", "1", job).stdout == last
    rows = [json.loads(line) for line in on_s3.petctl("logs", "-o", "json", job).stdout.splitlines()]
    assert ("far", lines.splitlines()[-1]) in {(row["node"], row["text"]) for row in rows}
    made = {"first"} if leaves else {"first", "last"}
    assert set(on_s3.stored(job)) >= {f"outputs/model/{name}-1" for name in made}
    on_s3.go()
    on_s3.petctl("wait", job)
