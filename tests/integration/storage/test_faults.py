"""Resets, 503s, answers cut short, a server that restarts: a transfer gets through, and what arrives is right."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from petctl.errors import NoRoom, StoreError, StoreUnreachable
from petctl.storage.stores import signed_requests
from tests.integration.storage.conftest import Proxy, Scene, fill, tree
from tests.integration.storage.proxy import Passed

MIB = 1 << 20
SIZES = {**{f"small/{number}": 2000 + number for number in range(30)}, "large": 20 * MIB + 1}


def every(count: int, fault: str, most: int) -> object:
    """A fault for every so many requests, until there were enough of them."""
    numbers = itertools.count(1)

    def trouble(method: str, target: str) -> str:
        number = next(numbers)
        return fault if number % count == 0 and number // count <= most else ""

    return trouble


@pytest.mark.parametrize("fault", ["503", "reset", "half"])
def test_trouble_on_the_way_is_overcome(scene: Scene, proxy: Proxy, fault: str) -> None:
    source = fill(scene.folder / "source", SIZES)
    proxy.trouble = every(3, fault, 12)  # type: ignore[assignment]
    scene.copy(source, f"{scene.root}/x")
    proxy.trouble = every(3, fault, 12)  # type: ignore[assignment]
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


@pytest.mark.parametrize("name", ["small/7", "large"])
def test_a_bit_that_flips_on_the_way_is_noticed_and_not_kept(scene: Scene, proxy: Proxy, name: str) -> None:
    source = fill(scene.folder / "source", {name: SIZES[name]})
    scene.copy(source, f"{scene.root}/x")
    turns = itertools.count()
    proxy.trouble = lambda method, target: "flip" if name in target and method == "GET" and not next(turns) else ""
    with pytest.raises(StoreError, match="does not match its checksum"):
        scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert not (scene.folder / "back" / name).exists()
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


# SeaweedFS takes half a minute until it is itself again.
@pytest.mark.parametrize("scene", ["az", pytest.param("s3", marks=pytest.mark.slow)], indirect=True)
def test_a_server_that_restarts_in_the_middle(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", SIZES)
    turns = itertools.count(1)
    middle = threading.Event()

    def notice(passed: Passed) -> None:
        if passed.method == "PUT" and next(turns) == 10:
            middle.set()

    proxy.after = notice
    with ThreadPoolExecutor(1) as pool:
        copying = pool.submit(scene.copy, source, f"{scene.root}/x")
        assert middle.wait(60)
        scene.server.stop()  # in this thread, since the server dies with the thread that started it
        scene.server.start()
        copying.result(60)
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def test_a_store_that_stays_away_ends_the_transfer_with_a_sentence(
    scene: Scene, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed_requests, "PATIENCE", 0.5)
    source = fill(scene.folder / "source", SIZES)
    proxy.trouble = lambda method, target: "503" if method in ("PUT", "POST") else ""
    with pytest.raises(StoreUnreachable, match="keeps answering 503"):
        scene.copy(source, f"{scene.root}/x")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=12m", "petctl-test", str(folder)]
    mounted = subprocess.run(words, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.root
def test_a_full_disk_is_known_at_the_start_and_room_lets_it_go_on(scene: Scene, proxy: Proxy, disk: Path) -> None:
    source = fill(scene.folder / "source", {"large": 20 * MIB})
    scene.copy(source, f"{scene.root}/x")
    proxy.take()
    with pytest.raises(NoRoom, match="the disk is full"):
        scene.copy(f"{scene.root}/x", disk / "back")
    assert not (disk / "back" / "large").exists()
    assert sum(one.received for one in proxy.take()) < MIB, "it was fetched although there is no room for it"
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    scene.copy(f"{scene.root}/x", disk / "back")
    assert tree(disk / "back") == tree(source)
