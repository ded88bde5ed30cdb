"""What a cluster's nodes become: given to jobs, taken back, more and fewer of them; told with a clock that is handed
in."""

from __future__ import annotations

from dataclasses import replace

from petctl.clusters.local.pools.model import (
    PREPARING,
    READY,
    TERMINATE,
    UNUSABLE,
    WAIT,
    Claim,
    GiveBack,
    Node,
    Size,
    settle,
    wanted_nodes,
    wishes,
)


def fixed(count: int, deallocation: str = "requeue") -> Size:
    return Size(count, count, deallocation=deallocation)


def ready(*numbers: int, since: float = 0.0) -> list[Node]:
    return [Node(number, READY, since) for number in numbers]


def claim(job: str, granted: int, minimum: int = 1, wanted: int = 0) -> Claim:
    return Claim(job, minimum, wanted or max(granted, minimum), granted)


def shown(nodes: list[Node]) -> list[str]:
    return [f"{node.number} {node.shown} {node.job}".strip() for node in nodes]


def test_a_cluster_grows_to_its_size_with_nodes_that_are_ready_or_prepared_first() -> None:
    assert shown(settle(fixed(2), [], [], 5.0, prepares=False)) == ["0 idle", "1 idle"]
    assert settle(fixed(1), [], [], 5.0, prepares=True) == [Node(0, PREPARING, 5.0)]


def test_a_new_node_takes_the_lowest_number_that_is_free() -> None:
    assert [node.number for node in settle(fixed(3), ready(1, 4), [], 1.0, prepares=False)] == [0, 1, 4]


def test_jobs_have_the_nodes_that_they_were_granted() -> None:
    nodes = settle(fixed(4), ready(0, 1, 2, 3), [claim("a", 2), claim("b", 1)], 7.0, prepares=False)
    assert shown(nodes) == ["0 running a", "1 running a", "2 running b", "3 idle"]
    assert [node.member for node in nodes] == [0, 1, 0, -1]
    assert nodes[0].since == 7.0


def test_settling_again_changes_nothing() -> None:
    claims = [claim("a", 2), claim("b", 0, minimum=3)]
    once = settle(fixed(3), [], claims, 1.0, prepares=False)
    assert settle(fixed(3), once, claims, 2.0, prepares=False) == once


def test_a_job_that_gives_nodes_back_gives_its_highest_ones() -> None:
    before = settle(fixed(3), ready(0, 1, 2), [claim("a", 3)], 1.0, prepares=False)
    after = settle(fixed(3), before, [claim("a", 1)], 9.0, prepares=False)
    assert shown(after) == ["0 running a", "1 idle", "2 idle"]
    assert after[2].since == 9.0


def test_a_job_without_a_claim_has_no_nodes() -> None:
    before = settle(fixed(2), ready(0, 1), [claim("a", 2)], 1.0, prepares=False)
    assert shown(settle(fixed(2), before, [], 2.0, prepares=False)) == ["0 idle", "1 idle"]


def test_nodes_that_are_not_ready_are_given_to_nobody() -> None:
    nodes = [Node(0, UNUSABLE, 0.0, reason="broken"), Node(1, PREPARING, 0.0), Node(2, READY, 0.0)]
    assert shown(settle(fixed(3), nodes, [claim("a", 2)], 1.0, prepares=True)) == [
        "0 unusable",
        "1 preparing",
        "2 running a",
    ]


def test_what_is_of_no_use_goes_first() -> None:
    nodes = [Node(0, UNUSABLE, 0.0), Node(1, READY, 0.0), Node(2, PREPARING, 0.0), Node(3, READY, 0.0)]
    assert shown(settle(fixed(3), nodes, [], 1.0, prepares=True)) == ["1 idle", "2 preparing", "3 idle"]
    assert shown(settle(fixed(1), nodes, [], 1.0, prepares=True)) == ["1 idle"]
    assert settle(fixed(0), nodes, [], 1.0, prepares=True) == []


def test_nodes_in_use_leave_when_their_job_lets_go_of_them() -> None:
    before = settle(fixed(2), ready(0, 1), [claim("a", 2, minimum=2)], 1.0, prepares=False)
    leaving = settle(fixed(1), before, [claim("a", 2, minimum=2)], 2.0, prepares=False)
    assert shown(leaving) == ["0 running a", "1 leaving a"]
    assert settle(fixed(1), leaving, [claim("a", 2, minimum=2)], 3.0, prepares=False) == leaving
    assert shown(settle(fixed(1), leaving, [], 4.0, prepares=False)) == ["0 idle"]


def test_a_node_that_is_needed_again_does_not_leave() -> None:
    before = settle(fixed(2), ready(0, 1), [claim("a", 2)], 1.0, prepares=False)
    leaving = settle(fixed(0), before, [claim("a", 2)], 2.0, prepares=False)
    assert shown(leaving) == ["0 leaving a", "1 leaving a"]
    assert shown(settle(fixed(1), leaving, [claim("a", 2)], 3.0, prepares=False)) == ["0 running a", "1 leaving a"]
    assert shown(settle(fixed(3), leaving, [claim("a", 2)], 3.0, prepares=False)) == [
        "0 running a",
        "1 running a",
        "2 idle",
    ]


def test_elastic_jobs_give_what_they_can_spare_before_a_gang_is_broken() -> None:
    claims = [claim("elastic", 3, minimum=1), claim("gang", 2, minimum=2)]
    before = settle(fixed(5), ready(0, 1, 2, 3, 4), claims, 1.0, prepares=False)
    smaller = settle(fixed(3), before, claims, 2.0, prepares=False)
    assert [node.job for node in smaller if node.leaving] == ["elastic", "elastic"]
    assert wishes(fixed(3), smaller, claims) == [GiveBack("elastic", 1)]
    smallest = settle(fixed(2), before, claims, 2.0, prepares=False)
    assert wishes(fixed(2), smallest, claims) == [GiveBack("elastic", 1), GiveBack("gang", 0)]


def test_the_option_says_what_is_asked_of_a_job_that_cannot_shrink() -> None:
    claims = [claim("a", 2, minimum=2)]
    nodes = settle(fixed(2), ready(0, 1), claims, 1.0, prepares=False)
    nodes = settle(fixed(1), nodes, claims, 2.0, prepares=False)
    assert wishes(fixed(1), nodes, claims) == [GiveBack("a", 0)]
    assert wishes(fixed(1, TERMINATE), nodes, claims) == [GiveBack("a", 0, end=True)]
    assert wishes(fixed(1, WAIT), nodes, claims) == []


def test_nobody_is_asked_for_nodes_that_stay() -> None:
    claims = [claim("a", 2), claim("b", 0, minimum=4)]
    assert wishes(fixed(2), settle(fixed(2), ready(0, 1), claims, 1.0, prepares=False), claims) == []


def test_auto_scale_follows_the_jobs_within_its_bounds() -> None:
    size = Size(1, 4)
    assert wanted_nodes(size, []) == 1
    assert wanted_nodes(size, [claim("a", 2), claim("b", 0, minimum=1)]) == 3
    assert wanted_nodes(size, [claim("a", 1, minimum=1, wanted=3)]) == 3
    assert wanted_nodes(size, [claim("a", 0, minimum=9)]) == 4


def test_auto_scale_grows_at_once_and_shrinks_after_the_idle_time() -> None:
    size = Size(0, 2, idle_time=60.0)
    assert settle(size, [], [], 0.0, prepares=False) == []
    grown = settle(size, [], [claim("a", 0, minimum=2)], 10.0, prepares=False)
    assert shown(grown) == ["0 idle", "1 idle"]
    busy = settle(size, grown, [claim("a", 2)], 11.0, prepares=False)
    assert shown(settle(size, busy, [claim("a", 2)], 999.0, prepares=False)) == ["0 running a", "1 running a"]
    idle = settle(size, busy, [], 1000.0, prepares=False)
    assert shown(settle(size, idle, [], 1059.0, prepares=False)) == ["0 idle", "1 idle"]
    assert settle(size, idle, [], 1060.0, prepares=False) == []


def test_auto_scale_keeps_its_minimum_and_what_waits_to_be_prepared() -> None:
    size = Size(1, 3, idle_time=60.0)
    assert shown(settle(size, ready(0, 1, 2), [], 100.0, prepares=False)) == ["0 idle"]
    nodes = [Node(0, PREPARING, 0.0), Node(1, UNUSABLE, 0.0)]
    assert shown(settle(Size(0, 3, idle_time=60.0), nodes, [], 100.0, prepares=True)) == ["0 preparing"]


def test_a_lower_maximum_is_a_resize() -> None:
    claims = [claim("a", 3, minimum=3)]
    before = settle(Size(0, 3), [], claims, 0.0, prepares=False)
    before = settle(Size(0, 3), before, claims, 0.0, prepares=False)
    after = settle(Size(0, 2), before, claims, 1.0, prepares=False)
    assert shown(after) == ["0 running a", "1 running a", "2 leaving a"]
    assert wishes(Size(0, 2), after, claims) == [GiveBack("a", 0)]


def test_after_a_restart_of_the_machine_nodes_are_prepared_again() -> None:
    nodes = [Node(0, READY, 0.0, boot="first"), Node(1, READY, 0.0, job="a", member=0, boot="first")]
    same = settle(fixed(2), nodes, [claim("a", 1)], 5.0, prepares=True, boot="first")
    assert shown(same) == ["0 idle", "1 running a"]
    later = settle(fixed(2), nodes, [], 5.0, prepares=True, boot="second")
    assert shown(later) == ["0 preparing", "1 preparing"]
    assert shown(settle(fixed(2), nodes, [], 5.0, prepares=False, boot="second")) == ["0 idle", "1 idle"]


def test_more_grants_than_nodes_break_nothing() -> None:
    """A job that outlived the file of the nodes holds what it has."""
    nodes = settle(fixed(1), [], [claim("a", 3)], 1.0, prepares=False)
    nodes = settle(fixed(1), nodes, [claim("a", 3)], 2.0, prepares=False)
    assert shown(nodes) == ["0 running a"]
    assert settle(fixed(1), [replace(nodes[0], member=2)], [claim("a", 3)], 3.0, prepares=False)[0].member == 2
