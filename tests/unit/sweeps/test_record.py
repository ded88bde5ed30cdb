"""The directory of a sweep."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from petctl.errors import InternalError, NotFound, PetctlError, UsageError
from petctl.sweeps.record import Limits, Point, Sweep, SweepDirectory, checked_name, create, every, find


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path))


def made(name: str = "tune", points: int = 2) -> SweepDirectory:
    sweep = Sweep(
        name=name,
        key="k",
        created=1.0,
        cluster="local",
        cwd="/",
        request="r",
        job={"script": "train.py"},
        points=[Point(values={"lr": str(number)}, job={"args": [str(number)]}) for number in range(points)],
    )
    folder = create(sweep, Limits(jobs=3), {})
    assert folder is not None
    return folder


def test_what_was_asked_for_is_read_back() -> None:
    folder = made()
    sweep = find("tune").sweep()
    assert sweep.parameters == ["lr"]
    assert sweep.job_of(2).command.words == ["train.py", "1"]
    assert folder.limits().jobs == 3
    folder.set_limits(Limits(jobs=4))
    assert find("tu").limits().jobs == 4


def test_ids_sort_as_points_do() -> None:
    assert made("a").sweep().id_of(7, 1) == "a-007"
    assert made("b", 1234).sweep().id_of(7, 2) == "b-0007-2"


def test_a_name_is_taken_once() -> None:
    sweep = made().sweep()
    assert create(sweep, Limits(), {}) is None
    assert [folder.name for folder in every()] == ["tune"]
    assert not list((Path(find("tune").path).parent).glob(".new-*"))


def test_events_come_once_and_a_torn_one_not_at_all() -> None:
    folder = made()
    assert folder.events() == ([], 0)
    folder.note("submit", point=1)
    with (folder.path / "events.jsonl").open("ab") as file:
        file.write(b'{"kind": "tor')
    events, place = folder.events()
    assert [event["kind"] for event in events] == ["submit"]
    folder.note("cancel")
    events, place = folder.events(place)
    assert [event["kind"] for event in events] == ["cancel"]
    assert folder.events(place) == ([], place)


def test_an_event_for_which_there_is_only_half_the_room_is_told_and_the_next_is_whole() -> None:
    folder = made()
    folder.note("submit", point=1)
    file, before = folder.path / "events.jsonl", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 9, before[1]))
    try:
        with pytest.raises(PetctlError, match="could not be written: No space left"):
            folder.note("cancel")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    folder.note("resume")
    assert [event["kind"] for event in folder.events()[0]] == ["submit", "resume"]


def test_what_a_killed_maker_left_is_removed_later() -> None:
    folder = made()
    old, new = (folder.path.with_name(f".new-{name}") for name in ("old", "new"))
    for path in (old, new):
        path.mkdir()
    os.utime(old, (1.0, 1.0))
    made("other")
    assert (old.exists(), new.exists()) == (False, True)


def test_one_drives() -> None:
    folder = made()
    assert not folder.driven()
    with folder.driving():
        assert folder.driven()
        with pytest.raises(PetctlError, match="another petctl"), find("tune").driving():
            pass
        lock = (folder.path / "lock").resolve()
        mine = [int(fd.name) for fd in list(Path("/proc/self/fd").iterdir()) if fd.resolve() == lock]
        children = [os.dup(number) for number in mine]
    assert not folder.driven()  # also where a child shares the lock that has not executed its program yet
    for child in children:
        os.close(child)


def test_finding() -> None:
    made("tune-a")
    made("tune-b")
    assert find("tune-a").name == find("-a").name == "tune-a"
    with pytest.raises(UsageError, match="tune-a, tune-b"):
        find("tune")
    with pytest.raises(NotFound, match="there are tune-a"):
        find("other")
    gone = find("tune-a")
    gone.remove()
    with pytest.raises(NotFound, match="was just removed"), gone.driving():
        pass
    assert [folder.name for folder in every()] == ["tune-b"]


def test_a_file_is_no_sweep() -> None:
    folder = made()
    folder.path.with_name("notes.txt").touch()
    assert [one.name for one in every()] == ["tune"]
    with pytest.raises(NotFound):
        find("notes")


def test_damage_is_told() -> None:
    folder = made()
    (folder.path / "sweep.json").write_text("{")
    with pytest.raises(InternalError, match="petctl sweep rm --keep-jobs tune"):
        folder.sweep()


def test_names_begin_ids() -> None:
    assert checked_name("tune.2-b") == "tune.2-b"
    for name in ("", "Tune", "-a", "a-", "a/b", "x" * 49, ".."):
        with pytest.raises(UsageError):
            checked_name(name)
