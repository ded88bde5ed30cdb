"""A job's code in its store: sent once, fetched by nodes of other machines, found again by a resubmit elsewhere."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.conftest import PATIENCE, Petctl
from tests.integration.storage.conftest import running
from tests.integration.storage.proxy import Proxy
from tests.integration.storage.servers import Azurite, SeaweedFS
from tests.integration.waiting import until

SAYS = "import part; print('says', part.WORD)\n"
WAITS = """
import os, pathlib, time
print("waits", flush=True)
while not pathlib.Path(os.environ["GO"]).exists():
    time.sleep(0.02)
"""
NUMBERS = itertools.count(1)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")


@pytest.fixture(scope="module", params=[SeaweedFS, Azurite], ids=["s3", "az"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    yield from running(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def oldest_python() -> str:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = sorted(versions.glob("3.9.*/bin/python"))
    if not found:
        pytest.skip("no Python 3.9 here")
    return str(found[-1])


class Store:
    """A fresh bucket of a real server, behind a proxy that counts."""

    def __init__(self, server: Any, proxy: Proxy, bucket: str) -> None:
        self.proxy, self.location = proxy, f"{server.make(bucket)}/runs"
        self._server, self._bucket = server, bucket

    def moved(self, method: str) -> int:
        """How often code went up (PUT) or down (GET) since the last question."""
        return sum(one.method == method and one.path.endswith("/code.tar.gz") for one in self.proxy.take())

    def spoil(self, identity: str) -> None:
        """Puts something else in the place of a snapshot."""
        name, client = f"runs/code/{identity}/code.tar.gz", self._server.client()
        if isinstance(self._server, SeaweedFS):
            client.put_object(Bucket=self._bucket, Key=name, Body=b"something else")
        else:
            client.get_blob_client(self._bucket, name).upload_blob(b"something else", overwrite=True)


@pytest.fixture
def store(server: Any, petctl: Petctl) -> Iterator[Store]:
    """Beside a little project, from which petctl reaches it."""
    petctl.directory /= "project"
    petctl.directory.mkdir()
    petctl.script("part.py", "WORD = 'old'\n")
    petctl.script("says.py", SAYS)
    petctl.script("waits.py", WAITS)
    petctl.script("petctl.yaml", "clusters: {local: {slots: 1}}\n")
    with Proxy(server.port) as proxy:
        petctl.environment.update(server.environment(proxy.url))
        yield Store(server, proxy, f"code-{next(NUMBERS)}")


def waiting(petctl: Petctl, store: Store) -> tuple[str, Path]:
    """A job that has room for another node, and the file that lets it go on."""
    go = petctl.directory.parent / "go"
    job = petctl.submit("-e", f"GO={go}", "-n", "1:2:2", "--store", store.location, "waits.py")
    petctl.follow_until(job, "waits")
    return job, go


def run_far(petctl: Petctl, store: Store, job: str, go: Path, python: str) -> None:
    """Another machine joins and gets the code somehow; then the store is well again, and the job ends."""
    state = petctl.directory.parent / "elsewhere"
    with petctl.far_node(job, state, python) as far:
        until(lambda: list(state.glob("logs/round-*/rank-1.out")), "a worker on the other machine")
        store.proxy.trouble = lambda method, target: ""
        go.touch()
        petctl("wait", job)
        assert far.wait(PATIENCE) == 0
    (copy,) = state.glob("code/*/part.py")
    assert copy.read_text() == "WORD = 'old'\n"
    assert sorted(path.suffix for path in (state / "code").iterdir()) == ["", ".files", ".lock"], (
        "the archive is left behind"
    )


def snapshot(petctl: Petctl, job: str) -> str:
    return str(json.loads((petctl.home / "jobs" / job / "job.json").read_text())["code"]["id"])


def remarks(petctl: Petctl, job: str) -> list[str]:
    lines = (petctl.home / "jobs" / job / "events.jsonl").read_text().splitlines()
    return [event["sentence"] for event in map(json.loads, lines) if event["kind"] == "remark"]


def test_unchanged_code_is_not_sent_again(petctl: Petctl, store: Store) -> None:
    first = petctl.submit("--store", store.location, "says.py")
    petctl("wait", first)
    identity = snapshot(petctl, first)
    passed = store.proxy.take()
    assert [one.path.partition("/runs/")[2] for one in passed if one.method == "PUT" and "/code/" in one.path] == [
        f"code/{identity}/code.tar.gz"
    ]
    assert not [one for one in passed if one.method == "GET" and "/code/" in one.path], "this machine has it already"
    petctl("wait", petctl.submit("--store", store.location, "says.py"))
    assert store.moved("PUT") == 0
    petctl.script("part.py", "WORD = 'new'\n")
    petctl("wait", petctl.submit("--store", store.location, "says.py"))
    assert store.moved("PUT") == 1


@pytest.mark.root
@needs_root
def test_a_node_on_another_machine_gets_it_from_the_store(petctl: Petctl, store: Store, oldest_python: str) -> None:
    """... with the oldest Python there is, and without a key."""
    job, go = waiting(petctl, store)
    store.proxy.take()
    run_far(petctl, store, job, go, oldest_python)
    assert store.moved("GET") == 1
    assert remarks(petctl, job) == []


@pytest.mark.root
@needs_root
@pytest.mark.parametrize("fault", ["away", "out of the node's reach", "spoilt"])
def test_the_coordinator_has_it_when_the_store_fails(
    petctl: Petctl, store: Store, oldest_python: str, fault: str
) -> None:
    job, go = waiting(petctl, store)
    if fault == "spoilt":
        store.spoil(snapshot(petctl, job))
    elif fault == "away":
        store.proxy.trouble = lambda method, target: "reset"
    else:
        store.proxy.trouble = lambda method, target: "503" if method == "GET" and "code.tar.gz" in target else ""
    run_far(petctl, store, job, go, oldest_python)
    (sentence,) = remarks(petctl, job)
    assert "node far: fetching the code from the coordinator instead of the store: " in sentence
    assert {"away": "no answer", "spoilt": "archive is damaged"}.get(fault, "answering 503") in sentence


def test_resubmit_in_another_home_takes_it_from_the_store(petctl: Petctl, store: Store, tmp_path: Path) -> None:
    first = petctl.submit("--store", store.location, "says.py")
    petctl("wait", first)
    petctl.script("part.py", "WORD = 'new'\n")
    other = tmp_path / "other"
    shutil.copytree(petctl.home, other, ignore=shutil.ignore_patterns("*.tar.gz", "code"))
    petctl.environment["PETCTL_HOME"] = str(other)
    store.proxy.take()
    again = petctl("resubmit", "-q", first).stdout.strip()
    petctl("wait", again)
    assert petctl("logs", again).stdout == "says old\n"
    assert store.moved("GET") == 1
    (archive,) = (other / "bundles").iterdir()
    assert archive.stat().st_mode & 0o777 == 0o444
    petctl("wait", petctl("resubmit", "-q", first).stdout.strip())
    assert store.moved("GET") == store.moved("PUT") == 0


def test_resubmit_says_when_nobody_has_it(petctl: Petctl, store: Store) -> None:
    kept = petctl.submit("--store", store.location, "says.py")
    loose = petctl.submit("--code", ".", "says.py")
    petctl("wait", kept, loose)
    identity = snapshot(petctl, kept)
    store.spoil(identity)
    (petctl.home / "bundles" / f"{identity}.tar.gz").unlink()
    for job in (kept, loose):
        (petctl.home / "jobs" / job / "code.tar.gz").unlink()
    assert "archive is damaged" in petctl("resubmit", kept, code=None).stderr
    assert not list((petctl.home / "bundles").iterdir())
    gone = petctl("resubmit", loose, code=2).stderr
    assert f"snapshot {identity[:12]}, is no longer on this machine; run today's code" in gone
    petctl("wait", petctl("resubmit", "-q", "--new-code", loose).stdout.strip())
