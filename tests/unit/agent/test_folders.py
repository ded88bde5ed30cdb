"""Copies of folders: brought once, brought again only where they changed, sent without losing or removing anything."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest

from petctl.agent.data.folder_cache import Cache
from petctl.agent.data.folder_copy import Copy, Index, Known
from petctl.agent.data.folder_fetch import Fetch
from petctl.agent.data.folder_send import Sender
from petctl.agent.data.folders import arrange, bring, complaint, links, senders_of
from petctl.agent.data.parallel import together
from petctl.errors import NoRoom, NoSuchPlace, PetctlError, StoreUnreachable
from petctl.job.task import Folder
from petctl.storage.core.files import PART_SUFFIX, Depot, Entry, direct
from petctl.storage.core.grants import Grant, Grants


class Watched(Depot):
    """A depot that remembers what it was asked to move, and fails where a test wants it to."""

    def __init__(self, root: Path) -> None:
        grants = {"g": Grant("file", str(root), "", write=True), "inner": Grant("file", str(root / "inner"), "", True)}
        super().__init__(direct(Grants(grants)))
        self.fetched: list[str] = []
        self.sent: list[str] = []
        self.removed: list[str] = []
        self.fail: Callable[[str], None] = lambda path: None

    def fetch(self, grant: str, entry: Entry, target_path: str) -> None:
        self.fail(entry.path)
        super().fetch(grant, entry, target_path)
        self.fetched.append(entry.path)

    def put(self, grant: str, path: str, file_path: str, size: int) -> str:
        self.fail(path)
        self.sent.append(path)
        return super().put(grant, path, file_path, size)

    def remove(self, grant: str, path: str) -> None:
        self.removed.append(path)
        super().remove(grant, path)

    def moved_now(self) -> list[str]:
        found, self.fetched = sorted(self.fetched), []
        return found


class Scene:
    """A store that is a directory, and a cache."""

    def __init__(self, path: Path) -> None:
        self.store = path / "store"
        self.store.mkdir()
        self.cache = Cache(str(path / "cache"), 1 << 20)
        self.depot = Watched(self.store)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            path = self.store / name.replace("__", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def copy(self, location: str = "s3://b/x", writable: bool = False) -> Copy:
        return self.cache.copy(location, "", writable)

    def bring(self, job: str, copy: Copy | None = None, writable: bool = False, **options: Any) -> Copy:
        copy = copy or self.copy(writable=writable)
        seen: list[tuple[int, int]] = []
        fetch = Fetch(copy, self.cache, self.depot, "g", "s3://b/x", writable, **options)
        fetch.bring(job, lambda done, of: seen.append((done, of)))
        assert all(done <= of for done, of in seen)
        return copy


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def files(copy: Copy) -> dict[str, str]:
    root = Path(copy.files)
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


def test_the_second_start_brings_only_what_changed(scene: Scene) -> None:
    scene.write(a="1", sub__b="2", c="3")
    copy = scene.bring("job-1")
    assert (files(copy), scene.depot.moved_now()) == ({"a": "1", "sub/b": "2", "c": "3"}, ["a", "c", "sub/b"])
    copy.let_go()
    scene.write(sub__b="4")
    (scene.store / "c").unlink()
    again = scene.bring("job-2")
    assert (files(again), scene.depot.moved_now()) == ({"a": "1", "sub/b": "4"}, ["sub/b"])


def test_what_a_job_sees_does_not_change_because_another_node_starts(scene: Scene) -> None:
    scene.write(a="1")
    scene.bring("job")
    scene.write(a="2", b="new")
    assert files(scene.bring("job")) == {"a": "1"}


def test_what_is_gone_from_the_store_stays_while_others_read_it(scene: Scene) -> None:
    scene.write(a="1", b="2")
    reader = scene.bring("first")
    (scene.store / "b").unlink()
    second = scene.bring("second")
    assert files(second) == {"a": "1", "b": "2"}
    reader.let_go()
    assert files(scene.bring("third", second)) == {"a": "1"}


def test_a_file_that_a_reader_spoilt_is_brought_again(scene: Scene) -> None:
    scene.write(a="right", b="b")
    copy = scene.bring("one")
    Path(copy.files, "a").write_text("wrong")
    Path(copy.files, "b").unlink()
    assert files(scene.bring("two")) == {"a": "right", "b": "b"}


def test_what_is_not_sent_yet_is_not_overwritten(scene: Scene) -> None:
    scene.write(a="1", b="1")
    copy = scene.bring("one", writable=True)
    Path(copy.files, "a").write_text("mine, longer")
    scene.write(a="theirs", b="theirs")
    assert files(scene.bring("two", writable=True)) == {"a": "mine, longer", "b": "theirs"}
    assert Sender(copy, scene.depot, "g", False).last_look() == 1
    assert (scene.store / "a").read_text() == "mine, longer"


def test_killed_in_the_middle_it_goes_on_where_it_was(scene: Scene) -> None:
    scene.write(**{f"file{number}": "x" * 10 for number in range(20)})

    class Killed(BaseException):
        pass

    def die(path: str) -> None:
        if len(scene.depot.fetched) >= 7:
            raise Killed

    scene.depot.fail = die
    with pytest.raises(Killed):
        scene.bring("job")
    first = scene.depot.moved_now()
    scene.depot.fail = lambda path: None
    with open(Path(scene.copy().directory, "index"), "ab") as index:
        index.write(b'["file19", 10, 5')  # a line that the kill has torn
    copy = scene.bring("job")
    assert len(files(copy)) == 20
    assert set(first) & set(scene.depot.moved_now()) == set()


def test_an_empty_place_is_an_error_for_readers_only(scene: Scene) -> None:
    with pytest.raises(NoSuchPlace, match="s3://b/x is empty or does not exist"):
        scene.bring("job")
    assert files(scene.bring("job", writable=True)) == {}


def test_a_file_and_a_folder_of_one_name_are_told(scene: Scene) -> None:
    fetch = Fetch(scene.copy(), scene.cache, scene.depot, "g", "s3://b/x", False)
    with pytest.raises(PetctlError, match="a file a and a folder of the same name"):
        fetch._check_names({path: Entry(path, 1, 0.0, "") for path in ("a", "a/b/c")})


def test_nothing_is_written_through_a_link_that_a_job_made(scene: Scene, tmp_path: Path) -> None:
    scene.write(a="1")
    copy = scene.bring("one", writable=True)
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(copy.files, "latest").symlink_to(outside)
    scene.write(latest__x="2")
    with pytest.raises(PetctlError, match="is a link, made by a job"):
        scene.bring("two", writable=True)
    assert not list(outside.iterdir())


def test_a_full_disk_leaves_no_partial_file(scene: Scene) -> None:
    scene.write(a="1", b="2")

    def full(path: str) -> None:
        if path == "b":
            raise NoRoom("the disk is full: no space for b")

    scene.depot.fail = full
    with pytest.raises(NoRoom):
        scene.bring("job")
    assert set(files(scene.copy())) <= {"a"}


FULL = """
import sys
from petctl.storage.core.files import Depot, direct
from petctl.agent.data.folder_cache import Cache
from petctl.agent.data.folder_fetch import Fetch
from petctl.storage.core.grants import Grant, Grants
from petctl.errors import NoRoom

store, root = sys.argv[1:]
Cache._free = lambda self: 1 << 40  # the disk fills up after it was looked at
cache = Cache(root)
depot = Depot(direct(Grants({"g": Grant("file", store)})))
copy = cache.copy("s3://b/x", "", False)
try:
    Fetch(copy, cache, depot, "g", "s3://b/x", False).bring("job", lambda done, of: None)
except NoRoom as error:
    print(error)
print(*sorted(f"{path}={found.st_size}" for path, found in copy.walk()))
"""


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for a mount of its own")
def test_a_disk_that_really_fills_up(scene: Scene, tmp_path: Path) -> None:
    for number in range(8):
        (scene.store / f"file{number}").write_bytes(bytes(300_000))
    small = tmp_path / "small"
    small.mkdir()
    argv = f'mount -t tmpfs -o size=1m none {small} && exec {sys.executable} -c "$0" {scene.store} {small}'
    words = ["unshare", "-m", "sh", "-c", argv, FULL]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    sentence, files_ = done.stdout.splitlines()
    assert sentence.startswith("the disk is full: no space for ")
    assert all(file.endswith("=300000") for file in files_.split())
    assert PART_SUFFIX not in files_


def test_an_index_that_cannot_be_written_on_is_a_full_disk() -> None:
    with pytest.raises(NoRoom):
        Index("/dev/full").note("a", Known(1, 2, "tag"))


def test_a_full_disk_while_an_index_or_a_note_is_written_anew(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    torn = b'["a", 1, 2, "tag"]\n["b"'
    (tmp_path / "index").write_bytes(torn)
    copy = Cache(str(tmp_path)).copy("s3://b/x", "", False)
    copy.say_about(bytes=1)
    request.getfixturevalue("full_disk")
    with pytest.raises(NoRoom, match=r"the disk is full: no space for .*/index"):
        Index(str(tmp_path / "index")).load()
    assert (tmp_path / "index").read_bytes() == torn
    assert not os.path.lexists(tmp_path / "index.new")
    with pytest.raises(NoRoom, match=r"about\.json"):
        copy.say_about(bytes=2)
    assert copy.about() == {"bytes": 1}


def test_a_disk_without_room_is_told_before_anything_is_fetched(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write(a="12345")
    monkeypatch.setattr(Cache, "_free", lambda self: 3)
    with pytest.raises(NoRoom, match=r"5 bytes of s3://b/x must be fetched, but the disk of .* has only 3 bytes free"):
        scene.bring("job")
    assert scene.depot.fetched == []


# -- room --------------------------------------------------------------------------------------------------------------


def stand(scene: Scene, location: str, size: int, used: float, writable: bool = False) -> Copy:
    """A copy that some job left."""
    scene.store.joinpath("only").write_bytes(bytes(size))
    copy = scene.cache.copy(location, "", writable)
    Fetch(copy, scene.cache, scene.depot, "g", location, writable).bring("earlier", lambda done, of: None)
    copy.let_go()
    os.utime(copy.used_file, (used, used))
    return copy


def test_the_least_recently_used_copy_goes_first(scene: Scene) -> None:
    old, older, used = (
        stand(scene, f"s3://b/{n}", 300_000, t) for n, t in (("old", 200), ("older", 100), ("used", 50))
    )
    with used.locked():
        used.use()
    new = stand(scene, "s3://b/new", 400_000, 300)
    assert {state.location for state in scene.cache.states()} == {"s3://b/old", "s3://b/used", "s3://b/new"}
    assert [Path(copy.files).exists() for copy in (older, old, new)] == [False, True, True]


def test_a_copy_with_unsent_files_never_goes(scene: Scene) -> None:
    copy = stand(scene, "s3://b/out", 600_000, 100, writable=True)
    Path(copy.files, "result").write_text("nowhere else")
    with pytest.raises(NoRoom, match="other jobs or files not uploaded yet use"):
        stand(scene, "s3://b/new", 600_000, 200)
    assert scene.cache.clear() == (0, 0)
    Sender(copy, scene.depot, "g", False).last_look()
    assert scene.cache.clear()[0] == 1


def test_a_folder_above_the_limit_is_told_before_it_is_fetched(scene: Scene) -> None:
    scene.store.joinpath("big").write_bytes(bytes(2 << 20))
    with pytest.raises(NoRoom, match=r"s3://b/x has 2 MiB.*limited to 1 MiB.*cache:"):
        scene.bring("job")
    assert scene.depot.fetched == []


def test_what_a_killed_evictor_left_is_swept(scene: Scene) -> None:
    gone = Path(scene.cache.root, ".gone-abc-1")
    gone.mkdir(parents=True)
    stand(scene, "s3://b/x", 10, 1)
    assert not gone.exists()


HOLDS = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_SH)
print("holds", flush=True)
sys.stdin.read()
"""


def test_a_copy_in_use_by_another_process_is_safe(scene: Scene) -> None:
    copy = stand(scene, "s3://b/x", 10, 1)
    words = [sys.executable, "-c", HOLDS, copy.used_file]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert [state.in_use for state in scene.cache.states()] == [True]
        assert scene.cache.clear() == (0, 0)
        process.kill()
    assert scene.cache.clear() == (1, 10)


# -- the way up --------------------------------------------------------------------------------------------------------


def test_files_go_up_when_they_rest(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.write(old="1")
    copy = scene.bring("job", writable=True)
    sender = Sender(copy, scene.depot, "g", False)
    result, growing = Path(copy.files, "run/result"), Path(copy.files, "log")
    result.parent.mkdir()
    result.write_text("done")
    growing.write_text("1")
    assert sender.look() == 0
    growing.write_text("12")
    assert (sender.look(), scene.depot.sent) == (1, ["run/result"])
    monkeypatch.setattr("petctl.agent.data.folder_send.CHANGING", 0.0)  # it has changed for long enough
    growing.write_text("123")
    assert (sender.look(), scene.depot.sent) == (1, ["run/result", "log"])
    growing.write_text("1234")
    Path(copy.files, "old").unlink()
    assert sender.last_look() == 1
    assert {path.name: path.read_text() for path in scene.store.rglob("*") if path.is_file()} == {
        "old": "1",
        "result": "done",
        "log": "1234",
    }
    assert sender.last_look() == 0


def test_a_store_that_is_away_costs_time_and_nothing_else(scene: Scene) -> None:
    copy = scene.bring("job", writable=True)
    Path(copy.files, "a").write_text("1")
    sender = Sender(copy, scene.depot, "g", True)

    def away(path: str) -> None:
        raise StoreUnreachable("s3://b: no answer")

    scene.depot.fail = away
    assert complaint("out", sender.last_look) == (
        "cannot upload all of the folder out: s3://b: no answer; the rest stays on this machine"
    )
    scene.depot.fail = lambda path: None
    assert complaint("out", sender.look) == "" and (scene.store / "a").read_text() == "1"


def test_what_was_sent_is_not_brought_again(scene: Scene) -> None:
    copy = scene.bring("one", writable=True)
    Path(copy.files, "result").write_text("done")
    Sender(copy, scene.depot, "g", False).last_look()
    scene.bring("two", writable=True)
    assert scene.depot.fetched == []


def test_sync_removes_what_it_knew_and_nothing_else(scene: Scene) -> None:
    scene.write(brought="1", kept="1")
    copy = scene.bring("job", writable=True)
    sender = Sender(copy, scene.depot, "g", True)
    scene.write(theirs="somebody else's")
    Path(copy.files, "brought").unlink()
    sender.look()
    assert scene.depot.removed == []  # it may be about to be written anew
    sender.look()
    assert scene.depot.removed == ["brought"]
    shutil.rmtree(copy.files)
    with pytest.raises(PetctlError, match="its files stay in the store"):
        sender.last_look()
    assert sorted(path.name for path in scene.store.iterdir()) == ["kept", "theirs"]


def test_a_removal_before_a_crash_is_not_guessed(scene: Scene) -> None:
    scene.write(a="1")
    copy = scene.bring("one", writable=True)
    Path(copy.files, "a").unlink()
    again = scene.bring("two", writable=True)
    Sender(again, scene.depot, "g", True).last_look()
    assert (scene.store / "a").exists() and files(again) == {"a": "1"}


def test_names_that_no_store_takes_do_not_stop_the_others(scene: Scene) -> None:
    copy = scene.bring("job", writable=True)
    Path(copy.files, "bad\udcff").touch()
    Path(copy.files, "good").write_text("1")
    Path(copy.files, "link").symlink_to("/etc/passwd")
    os.mkfifo(Path(copy.files, "pipe"))
    with pytest.raises(PetctlError, match="not UTF-8"):
        Sender(copy, scene.depot, "g", False).last_look()
    assert scene.depot.sent == ["good"]


def test_a_file_that_cannot_be_read_does_not_stop_the_others(scene: Scene) -> None:
    copy = scene.bring("job", writable=True)
    for name in "abcdefghij":
        Path(copy.files, name).write_text(name)

    def closed(path: str) -> None:
        if path == "a":
            raise PetctlError("a: Permission denied")

    scene.depot.fail = closed
    with pytest.raises(PetctlError, match="a: Permission denied"):
        Sender(copy, scene.depot, "g", False).last_look()
    assert sorted(scene.depot.sent) == list("bcdefghij")


def test_a_file_that_never_rests_is_told(scene: Scene) -> None:
    copy = scene.bring("job", writable=True)
    growing = Path(copy.files, "log")
    growing.write_text("1")

    def grow(path: str) -> None:
        growing.write_text(growing.read_text() + "1")

    scene.depot.fail = grow
    with pytest.raises(PetctlError, match="log keeps changing"):
        Sender(copy, scene.depot, "g", False).last_look()
    assert (scene.store / "log").read_text().startswith("1")


def test_two_jobs_write_to_one_copy(scene: Scene) -> None:
    one, other = scene.bring("one", writable=True), scene.bring("other", writable=True)
    assert one.files == other.files
    first, second = Sender(one, scene.depot, "g", True), Sender(other, scene.depot, "g", True)
    Path(one.files, "a").write_text("1")
    assert (first.last_look(), second.last_look()) == (1, 0)
    Path(other.files, "b").write_text("2")
    assert (second.last_look(), first.last_look()) == (1, 0)
    assert sorted(path.name for path in scene.store.iterdir()) == ["a", "b"]


def test_only_one_process_sends(scene: Scene) -> None:
    copy = scene.bring("job", writable=True)
    Path(copy.files, "a").write_text("1")
    sender = Sender(copy, scene.depot, "g", False)
    descriptor = os.open(f"{copy.directory}.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert sender.look() == 0 and sender.look() == 0
    os.close(descriptor)
    assert sender.last_look() == 1


# -- the rest ----------------------------------------------------------------------------------------------------------


def test_a_folder_in_a_folder_is_a_link_there(scene: Scene, tmp_path: Path) -> None:
    scene.write(a="1", voc__hidden="not this one", inner__b="2")
    shared = tmp_path / "shared"
    shared.mkdir()
    folders = [
        Folder("data", "s3://b/data", grant="g"),
        Folder("data/voc", "s3://b/inner", mode="rw", grant="inner"),
        Folder("models", str(shared), directory=str(shared)),
    ]
    arranged = arrange(folders, scene.cache)
    for one in arranged:
        bring(one, "job", scene.cache, scene.depot, lambda path, done, of: None, lambda: False)
    places = links(arranged)
    assert set(places) == {"data", "models"} and places["models"] == str(shared)
    assert Path(places["data"], "a").read_text() == "1"
    assert [path.name for path in Path(places["data"], "voc").iterdir()] == ["b"]
    assert list(senders_of(arranged, scene.depot, lambda: False)) == ["data/voc"]
    plain = arrange(folders[:1], scene.cache)
    assert links(plain)["data"] != places["data"]  # without the inner one it is another copy


def test_a_directory_that_another_machine_has_is_told(scene: Scene) -> None:
    (one,) = arrange([Folder("models", "/nowhere", directory="/nowhere")], scene.cache)
    with pytest.raises(
        PetctlError, match="the folder models is the directory /nowhere, which does not exist on this machine"
    ):
        bring(one, "job", scene.cache, scene.depot, lambda path, done, of: None, lambda: False)


def test_the_index_survives_other_writers(tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    one, other = Index(path), Index(path)
    one.note("a", Known(1, 2, "t"))
    other.load()
    other.note("b", Known(3, 4, "u"))
    other.note("a", None)
    one.load()
    assert (one.get("a"), one.get("b")) == (None, Known(3, 4, "u"))
    for number in range(3000):
        one.note("b", Known(number, 0, ""))
    one.load()
    fresh = Index(path)
    fresh.load()
    assert fresh.get("b") == Known(2999, 0, "")
    assert len(Path(path).read_text().splitlines()) < 10
    assert json.loads(Path(path).read_text()) == ["b", 2999, 0, ""]


def test_the_first_error_ends_the_work() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 3:
            raise ValueError("third")
        done.append(number)

    with pytest.raises(ValueError, match="third"):
        together(work, range(10_000), 2)
    assert len(done) < 10_000
