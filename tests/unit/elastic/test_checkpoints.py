"""When checkpoints are written, that they never delay a step, and what a cold start goes on from. Without torch."""

from __future__ import annotations

import collections
import datetime
import threading
from pathlib import Path
from typing import Any

import pytest

from petctl.elastic.checkpoints import checkpoints, saved
from petctl.elastic.checkpoints.checkpoints import Checkpoints, checkpoint
from petctl.elastic.snapshots.commits import Mark
from petctl.elastic.state import State
from petctl.errors import UsageError

DEADLINE = 20.0


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under plain python."""
    for name in ("RANK", "PETCTL_EPOCH", "PETCTL_ROUND", "PETCTL_CHECKPOINT_DIR", "TORCHELASTIC_RESTART_COUNT"):
        monkeypatch.delenv(name, raising=False)


def place(monkeypatch: pytest.MonkeyPatch, epoch: int, round_number: int, rank: int = 0) -> None:
    monkeypatch.setenv("PETCTL_EPOCH", str(epoch))
    monkeypatch.setenv("PETCTL_ROUND", str(round_number))
    monkeypatch.setenv("RANK", str(rank))


def train(directory: Path, steps: int, **options: Any) -> State:
    """A State after so many commits from its newest checkpoint on, all of them written down."""
    state = State(step=0, seen=[])
    kept = checkpoint(state, **{"every": 1, "directory": str(directory), **options})
    assert kept is not None
    kept.beginning(state)
    for _ in range(steps):
        state.step += 1
        state.seen.append(state.step)
        state.commit()
        assert kept.flush(DEADLINE)
    return state


def test_a_cold_start_goes_on_from_the_newest(tmp_path: Path) -> None:
    train(tmp_path, 4)
    state = train(tmp_path, 0)
    assert (state.step, state.seen, state.commits) == (4, [1, 2, 3, 4], 4)


def test_the_last_ones_are_kept(tmp_path: Path) -> None:
    train(tmp_path, 6, keep=2)
    assert saved.marks(tmp_path) == [Mark(0, 0, 6), Mark(0, 0, 5)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-0-round-0-step-5", "epoch-0-round-0-step-6"]


def test_every_so_many_commits_and_at_the_planned_end(tmp_path: Path) -> None:
    state = train(tmp_path, 7, every=3)
    assert [mark.step for mark in saved.marks(tmp_path)] == [6, 3]
    kept = checkpoint(state, every=100, directory=str(tmp_path))
    assert kept is not None
    kept.parking(state, final=True)  # it returns when the checkpoint is there
    assert saved.marks(tmp_path)[0].step == 7


def test_every_so_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    state = State(step=0)
    kept = checkpoint(state, every="5m", directory=str(tmp_path))
    assert kept is not None
    for seconds in (100.0, 199.0, 1.0, 299.0, 1.0):  # it is time after the third and after the fifth
        now += seconds
        state.commit()
        kept.flush()
    assert [mark.step for mark in saved.marks(tmp_path)] == [5, 3]


def test_only_rank_0_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, 1, 1, rank=1)
    train(tmp_path, 3)
    assert saved.marks(tmp_path) == []


def test_a_late_write_of_an_older_round_never_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place(monkeypatch, 1, 3)
    train(tmp_path, 5)
    place(monkeypatch, 2, 4)
    train(tmp_path, 1)
    place(monkeypatch, 1, 9)  # cut off, and far ahead in steps and rounds
    late = State(step=0, seen=[])
    kept = checkpoint(late, every=1, directory=str(tmp_path))
    assert kept is not None
    for _ in range(50):
        late.commit()
    kept.flush(DEADLINE)
    assert saved.marks(tmp_path)[0] == Mark(2, 4, 6)
    place(monkeypatch, 3, 10)
    assert train(tmp_path, 0).step == 6


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "manifest cut", "manifest gone", "manifest of no sense"])
def test_a_torn_one_is_passed_over(tmp_path: Path, damage: str, capfd: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, 2)
    newest = tmp_path / str(Mark(0, 0, 2))
    victim = newest / (saved.MANIFEST if damage.startswith("manifest") else "seen.pkl")
    data = victim.read_bytes()
    if damage.endswith("gone"):
        victim.unlink()
    elif damage.endswith("cut"):
        victim.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        victim.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    else:
        victim.write_text("[]")
    assert train(tmp_path, 0).step == 1
    assert "skipping the checkpoint epoch-0-round-0-step-2" in capfd.readouterr().err


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    train(tmp_path, 1)
    left = tmp_path / ".writing-epoch-0-round-0-step-2-0123abcd"
    left.mkdir()
    (left / "seen.pkl").write_bytes(b"half")
    newer = tmp_path / ".writing-epoch-0-round-1-step-2-0123abcd"  # somebody of a newer round is at work there
    newer.mkdir()
    assert train(tmp_path, 1).step == 2
    assert not left.exists() and newer.exists()


def test_the_draft_of_a_claim_whose_writer_was_killed_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = {epoch: tmp_path / f"..epoch-{epoch}.0123abcd.4711" for epoch in (1, 2, 3)}
    for draft in drafts.values():
        draft.write_text("")
    place(monkeypatch, 2, 1)
    train(tmp_path, 1)
    assert [epoch for epoch, draft in drafts.items() if draft.exists()] == [3], "somebody newer is at work there"
    drafts[1].write_text("")
    saved.claim(tmp_path, 2, 0)
    assert not drafts[1].exists()


class SlowDisk:
    """Writes only when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.may_go_on = threading.Event(), threading.Event()
        self.written: list[int] = []
        write = saved.write

        def slowly(directory: Path, mark: Mark, snapshot: Any) -> None:
            self.began.set()
            assert self.may_go_on.wait(DEADLINE)
            write(directory, mark, snapshot)
            self.written.append(mark.step)

        monkeypatch.setattr(saved, "write", slowly)


def test_a_slow_disk_delays_no_step_and_the_newest_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SlowDisk(monkeypatch)
    state = State(step=0, data=list(range(10)))
    kept = checkpoint(state, every=1, directory=str(tmp_path))
    assert kept is not None
    state.step = 1
    state.commit()
    assert disk.began.wait(DEADLINE)
    for step in range(2, 101):
        state.step = step
        state.data[0] = step
        state.commit()  # would stand here for ever
    assert not kept.flush(0.01)
    disk.may_go_on.set()
    assert kept.flush(DEADLINE)
    assert disk.written == [1, 100]
    first = saved.read(tmp_path, Mark(0, 0, 1))
    assert first.mark.step == 1 and b"\x01" in first.copies["step"].skeleton, "written as it was at its commit"


def test_a_write_that_fails_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "file"
    place.write_text("no directory")
    train(place, 3)
    place.unlink()
    said = capfd.readouterr().err
    assert said.count("was not written") == 1 and "Training continues" in said
    assert train(place, 2).step == 2
    assert [mark.step for mark in saved.marks(place)] == [2, 1]


@pytest.mark.parametrize("every", [0, -1, "", "5 days", "often", 2.5, None])
def test_an_interval_of_no_sense_is_refused(tmp_path: Path, every: Any) -> None:
    with pytest.raises(UsageError, match="every="):
        checkpoint(State(), every=every, directory=str(tmp_path))


def test_nothing_to_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keep=0"):
        checkpoint(State(), every=1, keep=0, directory=str(tmp_path))


def test_without_a_directory_it_says_so_and_trains(capfd: pytest.CaptureFixture[str]) -> None:
    state = State(step=0)
    assert checkpoint(state, every=1) is None
    state.commit()
    assert "no checkpoints are written" in capfd.readouterr().err


def test_the_jobs_own_directory_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(checkpoints.CHECKPOINT_DIR, str(tmp_path))
    state = State(step=0)
    kept = checkpoint(state, every=1)
    state.commit()
    assert kept is not None and kept.flush(DEADLINE)
    assert saved.marks(tmp_path) == [Mark(0, 0, 1)]


def test_other_parts_than_the_checkpoints_are_refused(tmp_path: Path) -> None:
    train(tmp_path, 1)
    state = State(epoch=0)
    kept = checkpoint(state, every=1, directory=str(tmp_path))
    assert kept is not None
    with pytest.raises(UsageError, match="a checkpoint, seen, step"):
        kept.beginning(state)


def test_who_went_on_from_an_older_state_removes_nothing_that_is_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(monkeypatch, 1, 2)
    train(tmp_path, 40, keep=3)
    place(monkeypatch, 1, 3)
    behind = State(step=0, seen=[])
    kept = checkpoint(behind, every=1, keep=3, directory=str(tmp_path))
    assert kept is not None
    for number in range(1, 6):
        behind.step = number
        behind.commit()
        assert kept.flush(DEADLINE)
    assert [mark.step for mark in saved.marks(tmp_path)] == [5, 4, 3, 40, 39, 38]


def test_a_round_that_was_replaced_writes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place(monkeypatch, 2, 5)
    train(tmp_path, 3)
    place(monkeypatch, 1, 4)
    late = State(step=0, seen=[])
    kept = checkpoint(late, every=1, directory=str(tmp_path))
    assert kept is not None
    late.commit()
    assert kept.flush(DEADLINE)
    assert all(mark[:2] == (2, 5) for mark in saved.marks(tmp_path))
    assert "round 5 (epoch 2) has written" in capfd.readouterr().err


def begun(directory: Path) -> tuple[State, Checkpoints]:
    """A State that has entered a round; nothing is committed yet."""
    state = State(step=0, seen=[])
    kept = checkpoint(state, every=1, directory=str(directory))
    assert kept is not None
    kept.beginning(state)
    kept.entered(state)
    return state, kept


def test_an_older_epoch_writes_no_more_once_a_newer_one_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place(monkeypatch, 1, 4)
    cut_off, old = begun(tmp_path)
    place(monkeypatch, 2, 5)
    state, new = begun(tmp_path)
    place(monkeypatch, 1, 4)
    cut_off.commit()
    assert old.flush(DEADLINE)
    assert saved.marks(tmp_path) == []
    assert "workers of a newer coordinator (epoch 2) train already" in capfd.readouterr().err
    place(monkeypatch, 2, 5)
    state.commit()
    assert new.flush(DEADLINE)
    assert [mark[:2] for mark in saved.marks(tmp_path)] == [(2, 5)]


def test_a_job_is_not_shut_out_by_an_earlier_one_that_left_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETCTL_JOB_ID", "first")
    place(monkeypatch, 3, 12)
    begun(tmp_path)
    monkeypatch.setenv("PETCTL_JOB_ID", "second")
    for number in (1, 2):  # workers that are started later count as the first ones did
        place(monkeypatch, number, number)
        state, kept = begun(tmp_path)
    state.commit()
    assert kept.flush(DEADLINE)
    assert saved.marks(tmp_path) == [Mark(5, 2, 1)]


def test_a_new_job_writes_above_what_an_earlier_one_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETCTL_JOB_ID", "first")
    place(monkeypatch, 3, 12)
    train(tmp_path, 5)
    monkeypatch.setenv("PETCTL_JOB_ID", "second")
    place(monkeypatch, 1, 1)
    assert train(tmp_path, 2).step == 7
    assert saved.marks(tmp_path)[0] == Mark(4, 1, 7), "newer than anything of the first"
    place(monkeypatch, 1, 2)
    assert train(tmp_path, 1).step == 8, "a worker of the same job, started later"
    assert saved.marks(tmp_path)[0] == Mark(4, 2, 8)


class Settings:
    """No plain value."""


def test_a_part_that_needs_pickle_is_refused_at_the_first_checkpoint(tmp_path: Path) -> None:
    state = State(step=0, settings=Settings())
    checkpoint(state, every=2, directory=str(tmp_path))
    state.commit()
    with pytest.raises(UsageError, match=r"part 'settings'.*Settings.*allow_pickle=True"):
        state.commit()
    trusted = State(step=0, settings=Settings())
    kept = checkpoint(trusted, every=1, directory=str(tmp_path), allow_pickle=True)
    assert kept is not None
    trusted.commit()
    assert kept.flush(DEADLINE) and len(saved.marks(tmp_path)) == 1


def test_a_checkpoint_that_would_run_code_is_not_loaded(tmp_path: Path) -> None:
    state = State(step=0, settings=Settings())
    kept = checkpoint(state, every=1, directory=str(tmp_path), allow_pickle=True)
    assert kept is not None
    state.commit()
    assert kept.flush(DEADLINE)
    fresh = State(step=0, settings=Settings())
    careful = checkpoint(fresh, every=1, directory=str(tmp_path))
    assert careful is not None
    with pytest.raises(
        UsageError, match=r"settings.pkl is not loaded, because loading could run code.*allow_pickle=True"
    ):
        careful.beginning(fresh)
    trusting = checkpoint(fresh, every=1, directory=str(tmp_path), allow_pickle=True)
    assert trusting is not None
    trusting.beginning(fresh)
    assert fresh.commits == 1


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x", b"y"], (1, 2): {3}},
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
        Path("/data"),
        complex(1, 2),
        range(3),
    ],
)
def test_plain_values_need_no_trust(tmp_path: Path, value: Any) -> None:
    state = State(value=value)
    kept = checkpoint(state, every=1, directory=str(tmp_path))
    assert kept is not None
    state.commit()
    assert kept.flush(DEADLINE)
    fresh = State(value=None)
    again = checkpoint(fresh, every=1, directory=str(tmp_path))
    assert again is not None
    again.beginning(fresh)
    assert fresh.value == value
