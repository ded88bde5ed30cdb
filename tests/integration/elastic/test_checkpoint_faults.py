"""Checkpoints under fire: writers killed at any moment, a full disk, two writers at once, real torch parts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from petctl.elastic.checkpoints import saved
from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.commits import Mark
from tests.integration.elastic.harness import ROOT, free_port
from tests.integration.waiting import until

DEADLINE = 150.0  # seconds; torch is imported in it

# Every part holds the same number, so that a mixture of two commits would be seen.
WRITER = """
import os, sys
from petctl import elastic
commits, every, size = (int(word) for word in sys.argv[1:4])
state = elastic.State(step=0, blob=b"", table={})
kept = elastic.checkpoint(state, every=every, keep=3)
kept.beginning(state)
print("from", state.step, flush=True)
end = state.step + commits
while commits < 0 or state.step < end:
    state.step += 1
    state.blob = bytes([state.step % 251]) * size
    state.table = {"step": state.step}
    state.commit()
    if len(sys.argv) > 4:
        kept.flush()
print("ended", flush=True)
"""


def start(
    directory: Path,
    epoch: int,
    round_number: int,
    *words: object,
    python: str = sys.executable,
    program: str = WRITER,
    **extra: str,
) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PETCTL_CHECKPOINT_DIR": str(directory),
        "PETCTL_EPOCH": str(epoch),
        "PETCTL_ROUND": str(round_number),
    }
    env.pop("RANK", None)
    env.update(extra)
    return subprocess.Popen(
        [python, "-c", program, *map(str, words)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=DEADLINE)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def whole(directory: Path, mark: Mark) -> None:
    """It can be read, and all its parts are of the same commit."""
    snapshot = saved.read(directory, mark)
    step = parts.value(snapshot.copies["step"])
    blob = parts.value(snapshot.copies["blob"])
    assert snapshot.mark.step == mark.step
    assert parts.value(snapshot.copies["table"]) == {"step": step}
    assert set(blob) == {step % 251}


def has_later(directory: Path, step: int) -> bool:
    return any(mark.step > step for mark in saved.marks(directory))


def test_a_writer_killed_at_any_moment_leaves_only_whole_ones(tmp_path: Path) -> None:
    moments = random.Random(7)
    newest = 0
    for attempt in range(12):
        process = start(tmp_path, 1, attempt + 1, -1, 1, 4 << 20)
        try:
            assert process.stdout is not None
            begun = int(process.stdout.readline().split()[1])
            assert begun >= newest, "it goes on from the newest there was"
            if attempt % 2:  # in the middle of its first or second; the others have written one, however slow the disk
                until(partial(has_later, tmp_path, begun), "a checkpoint", DEADLINE)
            with pytest.raises(subprocess.TimeoutExpired):  # lets it write for a while
                process.wait(moments.uniform(0.0, 0.3))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        for mark in saved.marks(tmp_path):
            whole(tmp_path, mark)
        newest = max([newest, *(mark.step for mark in saved.marks(tmp_path)[:1])])
    assert newest > 0, "some of them came to write one"
    finish(start(tmp_path, 2, 100, 4, 1, 1000, "each"))
    assert saved.marks(tmp_path)[0] == Mark(2, 100, newest + 4)
    assert len(list(tmp_path.iterdir())) == 3, "nothing unfinished is left"


def test_two_writers_of_different_rounds(tmp_path: Path) -> None:
    old = start(tmp_path, 1, 5, -1, 1, 100_000)
    try:
        assert old.stdout is not None and old.stdout.readline()
        out, _ = finish(start(tmp_path, 2, 6, 30, 1, 100_000, "each"))
        assert "ended" in out
        assert old.poll() is None, "it was writing all the time"
    finally:
        old.kill()
        old.communicate()
    kept = saved.marks(tmp_path)[:3]
    assert [mark[:2] for mark in kept] == [(2, 6)] * 3, "the older round's late writes are neither kept nor chosen"
    for mark in kept:
        whole(tmp_path, mark)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={8 << 20}", "petctl-test", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
def test_a_full_disk_costs_checkpoints_only(small_disk: Path) -> None:
    directory = small_disk / "checkpoints"
    finish(start(directory, 1, 1, 2, 1, 1 << 20, "each"))
    assert [mark.step for mark in saved.marks(directory)] == [2, 1]
    (small_disk / "filler").write_bytes(bytes(5 << 20))
    out, said = finish(start(directory, 1, 2, 3, 1, 1 << 20, "each"))
    assert "from 2" in out and "ended" in out
    assert said.count("No space left on device") == 1 and "Training continues" in said
    assert [mark.step for mark in saved.marks(directory)] == [2, 1]
    assert not list(directory.glob(".writing-*"))
    (small_disk / "filler").unlink()
    out, said = finish(start(directory, 1, 3, 2, 1, 1 << 20, "each"))
    assert "from 2" in out and not said
    assert saved.marks(directory)[0] == Mark(1, 3, 4)
    whole(directory, saved.marks(directory)[0])


TORCH = """
import pathlib, sys, torch
from petctl import elastic
torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
state = elastic.State(model=model, optimizer=optimizer, step=0, noise=torch.zeros(3), names=["a"])
kept = elastic.checkpoint(state, every=1)
kept.beginning(state)
for _ in range(int(sys.argv[2])):
    optimizer.zero_grad()
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    state.step += 1
    state.noise += 1
    state.commit()
kept.flush()
newest = max(pathlib.Path(kept.directory).iterdir(), key=lambda path: int(path.name.rpartition("-")[2]))
weights = torch.load(newest / "model.pt", weights_only=True)
torch.load(newest / "optimizer.pt", weights_only=True)
assert torch.equal(weights["weight"], model.weight)
moments = optimizer.state[model.weight]["exp_avg"]
print(state.step, state.noise.tolist(), model.weight.sum().item(), moments.sum().item(), state.names)
"""


@pytest.mark.torch
def test_torch_parts_come_back_and_weights_can_be_loaded_by_themselves(tmp_path: Path, torch_python: str) -> None:
    first, said = finish(start(tmp_path, 1, 1, 1, 3, python=torch_python, program=TORCH))
    assert first.startswith("3 [3.0, 3.0, 3.0] "), said
    again, said = finish(start(tmp_path, 1, 2, 2, 0, python=torch_python, program=TORCH))
    assert again == first, said


# One process per rank over gloo; the parts exist only inside the training function, as with FSDP2 they must.
SHARDED = """
import sys, torch
from torch.distributed.fsdp import fully_shard
from petctl import elastic

state = elastic.State(model=None, optimizer=None, step=0)
kept = elastic.checkpoint(state, every=2, keep=2)

def train(state):
    torch.manual_seed(0)
    state.model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))
    for layer in state.model:
        fully_shard(layer)
    fully_shard(state.model)
    state.optimizer = torch.optim.AdamW(state.model.parameters(), lr=0.1)
    print("found" if kept.load() else "none", state.step, state.commits)
    while state.step < int(sys.argv[1]):
        state.optimizer.zero_grad()
        state.model(torch.ones(2, 8)).sum().backward()
        state.optimizer.step()
        state.step += 1
        state.commit()
    weights = sum(p.full_tensor().sum().item() for p in state.model.parameters())
    moments = [state.optimizer.state[p].get("exp_avg") for p in state.model.parameters()]
    print(f"{weights:.6f}", f"{sum(m.full_tensor().sum().item() for m in moments if m is not None):.6f}")

elastic.run(train, state, backend="gloo")
"""


def sharded_round(directory: Path, python: str, number: int, world: int, steps: int) -> list[list[str]]:
    """What each rank of a round printed, line by line."""
    port = free_port()
    ranks = [
        start(directory, 1, number, steps, python=python, program=SHARDED, RANK=str(rank), WORLD_SIZE=str(world),
              MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        for rank in range(world)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=DEADLINE) for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.communicate()
    assert all(process.returncode == 0 for process in ranks), ended
    return [out.splitlines() for out, _ in ended]


@pytest.mark.long
@pytest.mark.torch
def test_sharded_parts_come_back_on_another_number_of_ranks(tmp_path: Path, torch_python: str) -> None:
    first = sharded_round(tmp_path, torch_python, 1, world=2, steps=4)
    assert [lines[0] for lines in first] == ["none 0 0"] * 2
    assert [mark.step for mark in saved.marks(tmp_path)] == [4, 2]
    again = sharded_round(tmp_path, torch_python, 2, world=1, steps=4)
    assert again == [["found 4 4", first[0][1]]], "the same values, on one rank now"
    newest = tmp_path / str(saved.marks(tmp_path)[0])
    shard = next(newest.glob("*.distcp"))
    shard.write_bytes(shard.read_bytes()[:-1])
    older = sharded_round(tmp_path, torch_python, 3, world=2, steps=4)
    assert [lines[0] for lines in older] == ["found 2 2"] * 2, "a torn one is passed over on all ranks"
    assert older[0][1] == first[0][1], "the same steps from there"
