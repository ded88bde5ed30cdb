"""Losses while NCCL's collectives are queued on a GPU: what is committed is never garbage, and nobody stalls.

Several ranks share one GPU: each has an NCCL_HOSTID of its own, so that NCCL takes them for ranks on several machines.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.elastic.checkpoints import saved
from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.commits import Mark, Snapshot
from tests.integration.elastic.harness import Fleet, Nursery, Worker
from tests.integration.elastic.test_twice import all_end_well, calls_trained, in_call, lose

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no GPU here"),
]


@pytest.fixture
def counting(tmp_path: Path, nursery: Nursery) -> Iterator[Fleet]:
    """Workers of `counting.py`; none is left afterwards."""
    fleet = Fleet(tmp_path, nursery, Path(__file__).with_name("counting.py"))
    fleet.options.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1")
    try:
        yield fleet
    finally:
        fleet.close()


@pytest.fixture
def calling(tmp_path: Path, nursery: Nursery) -> Iterator[Fleet]:
    """Workers of `twice.py` on a GPU; none is left afterwards."""
    fleet = Fleet(tmp_path, nursery, Path(__file__).with_name("twice.py"))
    fleet.options.update(NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", DEVICE="cuda", BACKEND="nccl")
    fleet.options.update(STEP_TIME="0.01", PETCTL_CHECKPOINT_DIR=str(tmp_path / "checkpoints"), PETCTL_JOB_ID="job-1")
    try:
        yield fleet
    finally:
        fleet.close()


def check_exact(worker: Worker) -> int:
    """Every number is the number of steps made; that step."""
    entered = worker.line("entered")
    assert entered["lowest"] == entered["highest"] == entered["entered"], entered
    return int(entered["entered"])


@pytest.mark.parametrize("numbers", [1 << 10, 1 << 20, 1 << 24])
def test_a_lost_peer_leaves_exactly_the_steps_that_were_committed(counting: Fleet, numbers: int) -> None:
    counting.options["NUMBERS"] = str(numbers)
    workers = counting.start(2)
    for number in range(4):
        reached = max(check_exact(worker) for worker in workers)
        counting.all_step(workers, reached + 40)
        lost = workers.pop(number % 2)
        lost.signal(signal.SIGKILL)
        counting.park(workers)
        begun = time.monotonic()
        counting.parked(workers)
        assert time.monotonic() - begun < 20.0, "it waits for nothing but its own groups"
        workers = counting.next(workers, fresh=1)
    for worker in workers:
        assert check_exact(worker) > 100


def test_checkpoints_hold_exactly_their_steps(counting: Fleet, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    directory = tmp_path / "checkpoints"
    counting.options.update(EVERY="1", PETCTL_CHECKPOINT_DIR=str(directory))
    workers = counting.start(2)
    counting.all_step(workers, 60)
    workers.pop().signal(signal.SIGKILL)
    counting.park(workers)
    counting.parked(workers)
    newest = saved.marks(directory)[0]
    [numbers] = parts.value(saved.read(directory, newest).copies["weights"]).values()
    assert (numbers == newest.step).all()


def test_a_checkpoint_is_written_while_the_device_waits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    one = torch.arange(1 << 20, device="cuda")
    copies = {"numbers": parts.take("numbers", one)}
    torch.cuda.synchronize()
    begun = time.monotonic()
    torch.cuda._sleep(20_000_000_000)  # about ten seconds
    saved.write(tmp_path, Mark(1, 1, 1), Snapshot(Mark(1, 1, 1), 1, copies))
    written = time.monotonic() - begun
    waits = not torch.cuda.current_stream().query()
    torch.cuda.synchronize()
    assert waits, f"written after {written:.1f} s, when the device had nothing more to do"
    again = parts.value(saved.read(tmp_path, Mark(1, 1, 1)).copies["numbers"])
    assert torch.equal(again, one.cpu())


def test_a_planned_change_undoes_nothing(counting: Fleet) -> None:
    workers = counting.start(2)
    for world in (1, 2):
        counting.all_step(workers, counting.round * 20)
        counting.park(workers, planned=True)
        counting.parked(workers)
        staying = workers[:world]
        workers = counting.next(staying, fresh=world - len(staying))
        for worker in workers:
            assert check_exact(worker) >= (counting.round - 1) * 20


@pytest.mark.parametrize("every", ["0", "3"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_loss_in_either_of_two_calls(calling: Fleet, call: int, every: str) -> None:
    calling.options.update(EVERY=every, STEPS="100")
    survivor, lost = calling.start(2)
    in_call([survivor, lost], call, 5)
    pid = survivor.pid
    lose(calling, [lost], [survivor])
    survivor, fresh = calling.next([survivor], fresh=1)
    all_end_well(calling, [survivor, fresh], steps=100)
    assert calls_trained(fresh) == {1, 2} - set(range(1, call))
    assert survivor.line("done")["pid"] == pid
