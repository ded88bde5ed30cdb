"""Every sample of an epoch is in exactly one committed step, whatever happens to the ranks."""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.elastic import ElasticSampler, State
from petctl.elastic.sampler import _Order
from petctl.elastic.state import ledger_of
from petctl.errors import UsageError


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Any:
    def take(rank: int, world: int) -> None:
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", str(world))

    take(0, 1)
    return take


class Rank:
    """One simulated rank: a State with a sampler, and the loop over its batches."""

    def __init__(self, length: int, **sizes: Any) -> None:
        self.sampler = ElasticSampler(length, **sizes)
        self.state = State(sampler=self.sampler)
        ledger_of(self.state).keeping = True
        ledger_of(self.state).snapshot(self.state)
        self.loop: Iterator[list[int]] = iter(())


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_each_sample_is_in_exactly_one_committed_step(data: st.DataObject) -> None:
    """Random rounds of random sizes; each ends at a commit (planned) or in the middle of a step (undone)."""
    with pytest.MonkeyPatch.context() as patch:
        length = data.draw(st.integers(1, 60), "samples")
        kind = data.draw(st.sampled_from(["batch_size", "global_batch"]))
        sizes: dict[str, Any] = {
            kind: data.draw(st.integers(1, 9), "batch"),
            "seed": data.draw(st.integers(0, 3)),
            "shuffle": data.draw(st.booleans()),
        }
        newest: Any = None  # the last commit, as a new member gets it
        committed: Counter[int] = Counter()
        padded = 0

        def place(rank: int, world: int) -> None:
            patch.setenv("RANK", str(rank))
            patch.setenv("WORLD_SIZE", str(world))

        for _ in range(200):
            world = data.draw(st.integers(1, 5), "ranks")
            ranks = [Rank(length, **sizes) for _ in range(world)]
            for number, rank in enumerate(ranks):
                place(number, world)
                if newest is not None:
                    ledger_of(rank.state).adopt(rank.state, newest)
                rank.loop = rank.sampler.batches()
            steps = data.draw(st.integers(0, 4), "steps")
            for step in range(steps + 1):
                undone = step == steps
                batches = []
                for number, rank in enumerate(ranks):
                    place(number, world)
                    batches.append(next(rank.loop, None))
                if batches[0] is None:
                    assert batches == [None] * world, "all ranks end an epoch in the same step"
                    break
                if undone:
                    continue  # a failure between two commits
                for number, rank in enumerate(ranks):
                    place(number, world)
                    rank.state.commit()
                for batch in batches:
                    assert batch, "no rank is without a sample"
                    committed.update(batch)
                newest = ledger_of(ranks[0].state).snapshot(ranks[0].state)
                padded = sum(committed.values()) - length
            if ranks[0].sampler.epoch == 1:
                break
        else:
            return  # too many rounds without progress; nothing was said about how fast it is
        assert set(committed) == set(range(length))
        twice = [index for index, times in committed.items() if times > 1]
        assert padded == 0 or len(twice) <= padded < 5, "padding only in the last step, for ranks without a sample"


@given(st.integers(1, 3000), st.integers(0, 1 << 70), st.integers(0, 50))
def test_an_order_is_a_permutation(length: int, seed: int, epoch: int) -> None:
    order = _Order(length, seed, epoch)
    assert sorted(order[position] for position in range(length)) == list(range(length))


def test_an_order_depends_on_seed_and_epoch_alone(place: Any) -> None:
    def first(seed: int, epoch: int) -> list[int]:
        order = _Order(1000, seed, epoch)
        return [order[position] for position in range(1000)]

    orders = [tuple(first(seed, epoch)) for seed in range(4) for epoch in range(4)]
    assert len(set(orders)) == 16
    assert first(2, 3) == first(2, 3)
    assert _Order(1000, 0, 0)[0] == 888, "the same on every machine and in every version"


def test_every_position_gets_every_sample_about_equally_often() -> None:
    """Chi square over 3000 epochs of 20 samples, far beyond what chance would do with a fixed seed."""
    length, epochs = 20, 3000
    for position in range(length):
        counts = Counter(_Order(length, 5, epoch)[position] for epoch in range(epochs))
        expected = epochs / length
        assert sum((counts[index] - expected) ** 2 / expected for index in range(length)) < 50  # 19 degrees of freedom


def test_ranks_divide_a_step_and_the_last_one_has_what_is_left(place: Any) -> None:
    shares = []
    for rank in range(3):
        place(rank, 3)
        sampler = ElasticSampler(10, batch_size=2, shuffle=False)
        assert len(sampler) == 2
        shares.append(list(sampler.batches()))
        assert sampler.epoch == 1
    assert shares == [[[0, 1], [6]], [[2, 3], [7]], [[4, 5], [8, 9]]]


def test_padding_is_said(place: Any) -> None:
    place(3, 4)
    sampler = ElasticSampler(9, batch_size=2, shuffle=False)
    assert sampler.padding == 3
    assert list(sampler.batches()) == [[6, 7], [8]]
    place(0, 1)
    assert ElasticSampler(9, batch_size=2).padding == 0


def test_a_global_batch_stays_when_the_ranks_change(place: Any) -> None:
    for world, share in ((1, 12), (2, 6), (3, 4), (4, 3)):
        place(0, world)
        sampler = ElasticSampler(120, global_batch=12)
        assert {len(batch) for batch in sampler.batches()} == {share}


def test_a_loader_that_reads_ahead_is_not_counted_until_used(place: Any) -> None:
    sampler = ElasticSampler(8, batch_size=2, shuffle=False)
    state = State(sampler=sampler)
    loop = sampler.batches(list(sampler))  # as a DataLoader with workers does: all is read before anything is used
    assert next(loop) == [0, 1]
    assert sampler.dealt == 2
    state.commit()
    assert sampler.state_dict()["dealt"] == 2


def test_a_loop_that_nobody_counts_is_refused_at_the_commit(place: Any) -> None:
    sampler = ElasticSampler(8, batch_size=2)
    state = State(sampler=sampler)
    ledger_of(state).keeping = True
    next(iter(sampler))
    with pytest.raises(UsageError, match=r"sampler\.batches\(loader\)"):
        state.commit()


def test_other_data_is_refused(place: Any) -> None:
    with pytest.raises(UsageError, match="8 samples, this data has 9"):
        ElasticSampler(9, batch_size=2).load_state_dict(ElasticSampler(8, batch_size=2).state_dict())


@pytest.mark.parametrize("words", [(0, 1, None), (5, None, None), (5, 1, 1), (5, 0, None)])
def test_sizes_that_make_no_sense_are_refused(words: tuple[int, Any, Any]) -> None:
    with pytest.raises(UsageError, match="at least one sample"):
        ElasticSampler(words[0], words[1], global_batch=words[2])
