"""kill -9 at any moment, then the same command again: it completes, and nothing that was complete is moved again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.storage.conftest import Proxy, Scene, fill, tree
from tests.integration.storage.proxy import Passed
from tests.integration.waiting import DEADLINE, until

MIB = 1 << 20
SMALL, PARTS, KILLS = 40, 4 + 3, 3
SIZES = {**{f"small/{number:02d}": 3000 for number in range(SMALL)}, "a large one": 28 * MIB, "large/two": 17 * MIB}


def completes(passed: Passed) -> bool:
    """Whether a large object was there as a whole from then on."""
    if passed.method == "PUT":
        return passed.query.get("comp") == ["blocklist"]
    return passed.method == "POST" and "uploadId" in passed.query


def killed(
    scene: Scene,
    proxy: Proxy,
    moment: int,
    *words: object,
    must: bool = True,
    counted: Callable[[Passed], bool] = lambda passed: True,
) -> list[Passed]:
    """Starts a command and kills it when so many requests have passed; what the store has done till all is quiet."""
    left = Counter({"requests": moment})
    started = threading.Event()

    def count(passed: Passed) -> None:
        if counted(passed):
            left["requests"] -= 1
            if not left["requests"]:
                started.wait(DEADLINE)
                os.kill(process.pid, signal.SIGKILL)

    proxy.take()
    proxy.after = count
    process = subprocess.Popen(
        scene.words(*words), env=scene.environ(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=scene.folder
    )
    started.set()
    try:
        code = process.wait(60)
        assert code == -signal.SIGKILL or (code == 0 and not must), "it ended before it was killed"
    finally:
        proxy.after = lambda passed: None
        if process.poll() is None:
            process.kill()
            process.wait()
    until(lambda: not proxy.busy, "the last requests are through")
    return proxy.take()


def sent(passed: list[Passed]) -> set[tuple[str, str]]:
    """Objects and parts that the store has taken in."""
    return {(one.path, one.part) for one in passed if one.method == "PUT" and not completes(one)}


def check_up(scene: Scene, proxy: Proxy, chance: random.Random, verb: str, source: Path) -> None:
    words = (verb, source, f"{scene.root}/x")
    complete: set[tuple[str, str]] = set()
    for _ in range(KILLS):
        arrived = sent(killed(scene, proxy, chance.randrange(1, 40), *words, must=False))
        assert not complete & arrived, "sent twice"
        complete |= arrived
    scene.petctl(*words)
    arrived = sent(proxy.take())
    assert not complete & arrived, "sent twice"
    assert len(complete | arrived) == SMALL + PARTS
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def check_down(scene: Scene, proxy: Proxy, chance: random.Random, verb: str, source: Path) -> None:
    scene.copy(source, f"{scene.root}/x")
    back = scene.folder / "back"
    for turn in range(KILLS + 1):
        there = arrived_bytes(back, source)
        proxy.take()
        if turn < KILLS:
            passed = killed(scene, proxy, chance.randrange(1, 40), verb, f"{scene.root}/x", back, must=False)
        else:
            scene.petctl(verb, f"{scene.root}/x", back)
            passed = proxy.take()
        received = sum(one.received for one in passed if one.method == "GET")
        assert received <= sum(SIZES.values()) - there + MIB, "received twice"
    assert tree(back) == tree(source)


def arrived_bytes(folder: Path, source: Path) -> int:
    """Bytes that need not come again; nothing partial may have a final name."""
    here = tree(folder)
    complete = {name: content for name, content in here.items() if not name.endswith((".petctl-part", ".done"))}
    assert complete.items() <= tree(source).items(), "a partial file under its final name"
    count = sum(SIZES[name] for name in complete)
    for record in folder.rglob("*.petctl-part.done"):
        name = str(record.relative_to(folder)).removesuffix(".petctl-part.done")
        if name not in complete:
            numbers = {
                int(line.split()[0]) for line in record.read_text().splitlines(keepends=True)[1:] if line.endswith("\n")
            }
            count += sum(min(8 * MIB, SIZES[name] - number * 8 * MIB) for number in numbers)
    return count


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("verb", ["up", "down", "sync", "sync back"])
def test_killed_at_random_moments(scene: Scene, proxy: Proxy, verb: str, seed: int) -> None:
    source = fill(scene.folder / "source", SIZES)
    check = check_up if verb in ("up", "sync") else check_down
    check(scene, proxy, random.Random(f"{verb} {seed}"), verb.split()[0], source)


def test_across(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", SIZES)
    scene.copy(source, f"{scene.root}/x")
    first = sent(killed(scene, proxy, 60, "cp", f"{scene.root}/x", f"{scene.root}/y"))
    scene.petctl("cp", f"{scene.root}/x", f"{scene.root}/y")
    assert not first & sent(proxy.take()), "sent twice"
    scene.copy(f"{scene.root}/y", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def test_what_has_changed_since_the_kill_is_sent_anew(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", {"large": 40 * MIB})
    first = killed(scene, proxy, 6, "up", source, f"{scene.root}/x")
    assert sent(first)
    with open(source / "large", "r+b") as file:
        file.write(b"changed")
    scene.petctl("up", source, f"{scene.root}/x")
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def test_nothing_is_left_behind_when_it_is_done(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", {"large": 40 * MIB})
    killed(scene, proxy, 6, "up", source, f"{scene.root}/x")
    scene.petctl("up", source, f"{scene.root}/x")
    killed(scene, proxy, 6, "down", f"{scene.root}/x", scene.folder / "back")
    scene.petctl("down", f"{scene.root}/x", scene.folder / "back")
    assert [path.name for path in (scene.folder / "back").iterdir()] == ["large"]
    assert list(Path(scene.folder / "home" / "uploads").glob("*")) == []


def test_a_record_that_outlived_its_upload_goes_with_the_next_run(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", {"large": 9 * MIB})
    killed(scene, proxy, 1, "up", source, f"{scene.root}/x", counted=completes)
    records = Path(scene.folder / "home" / "uploads")
    assert len(list(records.glob("*"))) == 1, "killed right after the object was complete"
    scene.petctl("up", source, f"{scene.root}/x")
    assert not sent(proxy.take())
    assert list(records.glob("*")) == []


def test_a_record_that_outlived_its_file_goes_with_the_next_run(scene: Scene) -> None:
    source = fill(scene.folder / "source", {"large": 9 * MIB})
    scene.copy(source, f"{scene.root}/x")
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    record = scene.folder / "back" / "large.petctl-part.done"
    record.write_text("killed right after the file had its name")
    assert scene.copy(f"{scene.root}/x", scene.folder / "back").skipped == 1
    assert not record.exists()
