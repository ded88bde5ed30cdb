"""Rounds end and begin, and the workers keep their processes and their progress."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from petctl.elastic.checkpoints import saved
from tests.integration.elastic.harness import Fleet, Nursery, Worker
from tests.integration.waiting import until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(180)]


def entered_at(worker: Worker) -> int:
    return int(worker.line("entered")["entered"])


def test_a_killed_peer_costs_one_step_and_no_process(fleet: Fleet) -> None:
    survivor, lost = fleet.start(2)
    fleet.all_step([survivor, lost], 20)
    lost.signal(signal.SIGKILL)
    fleet.park([survivor])
    fleet.parked([survivor])
    reached = survivor.last_step()
    both = fleet.next([survivor], fresh=1)
    fleet.all_step(both, reached + 20)
    assert [entered_at(worker) for worker in both] == [reached, reached]
    assert both[0].line("entered")["weight"] == both[1].line("entered")["weight"]
    assert both[0].line("entered")["pid"] == survivor.pid


def test_the_loss_of_rank_0_makes_a_survivor_the_first(fleet: Fleet) -> None:
    first, *others = fleet.start(3)
    fleet.all_step(others, 10)
    first.signal(signal.SIGKILL)
    fleet.park(others)
    fleet.parked(others)
    reached = max(worker.last_step() for worker in others)
    fleet.next(others)
    fleet.all_step(others, reached + 10)
    assert [worker.line("entered")["world"] for worker in others] == [2, 2]
    assert [worker.line("entered")["resized"] for worker in others] == [[[3, 2]], [[3, 2]]]


def test_a_stopped_peer_holds_nobody_up(fleet: Fleet) -> None:
    survivor, stopped = fleet.start(2)
    fleet.all_step([survivor, stopped], 10)
    stopped.signal(signal.SIGSTOP)
    reached = survivor.last_step()
    fleet.park([survivor])
    begun = time.monotonic()
    fleet.parked([survivor])
    assert time.monotonic() - begun < 9.0  # nothing but the cut brings it back: its peer does not close anything
    fleet.next([survivor])
    survivor.step(reached + 10)


def test_the_scripts_own_groups_are_cut_too(fleet: Fleet) -> None:
    fleet.options["OWN_GROUP"] = "1"
    survivor = fleet.start(2)[0]
    survivor.step(4)
    fleet.park([survivor])
    fleet.parked([survivor])
    fleet.next([survivor])
    survivor.step(10)


def test_a_planned_change_undoes_nothing(fleet: Fleet) -> None:
    workers = fleet.start(2)
    for world in (3, 1, 2):
        fleet.all_step(workers, fleet.round * 10)
        fleet.park(workers, planned=True)
        fleet.parked(workers)
        reached = {worker.last_made() for worker in workers}
        assert len(reached) == 1, "all ranks stand at the same commit"
        staying = workers[:world]
        workers = fleet.next(staying, fresh=world - len(staying))
        fleet.all_step(workers, fleet.round * 10)
        assert {entered_at(worker) for worker in workers} == reached


def test_a_planned_change_that_does_not_come_about_becomes_an_unplanned_one(fleet: Fleet) -> None:
    survivor, stopped = fleet.start(2)
    fleet.all_step([survivor, stopped], 10)
    stopped.signal(signal.SIGSTOP)
    fleet.park([survivor, stopped], planned=True, within=0.5)
    fleet.parked([survivor])
    reached = survivor.last_step()
    fleet.next([survivor])
    survivor.step(reached + 5)
    assert entered_at(survivor) in (reached, reached + 1)  # it may have waited at a commit, or been cut in a step


def test_a_peer_lost_during_a_planned_change(fleet: Fleet) -> None:
    survivor, lost = fleet.start(2)
    fleet.all_step([survivor, lost], 10)
    lost.signal(signal.SIGSTOP)
    fleet.park([survivor, lost], planned=True, within=60)
    lost.signal(signal.SIGKILL)
    fleet.park([survivor])
    fleet.parked([survivor])
    reached = survivor.last_step()
    fleet.next([survivor])
    survivor.step(reached + 5)


def test_a_peer_lost_before_it_joined(fleet: Fleet) -> None:
    """The survivor waits for it while the group is being made, and comes back from there too."""
    survivor = fleet.start(1)[0]
    survivor.step(5)
    fleet.park([survivor], planned=True)
    fleet.parked([survivor])
    reached = survivor.last_made()
    fleet.options["STOP_BEFORE_JOINING"] = "1"
    fleet.next([survivor], fresh=1)
    fleet.park([survivor])
    fleet.parked([survivor])
    fleet.next([survivor])
    survivor.step(reached + 5)
    assert entered_at(survivor) == reached


def test_an_error_of_a_lost_peer_waits_for_the_agent(fleet: Fleet) -> None:
    survivor, lost = fleet.start(2)
    fleet.all_step([survivor, lost], 10)
    lost.signal(signal.SIGKILL)
    with pytest.raises(AssertionError, match="said no 'parked'"):
        survivor.expect("parked", 1.0)  # its collective has failed by now, and nobody told it to park
    fleet.park([survivor])
    fleet.parked([survivor])
    reached = survivor.last_step()
    fleet.next([survivor])
    survivor.step(reached + 5)


def test_an_error_that_no_agent_explains_is_the_scripts_own(fleet: Fleet) -> None:
    fleet.options["PETCTL_HEARTBEAT_LIMIT"] = "1"
    fleet.options["TIMEOUT"] = "20"  # gloo itself does not always notice: that is what agents are for
    survivor, lost = fleet.start(2)
    fleet.all_step([survivor, lost], 10)
    lost.signal(signal.SIGKILL)
    assert survivor.ended() == 1
    text = survivor.err.read_text()
    assert "Traceback" in text and "loss.backward()" in text and "gloo" in text


def test_the_scripts_own_error_goes_through_at_once(fleet: Fleet) -> None:
    fleet.options["FAIL_AT"] = "12"
    survivor, failing = fleet.start(2)
    assert failing.ended() == 1
    assert "ValueError: own mistake" in failing.err.read_text()
    assert "Traceback" in failing.err.read_text()
    fleet.park([survivor])
    fleet.parked([survivor])
    assert survivor.last_step() in (11, 12)
    fleet.options.clear()
    survivor, fresh = fleet.next([survivor], fresh=1)
    fleet.all_step([survivor, fresh], 20)


@pytest.mark.parametrize("text", ["Connection to the feature store failed", "NCCL is not what this is about"])
def test_an_error_that_only_sounds_like_a_lost_peer_is_the_scripts_own(fleet: Fleet, text: str) -> None:
    fleet.options.update(FAIL_AT="12", FAIL_WITH=text, PETCTL_HEARTBEAT_LIMIT="3600")  # no end would come in time
    survivor, failing = fleet.start(2)
    assert failing.ended() == 1
    assert f"RuntimeError: {text}" in failing.err.read_text()
    fleet.park([survivor])
    fleet.parked([survivor])


def test_who_stood_by_goes_on_from_the_newest_checkpoint(fleet: Fleet, tmp_path: Path) -> None:
    directory = tmp_path / "checkpoints"
    fleet.options.update(EVERY="10", PETCTL_CHECKPOINT_DIR=str(directory))
    first, spare = fleet.start(2)
    fleet.all_step([first, spare], 10)
    fleet.park([first, spare], planned=True)
    fleet.parked([first, spare])
    fleet.next([first])
    until(lambda: saved.marks(directory)[0].step >= 100, "a checkpoint that the other one knows nothing of")
    first.signal(signal.SIGKILL)
    first.ended()
    newest = saved.marks(directory)[0]
    fleet.next([spare])
    assert entered_at(spare) == newest.step
    spare.step(newest.step + 50)
    until(lambda: saved.marks(directory)[0].round == fleet.round, "a checkpoint of its own")
    assert min(mark.step for mark in saved.marks(directory)) > newest.step - 30, "the three newest are there"


def test_the_newest_round_wins_not_the_most_commits(fleet: Fleet) -> None:
    """Whoever trained on while it was cut off overrides nobody."""
    steady, cut_off = fleet.start(2)
    fleet.all_step([steady, cut_off], 10)
    fleet.park([steady, cut_off], planned=True)
    fleet.parked([steady, cut_off])
    for worker, steps in ((cut_off, 200), (steady, 30)):
        fleet.next([worker])
        worker.step(steps)
        fleet.park([worker], planned=True)
        fleet.parked([worker])
    assert cut_off.last_made() > steady.last_made()
    reached = steady.last_made()
    both = fleet.next([cut_off, steady])
    assert [entered_at(worker) for worker in both] == [reached, reached]


def test_training_ends_with_its_result_on_every_rank(fleet: Fleet) -> None:
    fleet.options["STEPS"] = "30"
    workers = fleet.start(3)
    for worker in workers:
        assert worker.ended() == 0, worker.err.read_text()
        assert worker.line("done")["done"] == 30
        assert worker.err.read_text() == ""


def test_a_peer_lost_at_the_very_end_is_waited_for(fleet: Fleet) -> None:
    fleet.options.update(STEPS="20", LINGER="1")
    survivor, lost = fleet.start(2)
    survivor.step(20)
    lost.line("lingers")
    lost.signal(signal.SIGKILL)
    fleet.park([survivor])
    fleet.parked([survivor])
    fleet.options["LINGER"] = ""
    both = fleet.next([survivor], fresh=1)
    for worker in both:
        assert worker.ended() == 0, worker.err.read_text()
        assert worker.line("done")["done"] == 20


def test_kills_that_are_healed_do_not_change_what_is_learnt(tmp_path: Path, nursery: Nursery) -> None:
    """The same samples in the same steps: the same weights in the end."""
    weights = []
    for kills in (0, 3):
        (tmp_path / str(kills)).mkdir()
        fleet = Fleet(tmp_path / str(kills), nursery, Path(__file__).with_name("training.py"))
        try:
            fleet.options["STEPS"] = "90"
            if kills:
                fleet.options["STEP_TIME"] = "0.02"
            workers = fleet.start(2)
            for number in range(kills):
                fleet.all_step(workers, 20 * number + 10)
                lost = workers.pop(number % 2)
                lost.signal(signal.SIGKILL)
                fleet.park(workers)
                fleet.parked(workers)
                workers = fleet.next(workers, fresh=1)
            weights.append(workers[0].line("done")["weight"])
            assert [worker.ended() for worker in workers] == [0, 0]
        finally:
            fleet.close()
    assert weights[0] == pytest.approx(weights[1], rel=1e-6)


def test_stacks_are_written_while_the_main_thread_is_stuck(fleet: Fleet, tmp_path: Path) -> None:
    survivor, stopped = fleet.start(2)
    fleet.all_step([survivor, stopped], 5)
    stopped.signal(signal.SIGSTOP)
    wanted = tmp_path / "stacks"
    survivor.send("stacks", file=str(wanted))
    until(lambda: wanted.exists() and "training.py" in wanted.read_text(), "the stacks are written")


def test_a_wrapper_in_a_cycle_does_not_disturb_the_next_round(fleet: Fleet) -> None:
    fleet.options["CYCLE"] = "1"
    survivor, lost = fleet.start(2)
    fleet.all_step([survivor, lost], 5)
    lost.signal(signal.SIGKILL)
    fleet.park([survivor])
    fleet.parked([survivor])
    reached = survivor.last_step()
    fleet.next([survivor])
    survivor.step(reached + 10)
    assert survivor.err.read_text() == ""
