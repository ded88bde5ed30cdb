"""`list` and `rm --finished` where several clusters are configured, of which some do not answer."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from pathlib import Path
from typing import Iterator

import pytest

from tests.integration.waiting import until
from tests.unit.clusters.kubernetes.servers import Handler, Server, serving, url_of

from .conftest import Petctl, Terminal

HELD = 120.0  # seconds: longer than any command of this file may take


def kubeconfig(petctl: Petctl, name: str, server: str, user: object = None) -> None:
    """Adds a Kubernetes cluster to the project's configuration."""
    path = petctl.directory / f"{name}.yaml"
    words = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(json.dumps(words))
    project = petctl.directory / "petctl.yaml"
    before = json.loads(project.read_text()) if project.exists() else {"clusters": {}}
    before["clusters"][name] = {"kind": "kubernetes", "kubeconfig": str(path)}
    project.write_text(json.dumps(before))


def job(job_id: str) -> dict[str, object]:
    """A Job that Kubernetes has given up."""
    about = {
        "name": f"{job_id}-coordinator",
        "annotations": {"petctl.dev/id": job_id},
        "creationTimestamp": "2024-01-01T00:00:00Z",
    }
    ended = {"type": "Failed", "status": "True", "reason": "Gone", "lastTransitionTime": "2024-01-01T00:01:00Z"}
    return {
        "kind": "Job",
        "metadata": about,
        "spec": {"template": {"spec": {"volumes": []}}},
        "status": {"conditions": [ended]},
    }


class Namespace:
    """The API server of a namespace with some jobs of an older petctl: what they are is in their records, and that of
    the job `slow` never comes."""

    def __init__(self, *jobs: str, slow: str = "") -> None:
        self.jobs = {f"{name}-coordinator": job(name) for name in jobs}
        self.slow, self.closed = slow, threading.Event()

    def __call__(self, request: Handler) -> None:
        place, _, _ = request.path.partition("?")
        name = place.rpartition("/")[2]
        if name == self.slow:
            self.closed.wait(HELD)
        if request.command == "DELETE":
            request.reply(self.jobs.pop(name, {}))
        elif "/jobs" in place and (name == "jobs" or name in self.jobs):
            items = list(self.jobs.values())
            request.reply({"metadata": {}, "items": items} if name == "jobs" else self.jobs[name])
        elif name in ("pods", "events"):
            request.reply({"metadata": {}, "items": []})
        else:
            request.refuse(404, "NotFound", f"{name} not found")

    @contextlib.contextmanager
    def serve(self) -> Iterator[Server]:
        with serving(self) as server:
            try:
                yield server
            finally:
                self.closed.set()


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that accepts connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_jobs_of_all_clusters_are_listed_and_silent_clusters_are_named(petctl: Petctl, silent: str) -> None:
    here = petctl.submit("true")
    petctl("wait", here)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        refused = f"http://127.0.0.1:{closed.getsockname()[1]}"
    with Namespace("imagenet-3f9k").serve() as server:
        kubeconfig(petctl, "team", url_of(server))
        kubeconfig(petctl, "away", refused)
        kubeconfig(petctl, "mute", silent)
        before = time.monotonic()
        done = petctl("list")
        assert time.monotonic() - before < HELD / 2  # the silent cluster's thread keeps nobody from ending
        rows = [line.split() for line in done.stdout.splitlines()]
        assert rows[0] == ["ID", "CLUSTER", "STATE", "NODES", "ROUND", "AGE", "COMMAND"]
        assert [row[:3] for row in rows[1:]] == [[here, "local", "succeeded"], ["imagenet-3f9k", "team", "lost"]]
        told = done.stderr.splitlines()
        assert len(told) == 2
        assert told[0].startswith("petctl: cluster away: ") and "refused" in told[0]
        assert told[1] == "petctl: cluster mute: no answer within 2 s. To ask it alone: petctl list -c mute"

        document = petctl("list", "-o", "json")
        assert [(row["id"], row["cluster"]) for row in json.loads(document.stdout)] == [
            (here, "local"),
            ("imagenet-3f9k", "team"),
        ]
        assert [json.loads(line)["cluster"] for line in document.stderr.splitlines()] == ["away", "mute"]

        assert petctl("list", "-q", "-c", "team").stdout == "imagenet-3f9k\n"
        assert petctl("list", "-q", "-c", "local").stdout == f"{here}\n"
        assert "refused" in petctl("list", "-c", "away", code=6).stderr


def test_a_cluster_that_falls_silent_half_way_shows_what_it_told(petctl: Petctl) -> None:
    with Namespace("first-2222", "second-3333", slow="second-3333").serve() as server:
        kubeconfig(petctl, "team", url_of(server))
        done = petctl("list", "-q")
    assert done.stdout == "first-2222\n"
    assert "cluster team: only 1 job listed: no answer within 2 s" in done.stderr


def test_a_cluster_of_this_machine_is_not_listed_twice(petctl: Petctl) -> None:
    here = petctl.submit("true")
    petctl("wait", here)
    (petctl.directory / "petctl.yaml").write_text("clusters: {big: {kind: local, slots: 3}}")
    done = petctl("list", "-q")
    assert (done.stdout, done.stderr) == (f"{here}\n", "")


def test_nobody_is_asked_for_a_password_while_many_clusters_are_asked(petctl: Petctl, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": "tee", "args": [str(asked)]}
    kubeconfig(petctl, "team", "https://127.0.0.1:1", {"exec": {**program, "interactiveMode": "Always"}})
    terminal = Terminal(petctl, "list")
    try:
        assert terminal.exit_code() == 0
    finally:
        terminal.close()
    assert b"needs a terminal to ask the user" in terminal.screen and b"petctl list -c team" in terminal.screen
    assert not asked.exists()


def test_rm_finished_tells_what_it_leaves(petctl: Petctl, silent: str) -> None:
    here = petctl.submit("true")
    petctl("wait", here)
    with Namespace("imagenet-3f9k", "bert-7hx2").serve() as server:
        kubeconfig(petctl, "team", url_of(server))
        kubeconfig(petctl, "mute", silent)
        done = petctl("rm", "--finished")
        assert done.stdout == f"{here}: removed\n"
        told = sorted(done.stderr.splitlines())
        assert told[0] == "petctl: 2 ended jobs on cluster team not removed; use: petctl rm --finished -c team"
        assert told[1].startswith("petctl: cluster mute: no answer within 2 s")
        document = petctl.json("rm", "--finished")
        assert document["removed"] == []
        assert {(one["id"], one["cluster"]) for one in document["kept"]} == {
            ("imagenet-3f9k", "team"),
            ("bert-7hx2", "team"),
        }
        assert not [line for line in server.requests if line.startswith("DELETE")]
        petctl("rm", "--finished", "-c", "team")
        assert petctl("list", "-q", "-c", "team").stdout == ""


def test_a_damaged_job_is_removed_and_does_not_keep_the_others(petctl: Petctl) -> None:
    damaged, whole, alone = petctl.submit("true"), petctl.submit("true"), petctl.submit("true")
    petctl("wait", damaged, whole, alone)
    for one in (damaged, alone):
        (petctl.home / "jobs" / one / "job.json").write_text("{")
        (petctl.home / "jobs" / one / "status.json").write_text("{")
    petctl("rm", alone)
    assert sorted(petctl.json("rm", "--finished")["removed"]) == sorted([damaged, whole])
    until(lambda: petctl.json("list") == [], "an empty list")
