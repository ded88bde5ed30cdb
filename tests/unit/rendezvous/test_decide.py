"""Who takes part, at which rank, and why one waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.rendezvous.core.decide import cheapest, choose, natural, places_for, ranks_for, share, wait_reason
from petctl.rendezvous.core.messages import Header, Report


def report(name: str, procs: int = 1, note: str = "") -> Report:
    return Report(name, "i", 1, procs, f"host-{name}", Header(), note=note)


def test_node_10_comes_after_node_9() -> None:
    assert sorted(["10", "9", "node-2", "node-10"], key=natural) == ["9", "10", "node-2", "node-10"]


def test_survivors_come_first_by_rank() -> None:
    assert choose({"0", "1", "2", "3"}, {"3": 0, "1": 2}) == ["3", "1", "0", "2"]


def test_survivors_keep_their_ranks() -> None:
    assert ranks_for(["0", "2", "1"], {"0": 0, "2": 2}) == ["0", "1", "2"]


def test_rank_0_goes_to_a_survivor_not_to_a_newcomer() -> None:
    assert ranks_for(["1", "2", "0"], {"1": 1, "2": 2}) == ["1", "0", "2"]


def test_ranks_close_up_when_the_round_shrinks() -> None:
    assert ranks_for(["0", "3"], {"0": 0, "3": 3}) == ["0", "3"]


names = st.lists(st.integers(0, 30).map(str), min_size=1, max_size=12, unique=True)


@given(names, st.data())
def test_ranks_are_a_permutation_and_keep_what_they_can(members: list[str], data: st.DataObject) -> None:
    old = data.draw(st.lists(st.sampled_from(members), unique=True))
    previous = dict(zip(old, data.draw(st.permutations(range(len(members) + 3))), strict=False))
    ranks = ranks_for(members, previous)
    assert sorted(ranks) == sorted(members)
    assert ranks[0] == choose(members, previous)[0]
    moved = [n for n, rank in previous.items() if rank < len(members) and ranks[rank] != n]
    assert len(moved) <= 1, "only the survivor that takes over rank 0 may move"
    if any(rank == 0 for rank in previous.values()):
        assert not moved


def test_places_follow_the_numbers_of_processes() -> None:
    places = places_for([report("a", 2), report("b", 1), report("c", 4)], 4242)
    assert [(p.rank, p.first_rank, p.world_size) for p in places.values()] == [(0, 0, 7), (1, 2, 7), (2, 3, 7)]
    assert {(p.master_addr, p.master_port, p.nodes) for p in places.values()} == {("host-a", 4242, 3)}


@pytest.mark.parametrize(
    ("tasks", "nodes", "shares"),
    [
        ((1, 0), 3, [2, 1, 1]),  # one parameter server, a worker on each node
        ((1, 3), 2, [3, 1]),
        ((2, 5), 3, [3, 3, 1]),
        ((2,), 3, [1, 1, 0]),
    ],
)
def test_tasks_of_roles_go_round(tasks: tuple[int, ...], nodes: int, shares: list[int]) -> None:
    assert [share(tasks, rank, nodes) for rank in range(nodes)] == shares
    places = list(places_for([report(str(k), 1) for k in range(nodes)], 4242, tasks=tasks).values())
    assert [place.procs for place in places] == shares
    assert [place.first_rank for place in places] == [sum(shares[:rank]) for rank in range(nodes)]
    assert {place.world_size for place in places} == {sum(shares)}


@pytest.mark.parametrize(
    ("staying", "ranks", "slow", "order"),
    [
        ("", {}, [], "3210"),  # nobody has come yet: the numbers that a cluster fills up last
        ("0123", {"0": 0, "1": 1, "2": 2, "3": 3}, [], "3210"),
        ("0123", {"3": 0, "2": 1, "1": 2, "0": 3}, [], "0123"),
        ("0123", {"0": 0, "1": 1, "2": 2, "3": 3}, ["1"], "1320"),
        ("0123", {"0": 0, "1": 1, "2": 2, "3": 3}, ["2", "1"], "2130"),  # the slowest first
        ("0123", {"0": 0, "1": 1, "2": 2, "3": 3}, ["0"], "3210"),  # rank 0's node, however slow
        ("0123", {"1": 0, "2": 1}, [], "3021"),  # standing by
        ("023", {"0": 0, "2": 1}, [], "1320"),  # 1 has not come
        ("012", {"0": 0, "1": 1, "2": 2, "3": 3}, ["1"], "3120"),  # 3 is about to go
    ],
)
def test_the_cheapest_to_give_up(staying: str, ranks: dict[str, int], slow: list[str], order: str) -> None:
    assert "".join(cheapest(["2", "0", "3", "1"], staying, ranks, slow)) == order


def test_who_has_not_come_is_given_up_from_the_highest_number() -> None:
    assert cheapest(["9", "10", "2"], (), {}, []) == ["10", "9", "2"]


@given(names, st.data())
def test_rank_0_is_given_up_last(nodes: list[str], data: st.DataObject) -> None:
    staying = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    members = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    ranks = dict(zip(members, range(len(members)), strict=False))
    slow = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    order = cheapest(nodes, staying, ranks, slow)
    assert sorted(order) == sorted(nodes)
    idle = [name for name in nodes if name not in staying or name not in ranks]
    assert set(order[: len(idle)]) == set(idle), "first those who have no work to lose"
    if members and members[0] in staying:
        assert order[-1] == members[0]


def test_no_blind_wait_once_min_have_joined() -> None:
    ready = {"0": report("0"), "1": report("1")}
    assert wait_reason(ready, ready, [], 2, 3, set(), called=False) == ""


def test_waits_for_the_living_and_the_expected_and_says_so() -> None:
    one, two = report("0"), report("1", note="unpacking code")
    both = {"0": one, "1": two}
    assert wait_reason(both, {"0": one}, [], 1, 3, set(), False) == "1 of 3 nodes, node 1 is alive and unpacking code"
    assert wait_reason({"0": one}, {"0": one}, [], 1, 3, {"2"}, False) == "1 of 3 nodes, node 2 is expected"
    assert wait_reason({"0": one}, {"0": one}, [], 2, 3, set(), False) == "1 of 3 nodes, at least 2 are needed"
    assert wait_reason({"0": one}, {"0": one}, [], 1, 3, set(), True) == "1 of 3 nodes, last call for more"
    assert "stopping workers" in wait_reason(both, both, [two], 1, 2, set(), False)
