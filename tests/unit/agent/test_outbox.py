"""Which files of a job are sent, when, and that none is sent twice. The store is a directory here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.data.uploader import CHANGING, Outbox, walk
from petctl.agent.logs.log_cap import punch
from petctl.agent.logs.log_files import SEGMENT, LogName, parse_segment, segment_name
from petctl.agent.node import native
from petctl.errors import Damaged
from petctl.storage.core.files import Depot, direct
from petctl.storage.core.grants import Grant, Grants

MIB = 1 << 20


class Counting(Depot):
    """Counts what goes up; `before` is called with each path."""

    def __init__(self, grants: Grants) -> None:
        super().__init__(direct(grants))
        self.put_paths: list[str] = []
        self.before: Any = lambda path: None

    def put(self, grant: str, path: str, file_path: str, size: int) -> str:
        self.put_paths.append(path)
        self.before(path)
        return super().put(grant, path, file_path, size)

    def put_bytes(self, grant: str, path: str, data: bytes) -> str:
        self.put_paths.append(path)
        return super().put_bytes(grant, path, data)

    def take(self) -> list[str]:
        taken, self.put_paths = self.put_paths, []
        return taken


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.store, self.own = folder, folder / "store", folder / "own"
        for place in (self.store, self.own, folder / "job/outputs", folder / "job/logs/round-0001"):
            place.mkdir(parents=True)
        self.outputs, self.logs = folder / "job/outputs", folder / "job/logs"
        self.log = self.logs / "round-0001/rank-0.out"
        places = {
            "store": Grant("file", str(self.store), "j/", True),
            "output:m": Grant("file", str(self.own), "", True),
        }
        self.depot = Counting(Grants(places))
        self.now = 0.0
        self.box = self.fresh()

    def fresh(self, routes: dict[str, str] | None = None) -> Outbox:
        """As a replaced agent would begin."""
        directories = (str(self.folder / "job"), str(self.outputs), str(self.logs))
        return Outbox(self.depot, *directories, routes or {"": "store", "m": "output:m"}, clock=lambda: self.now)

    def look(self, last: bool = False) -> list[str]:
        self.box.look(last)
        return self.depot.take()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_a_file_is_sent_when_it_rests(scene: Scene) -> None:
    (scene.outputs / "a").write_text("1")
    assert scene.look() == []
    assert scene.look() == ["outputs/a"]
    assert scene.look() == []
    (scene.outputs / "a").write_text("22")
    assert scene.look() == []
    assert scene.look() == ["outputs/a"]
    assert (scene.store / "j/outputs/a").read_text() == "22"


def test_a_file_that_goes_on_changing_is_sent_once_a_minute(scene: Scene) -> None:
    sent = []
    for second in range(0, 150, 10):
        scene.now = float(second)
        (scene.outputs / "a").write_text("x" * (second + 1))
        sent += [second for _ in scene.look()]
    assert sent == [int(CHANGING), 2 * int(CHANGING) + 10]  # a minute after the first change that was not sent
    assert scene.look(last=True) == ["outputs/a"]
    assert (scene.store / "j/outputs/a").stat().st_size == 141


def test_an_output_with_a_place_of_its_own(scene: Scene) -> None:
    (scene.outputs / "m/deep").mkdir(parents=True)
    (scene.outputs / "m/deep/model").write_text("1")
    (scene.outputs / "mm").write_text("2")
    assert sorted(scene.look(last=True)) == ["deep/model", "outputs/mm"]
    assert (scene.own / "deep/model").read_text() == "1"
    scene.box = scene.fresh({"m": "output:m"})  # and no store
    (scene.outputs / "other").write_text("3")
    scene.log.write_text("line\n")
    assert scene.look(last=True) == []


def test_whoever_comes_next_does_not_send_it_again(scene: Scene) -> None:
    (scene.outputs / "a").write_text("1")
    scene.log.write_bytes(b"x" * (SEGMENT + 5))
    assert len(scene.look(last=True)) == 3
    index = scene.folder / "job/.results.json"
    assert index.stat().st_mode & 0o777 == 0o600
    scene.box = scene.fresh()
    assert scene.look(last=True) == []
    index.write_text("{torn")
    scene.box = scene.fresh()
    assert len(scene.look(last=True)) == 3


def test_what_a_job_deletes_stays_in_the_store(scene: Scene) -> None:
    (scene.outputs / "a").write_text("1")
    scene.look(last=True)
    (scene.outputs / "a").unlink()
    assert scene.look(last=True) == []
    assert (scene.store / "j/outputs/a").exists()


def test_links_pipes_and_loops(scene: Scene) -> None:
    (scene.outputs / "real").mkdir()
    (scene.outputs / "real/file").write_text("1")
    (scene.outputs / "inside").symlink_to("real/file")
    (scene.outputs / "folder").symlink_to("real")
    (scene.outputs / "real/loop").symlink_to("..")
    (scene.outputs / "outside").symlink_to("/etc/passwd")
    (scene.outputs / "sideways").symlink_to(scene.logs)
    (scene.outputs / "broken").symlink_to("nowhere")
    os.mkfifo(scene.outputs / "pipe")
    assert [name for name, _ in walk(str(scene.outputs))] == ["folder/file", "inside", "real/file"]


def test_a_file_that_is_changed_while_it_is_sent_is_sent_again(scene: Scene) -> None:
    path = scene.outputs / "a"
    path.write_text("first")

    def change(sent: str) -> None:
        scene.depot.before = lambda path: None
        path.write_text("second and longer")

    scene.depot.before = change
    assert scene.look(last=True) == ["outputs/a"] * 2
    assert (scene.store / "j/outputs/a").read_text() == "second and longer"
    assert scene.box.problems == []


def test_a_file_that_never_rests_is_said_at_the_end(scene: Scene) -> None:
    path = scene.outputs / "a"
    path.write_text("x")

    def grow(sent: str) -> None:
        path.write_text(path.read_text() + "x")

    scene.depot.before = grow
    assert len(scene.look(last=True)) == 3
    assert "keeps changing" in scene.box.problems[0]


def test_trouble_with_one_file_does_not_keep_the_others(scene: Scene) -> None:
    odd = os.fsencode(scene.outputs) + b"/a-\xff"
    with open(odd, "w"):
        pass
    (scene.outputs / "b").write_text("1")
    (scene.outputs / "c").write_text("2")

    def fail(path: str) -> None:
        if path.endswith("b"):
            raise Damaged("a cut")

    scene.depot.before = fail
    scene.look(last=True)
    assert (scene.store / "j/outputs/c").exists()
    assert "UTF-8" in scene.box.problems[0]


def test_a_store_that_is_gone_is_a_problem_and_then_is_not(scene: Scene) -> None:
    (scene.outputs / "a").write_text("1")
    scene.store.rename(scene.folder / "elsewhere")
    scene.look(last=True)
    assert "does not exist on this machine" in scene.box.problems[0]
    (scene.folder / "elsewhere").rename(scene.store)
    assert scene.look() == ["outputs/a"]
    assert scene.box.problems == []


def segments(scene: Scene) -> dict[str, int]:
    found = (scene.store / "j/logs").rglob("*")
    return {str(path.relative_to(scene.store / "j/logs")): path.stat().st_size for path in found if path.is_file()}


def test_logs_go_up_in_segments(scene: Scene) -> None:
    scene.log.write_bytes(b"a" * 10)
    (scene.logs / "round-0001/rank-0.progress").write_text("1 2\n")
    (scene.logs / ".prepare.lock").touch()
    (scene.logs / "prepare-0.out").write_text("installed\n")
    assert scene.look() == ["logs/prepare-0.out.000000", "logs/round-0001/rank-0.out.000000"]
    assert scene.look() == []
    with open(scene.log, "ab") as file:
        file.write(b"b" * (2 * SEGMENT))
    assert scene.look() == [f"logs/round-0001/rank-0.out.{number:06d}" for number in range(3)]
    with open(scene.log, "ab") as file:
        file.write(b"c")
    assert scene.look() == ["logs/round-0001/rank-0.out.000002"]
    found = segments(scene)
    assert found["round-0001/rank-0.out.000001"] == SEGMENT and found["round-0001/rank-0.out.000002"] == 11
    whole = b"".join((scene.store / "j/logs" / f"round-0001/rank-0.out.{n:06d}").read_bytes() for n in range(3))
    assert whole == scene.log.read_bytes()


def test_a_cut_log_is_whole_or_absent_in_the_store(scene: Scene) -> None:
    scene.log.write_bytes(b"x" * (20 * MIB + 7))
    if not _holes(scene.folder):
        pytest.skip("this file system makes no holes")
    assert punch(str(scene.log), 8 * MIB) == 15 * MIB  # the first MiB and the newest 4 MiB and a bit stay
    scene.look()
    numbers = sorted(int(name[-6:]) for name in segments(scene))
    assert numbers == [0, *range(16, 21)]
    assert set(segments(scene).values()) == {SEGMENT, 7}


def _holes(folder: Path) -> bool:
    with open(folder / "probe", "wb") as file:
        file.write(b"x" * 8192)
        file.flush()
        return bool(native.punch_hole(file.fileno(), 0, 4096))


def test_names_of_segments() -> None:
    name = segment_name("round-0012/rank-3.err", 4)
    assert name == "round-0012/rank-3.err.000004"
    assert parse_segment(name) == (LogName(12, 3, "err"), 4)
    for other in ("prepare-0.out.000000", "round-0001/rank-0.out", "round-0001/rank-0.error.json.000000", ""):
        assert parse_segment(other) is None
