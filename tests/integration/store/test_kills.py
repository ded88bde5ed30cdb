"""kill -9 at any moment, then the same command again: it completes, and nothing that was complete is moved again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.integration.store.conftest import Proxy, Scene, fill, tree
from tests.integration.store.proxy import Passed
from tests.integration.waiting import until

MIB = 1 << 20
SIZES = {**{f"small/{number:02d}": 3000 for number in range(40)}, "a large one": 44 * MIB, "large/two": 17 * MIB}


def killed(scene: Scene, proxy: Proxy, moment: int, *words: object) -> list[Passed]:
    """Starts a command and kills it when so many requests have passed; what the store has done till all is quiet."""
    process = subprocess.Popen(
        scene.words(*words), env=scene.environ(), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=scene.folder
    )
    left = Counter({"requests": moment})

    def count(passed: Passed) -> None:
        left["requests"] -= 1
        if not left["requests"]:
            os.kill(process.pid, signal.SIGKILL)

    proxy.take()
    proxy.after = count
    try:
        assert process.wait(60) == -signal.SIGKILL, "it ended before it was killed"
    finally:
        proxy.after = lambda passed: None
        if process.poll() is None:
            process.kill()
            process.wait()
    until(lambda: not proxy.busy, "the last requests are through")
    return proxy.take()


def sent(passed: list[Passed]) -> set[tuple[str, str]]:
    """Objects and parts that the store has taken in."""
    commits = ("comp", ["blocklist"])
    return {(one.path, one.part) for one in passed if one.method == "PUT" and commits not in one.query.items()}


@pytest.mark.parametrize("seed", range(1))
def test_up(scene: Scene, proxy: Proxy, seed: int) -> None:
    source = fill(scene.folder / "source", SIZES)
    moment = random.Random(seed).randrange(8, 45)
    first = sent(killed(scene, proxy, moment, "up", source, f"{scene.root}/x"))
    assert first
    scene.petctl("up", source, f"{scene.root}/x")
    second = sent(proxy.take())
    assert not first & second, "sent twice"
    assert len(first | second) == 40 + 6 + 3
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


@pytest.mark.parametrize("seed", range(1))
def test_down(scene: Scene, proxy: Proxy, seed: int) -> None:
    source = fill(scene.folder / "source", SIZES)
    scene.copy(source, f"{scene.root}/x")
    back = scene.folder / "back"
    killed(scene, proxy, random.Random(seed).randrange(5, 45), "down", f"{scene.root}/x", back)
    complete = {name: sum_ for name, sum_ in tree(back).items() if not name.endswith((".petctl-part", ".done"))}
    assert complete.items() <= tree(source).items(), "a partial file under its final name"
    parts = sum(len(path.read_text().splitlines()) - 1 for path in back.rglob("*.petctl-part.done"))
    there = sum(SIZES[name] for name in complete) + max(parts - 2, 0) * 8 * MIB
    proxy.take()
    scene.petctl("down", f"{scene.root}/x", back)
    received = sum(one.received for one in proxy.take())
    assert received <= sum(SIZES.values()) - there + MIB, "received twice"
    assert tree(back) == tree(source)


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
