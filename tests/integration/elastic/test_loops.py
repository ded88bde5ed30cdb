"""Training loops as people write them, under kills: all ranks enter alike, and learn what they would have learnt."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.elastic.harness import Fleet, Nursery

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
ALWAYS = ("parameters", "optimizer", "scheduler", "scaler", "random")
ON_ENTRY = (*ALWAYS, "buffers", "gradients")


def train(directory: Path, nursery: Nursery, form: str, kills: int, killed: int = 1) -> dict[str, Any]:
    """The last line of rank 0 after 30 steps; each kill hits a rank before a backward that the other is in already."""
    directory.mkdir()
    fleet = Fleet(directory, nursery, Path(__file__).with_name("loops.py"))
    try:
        pause = directory / "pause"
        pause.write_text(f"step 7, rank {killed}" if kills else "")
        fleet.options.update(FORM=form, STEPS="30", PAUSE=str(pause))
        workers = fleet.start(2)
        for number in range(kills):
            workers[killed].line("paused")
            survivor, lost = workers[1 - killed], workers[killed]
            lost.signal(signal.SIGKILL)
            fleet.park([survivor])
            fleet.parked([survivor])
            pause.write_text(f"step {14 + 7 * number}, rank {killed}" if number + 1 < kills else "")
            workers = fleet.next([survivor], fresh=1)
            entered = [worker.line("entered") for worker in workers]
            if form == "accumulated":  # gathered gradients are a rank's own
                entered = [{**line, "gradients": None} for line in entered]
            assert [entered[0][name] for name in ON_ENTRY] == [entered[1][name] for name in ON_ENTRY]
        done = [worker.line("done") for worker in workers]
        assert [worker.ended() for worker in workers] == [0, 0]
        assert [done[0][name] for name in ALWAYS] == [done[1][name] for name in ALWAYS]
        return done[0]
    finally:
        fleet.close()


@pytest.mark.parametrize(
    ("form", "killed"), [("zero first", 1), ("zero last", 1), ("scaled", 1), ("zero first", 0), ("scaled", 0)]
)
def test_what_is_learnt_does_not_depend_on_losses(tmp_path: Path, nursery: Nursery, form: str, killed: int) -> None:
    calm, disturbed = (train(tmp_path / str(kills), nursery, form, kills, killed) for kills in (0, 2))
    assert disturbed["weight"] == pytest.approx(calm["weight"], rel=1e-6)
    assert disturbed["drawn"] == pytest.approx(calm["drawn"], rel=1e-9), "no random number is lost or drawn twice"


def test_gradients_gathered_at_a_commit_come_back(tmp_path: Path, nursery: Nursery) -> None:
    """The kill is in the second of three backward passes: what the first has gathered counts in the step."""
    calm, disturbed = (train(tmp_path / str(kills), nursery, "accumulated", kills) for kills in (0, 1))
    assert disturbed["weight"] == pytest.approx(calm["weight"], rel=1e-6)
