"""Whose turn it is: by priority, then first come, first served; nobody overtakes, and nobody is called without end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from petctl.clusters.local.queue.scheduler import (
    ALIVE,
    BEGIN_WITHIN,
    DEAD,
    ENDED,
    MOST_LIVES,
    READY,
    REVIVE_WITHIN,
    START_WITHIN,
    STARTING,
    UNBORN,
    UNBORN_WITHIN,
    Claim,
    Decision,
    decide,
    growth,
    standings,
)

NOW = 1000.0


def claim(job: str, minimum: int = 1, granted: int = 0, **more: float) -> Claim:
    wanted = int(more.pop("wanted", max(minimum, granted)))
    slots = int(more.pop("slots", 4))
    return Claim(job, 0, minimum, wanted, slots, granted, entered=NOW - 1, **more)  # type: ignore[arg-type]


def look(*claims: Claim, now: float = NOW, **fates: str) -> Decision:
    return decided(claims, fates, now)


def decided(claims: Sequence[Claim], fates: Mapping[str, str], now: float = NOW) -> Decision:
    def fate(one: Claim) -> str:
        return fates.get(one.job, ALIVE if one.granted else READY)

    return decide(claims, fate, lambda one: one.slots, now)


def test_all_who_fit_are_called_and_the_one_after_them() -> None:
    decision = look(claim("a", 2), claim("b", 1), claim("c", 2), claim("d", 1))
    assert decision.grant == {"a": 2, "b": 1}
    assert decision.call == ["a", "b", "c"]  # c is the head: its supervisor waits


def test_nobody_overtakes_the_head() -> None:
    decision = look(claim("a", granted=2), claim("b", 3), claim("c", 1))
    assert decision.grant == {}
    assert decision.call == ["b"]


def test_with_everybody_in_place_there_is_nothing_to_do() -> None:
    assert not look(claim("a", granted=4), claim("b", 3), claim("c", 1), b=ALIVE)


def test_not_more_begin_at_once_than_may() -> None:
    def fate(one: Claim) -> str:
        return {"a": STARTING, "b": ALIVE}.get(one.job, READY)

    claims = [claim("a", granted=1, called=NOW - 1), claim("b", granted=1), claim("c"), claim("d")]
    decision = decide(claims, fate, lambda one: 16, NOW, at_once=2)
    assert (decision.grant, decision.call) == ({"c": 1}, ["c", "d"])  # d is the head, and comes up meanwhile
    decision = decide(claims, fate, lambda one: 16, NOW + BEGIN_WITHIN, at_once=2)
    assert decision.grant == {"c": 1, "d": 1}  # a is slow


def test_an_elastic_job_takes_what_there_is() -> None:
    assert look(claim("a", granted=2), claim("b", 1, wanted=8)).grant == {"b": 2}


def test_a_head_that_waits_is_granted_and_the_next_is_called() -> None:
    decision = look(claim("a", granted=2), claim("b", 2), claim("c", 2), b=ALIVE)
    assert (decision.grant, decision.call) == ({"b": 2}, ["c"])


def test_each_job_counts_by_the_slots_of_its_own_submitter() -> None:
    few, many = claim("a", 1, slots=2), claim("b", 1, slots=16)
    assert look(claim("x", granted=2), few, many).grant == {}  # b could start, but does not overtake
    assert look(claim("x", granted=2), many, few).grant == {"b": 1}


def test_what_is_over_gives_its_slots_to_the_next_in_the_same_step() -> None:
    decision = look(claim("a", granted=4), claim("b", 4), a=ENDED)
    assert (decision.drop, decision.grant) == (["a"], {"b": 4})


def test_a_dead_job_is_looked_at_twice() -> None:
    dead = claim("a", granted=4)
    first = look(dead, claim("b", 4), a=DEAD, b=ALIVE)
    assert (first.doubt, first.drop, first.grant) == (["a"], [], {})
    doubted = claim("a", granted=4, doubted=NOW)
    assert not look(doubted, claim("b", 4), now=NOW + REVIVE_WITHIN / 2, a=DEAD, b=ALIVE)
    later = look(doubted, claim("b", 4), now=NOW + REVIVE_WITHIN, a=DEAD, b=ALIVE)
    assert (later.drop, later.lost, later.grant) == (["a"], ["a"], {"b": 4})
    assert look(doubted, now=NOW + REVIVE_WITHIN, a=ALIVE).trust == ["a"]


def test_a_job_that_is_being_made_is_in_nobody_s_way() -> None:
    decision = look(claim("a", 4), claim("b", 1), a=UNBORN)
    assert (decision.drop, decision.grant) == ([], {"b": 1})


def test_the_place_of_a_killed_submitter_is_given_up() -> None:
    assert look(claim("a"), now=NOW + UNBORN_WITHIN, a=UNBORN).drop == ["a"]


def test_one_who_was_called_and_never_came_is_called_again() -> None:
    called = claim("a", granted=1, called=NOW)
    assert not look(called, now=NOW + START_WITHIN / 2, a=READY)  # whoever has called it is about to start it
    assert look(called, now=NOW + START_WITHIN, a=READY).call == ["a"]


def test_each_fruitless_life_is_followed_by_a_longer_pause_and_the_last_by_none() -> None:
    pauses = []
    for lives in range(MOST_LIVES):
        one = claim("a", granted=1, called=NOW, lives=lives)
        pauses.append(next(step for step in range(100) if look(one, now=NOW + step, a=READY).call))
    assert pauses == [1, 1, 1, 2, 4]
    decision = look(claim("a", granted=4, called=NOW - 60, lives=MOST_LIVES), claim("b"), a=READY, b=ALIVE)
    assert (decision.call, decision.give_up) == ([], ["a"])


def test_a_hopeless_head_holds_nobody_up() -> None:
    decision = look(claim("a", lives=MOST_LIVES), claim("b"))
    assert (decision.give_up, decision.grant) == (["a"], {"b": 1})


@pytest.mark.parametrize(
    ("others", "more"),
    [((), 3), ((claim("b", granted=1),), 2), ((claim("b", granted=3),), 0), ((claim("b"),), 0)],
)
def test_a_job_grows_while_nobody_waits(others: tuple[Claim, ...], more: int) -> None:
    claims = (claim("a", granted=1), *others)
    assert growth(claims, "a", 8, lambda one: one.slots) == more


def test_where_a_job_stands() -> None:
    claims = [claim("a", granted=3), claim("b", 2), claim("c", 1)]
    found = standings(claims, lambda one: one.slots)
    assert found["a"].granted == 3
    assert found["b"].sentence() == "queued: 0 jobs ahead, needs 2 of 4 node slots, 1 free"
    assert found["c"].sentence() == "queued: 1 job ahead, needs 1 of 4 node slots, 1 free"


def test_a_thousand_random_lines_keep_the_rules() -> None:
    import random

    chance = random.Random(7)
    for _ in range(1000):
        claims = [
            claim(
                f"j{number}",
                chance.randint(1, 4),
                granted=chance.choice((0, 0, chance.randint(1, 3))),
                wanted=chance.randint(1, 6),
                slots=chance.choice((4, 4, 8)),
                lives=chance.randint(0, MOST_LIVES),
                called=NOW - chance.random() * 20,
                doubted=chance.choice((0.0, NOW - chance.random() * 3)),
            )
            for number in range(chance.randint(1, 12))
        ]
        fates = {one.job: chance.choice((READY, READY, ALIVE, ALIVE, DEAD, ENDED, UNBORN)) for one in claims}
        _holds(claims, fates, decided(claims, fates))


def _holds(claims: list[Claim], fates: Mapping[str, str], decision: Decision) -> None:
    left = [one for one in claims if one.job not in decision.drop]
    held = {one.job: one.granted or decision.grant.get(one.job, 0) for one in left}
    used = sum(one.granted for one in left)
    for number, one in enumerate(left):
        count = decision.grant.get(one.job, 0)
        if count:
            used += count
            assert not one.granted
            assert one.minimum <= count
            assert used <= one.slots
            assert all(
                held[other.job] or fates[other.job] == UNBORN or other.job in decision.give_up
                for other in left[:number]
            )
    assert all(fates[job] == READY for job in (*decision.call, *decision.give_up))
    waiting = [job for job in decision.call if not held[job]]
    assert len(waiting) <= 1  # only the head waits with a supervisor
