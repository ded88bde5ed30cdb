"""A node's way to a store: put, list, fetch and remove over signed URLs, on real servers, also in trouble."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.agent_archive import build_agent
from petctl.errors import Damaged, GivenUp, NoRoom, NoSuchPlace, Refused, StoreUnreachable
from petctl.storage.core import objects
from petctl.storage.core.files import PART_SUFFIX, Depot, direct
from petctl.storage.core.grants import Grant, Grants
from petctl.submission.store_grants import grant_of, pin
from tests.integration.storage.conftest import Proxy, Scene, fill, tree

MIB = 1 << 20


def grant_for(scene: Scene, below: str = "x", write: bool = True) -> Grant:
    known = scene.surroundings()
    return grant_of(pin(scene.root, known), known, write, below)


def depot_for(scene: Scene, **changes: Any) -> Depot:
    return Depot(direct(Grants({"out": replace(grant_for(scene), **changes)})))


def listed(depot: Depot) -> dict[str, int]:
    return {entry.path: entry.size for entry in depot.entries("out")}


def fetch_all(depot: Depot, target: Path) -> dict[str, str]:
    for entry in depot.entries("out"):
        path = target / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        depot.fetch("out", entry, str(path))
    return tree(target)


def test_there_and_back(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "WHOLE", 10 * MIB)
    sizes = {"small": 3000, "a b/ü+&%.txt": 1, "empty": 0, "whole": 9 * MIB, "deep/er/large": 20 * MIB}
    source = fill(scene.folder / "source", sizes)
    depot = depot_for(scene)
    assert listed(depot) == {}
    tags = {name: depot.put("out", name, str(source / name), size) for name, size in sizes.items()}
    tags["note"] = depot.put_bytes("out", "note", b"hello")
    (source / "note").write_bytes(b"hello")
    assert listed(depot) == {**sizes, "note": 5}
    assert depot.moved > 29 * MIB
    entries = {entry.path: entry for entry in depot.entries("out")}
    assert {path: entry.tag for path, entry in entries.items()} == tags
    assert fetch_all(depot, scene.folder / "back") == tree(source)
    assert (scene.folder / "back/large").exists() is False
    assert (scene.folder / "back/small").stat().st_mtime == entries["small"].modified
    # What nodes send is verified by `petctl data`, too.
    scene.copy(f"{scene.root}/x", scene.folder / "by-data")
    assert tree(scene.folder / "by-data") == tree(source)
    depot.remove("out", "note")
    depot.remove("out", "note")
    assert listed(depot) == sizes


def test_what_petctl_data_sent_is_verified(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", {"small": 3000, "large": 20 * MIB})
    scene.copy(source, f"{scene.root}/x")
    depot = depot_for(scene)
    assert fetch_all(depot, scene.folder / "back") == tree(source)


def test_a_changed_object_is_not_taken_for_the_old_one(scene: Scene) -> None:
    depot = depot_for(scene)
    depot.put_bytes("out", "a", b"first")
    (entry,) = depot.entries("out")
    depot.put_bytes("out", "a", b"other")
    with pytest.raises(Damaged):
        depot.fetch("out", entry, str(scene.folder / "a"))
    assert not list(scene.folder.glob("a*"))


def test_a_grant_ends_at_its_prefix(scene: Scene) -> None:
    depot_for(scene, prefix="xy/").put_bytes("out", "a", b"beside")
    assert listed(depot_for(scene)) == {}
    reader = depot_for(scene, prefix="xy/", write=False)
    assert listed(reader) == {"a": 6}
    with pytest.raises(Refused, match="read-only"):
        reader.put_bytes("out", "a", b"changed")
    with pytest.raises(Refused, match="points elsewhere"):
        depot_for(scene).put_bytes("out", "../xy/a", b"changed")


def test_wrong_keys_and_missing_buckets_have_their_sentences(scene: Scene) -> None:
    wrong = "d3Jvbmc=" if scene.root.startswith("az") else "wrong"
    with pytest.raises(Refused, match=r"key"):
        depot_for(scene, key=wrong).put_bytes("out", "a", b"1")
    with pytest.raises(Refused, match=r"key"):
        listed(depot_for(scene, key=wrong))
    missing = depot_for(scene, base=grant_for(scene).base + "-missing")
    with pytest.raises(NoSuchPlace, match="does not exist"):
        listed(missing)
    if scene.root.startswith("az"):  # SeaweedFS makes a bucket for whoever writes into it
        with pytest.raises(NoSuchPlace, match="does not exist"):
            missing.put_bytes("out", "a", b"1")


def test_a_store_in_trouble(scene: Scene, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "WHOLE", 10 * MIB)
    source = fill(scene.folder / "source", {"small": 3000, "large": 20 * MIB})
    answers = ["503", "reset", "half", ""] * 3
    proxy.trouble = lambda method, target: answers.pop() if answers and "list" not in target else ""
    depot = depot_for(scene)
    for name in ("small", "large"):
        depot.put("out", name, str(source / name), (source / name).stat().st_size)
    answers[:] = ["half", "503", "half", "reset", "half", "half"]
    proxy.take()
    assert fetch_all(depot, scene.folder / "back") == tree(source)


@pytest.mark.long
def test_a_store_that_stays_away(scene: Scene, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    depot = depot_for(scene)
    proxy.trouble = lambda method, target: "503"
    given_up = threading.Event()
    threading.Timer(0.3, given_up.set).start()
    with pytest.raises(GivenUp):
        Depot(direct(Grants({"out": grant_for(scene)})), given_up).put_bytes("out", "a", b"1")
    monkeypatch.setattr(objects, "PATIENCE", 0.5)
    with pytest.raises(StoreUnreachable, match="503"):
        depot.put_bytes("out", "a", b"1")


def test_an_expired_url_is_signed_anew(scene: Scene) -> None:
    grants = Grants({"out": grant_for(scene)})
    asked: list[str] = []

    def ask(call: str, arguments: dict[str, Any]) -> Any:
        answer = direct(grants)(call, arguments)
        asked.append(call)
        if len(asked) == 2 and call == "sign":
            answer = {**answer, "urls": [f"{url}spoilt" for url in answer["urls"]]}
        return answer

    Depot(ask).put_bytes("out", "a", b"1")
    assert asked == ["sign"] * 3


def test_urls_can_be_had_in_advance(scene: Scene) -> None:
    grants = Grants({"out": grant_for(scene)})
    asked: list[str] = []

    def ask(call: str, arguments: dict[str, Any]) -> Any:
        asked.append(call)
        return direct(grants)(call, arguments)

    depot = Depot(ask)
    names = [f"n{number}" for number in range(20)]
    depot.sign_ahead("out", "PUT", names)
    for name in names:
        depot.put_bytes("out", name, name.encode())
    assert asked == ["sign", "sign"]
    assert len(listed(depot)) == 20
    asked.clear()
    depot.sign_ahead("out", "GET", ["ü" * 100 + str(number) for number in range(1000)])
    assert asked == ["sign"] * 3, "a frame to the coordinator is not too long"


def test_a_file_that_becomes_shorter(scene: Scene) -> None:
    (scene.folder / "a").write_bytes(b"123")
    with pytest.raises(Damaged, match="shorter"):
        depot_for(scene).put("out", "a", str(scene.folder / "a"), 5)
    assert listed(depot_for(scene)) == {}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a device that is always full")
def test_a_full_disk_is_not_taken_for_a_cut(scene: Scene) -> None:
    depot = depot_for(scene)
    depot.put_bytes("out", "a", b"1" * 100_000)
    (entry,) = depot.entries("out")
    os.mknod(scene.folder / f"full{PART_SUFFIX}", stat.S_IFCHR | 0o600, Path("/dev/full").stat().st_rdev)
    with pytest.raises(NoRoom, match="disk is full"):
        depot.fetch("out", entry, str(scene.folder / "full"))
    assert not (scene.folder / "full").exists()


def test_more_than_one_page(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.storage.core.grants.PAGE", 3)
    depot = depot_for(scene)
    for number in range(8):
        depot.put_bytes("out", f"n{number}", b"1")
    assert sorted(listed(depot)) == [f"n{number}" for number in range(8)]


def test_a_directory_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    depot = Depot(direct(Grants({"out": Grant("file", str(tmp_path / "base"), "job/", True)})))
    source = fill(tmp_path / "source", {"small": 3000, "a/b": 10, "empty": 0})
    for name in ("small", "a/b", "empty"):
        depot.put("out", name, str(source / name), (source / name).stat().st_size)
    assert tree(tmp_path / "base" / "job") == tree(source)
    assert fetch_all(depot, tmp_path / "back") == tree(source)
    depot.remove("out", "a/b")
    assert listed(depot) == {"small": 3000, "empty": 0}
    elsewhere = Depot(direct(Grants({"out": Grant("file", str(tmp_path / "nowhere"), "job/", True)})))
    with pytest.raises(NoSuchPlace, match="on this machine"):
        elsewhere.put_bytes("out", "a", b"1")


SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from petctl.storage.core.files import Depot, direct
from petctl.storage.core.grants import Grant, Grants
depot = Depot(direct(Grants({"out": Grant(**json.loads(sys.stdin.read()))})))
data = bytes(range(256)) * 300_000
open("large", "wb").write(data)
depot.put("out", "large", "large", len(data))
depot.put_bytes("out", "small", b"hello")
for entry in depot.entries("out"):
    depot.fetch("out", entry, "back-" + entry.path)
assert open("back-large", "rb").read() == data
print(sys.version_info[:2], *sorted(entry.path for entry in depot.entries("out")))
"""


def test_the_oldest_python_with_nothing_installed(scene: Scene) -> None:
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    oldest = sorted(versions.glob("3.9.*/bin/python"))
    if not oldest:
        pytest.skip("no Python 3.9 here")
    archive = build_agent(scene.folder / "petctl-agent.pyz")
    done = subprocess.run(
        [oldest[-1], "-I", "-c", SCRIPT, str(archive)],
        input=json.dumps(asdict(grant_for(scene))),
        capture_output=True,
        text=True,
        cwd=scene.folder,
        env={"PATH": os.environ["PATH"]},
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(3, 9) large small\n"
    assert (scene.folder / "back-small").read_bytes() == b"hello"
