"""A status that fits into one frame, however large the job is and however many rounds it has had."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from petctl.controller.journals.records import ROUNDS, History, first_status
from petctl.job.status import JobStatus, NodeStatus, ProgressStatus, RankProgress, RoundStatus
from petctl.rendezvous.net.frames import COORDINATOR_LIMIT, encode_frame
from tests.unit.records import job_record


def large(nodes: int, procs: int, rounds: int) -> JobStatus:
    """The status of a job in which every rank has a pace of its own, and a few nodes have changed places."""
    names = [str(index) for index in range(nodes)]
    history = History()
    for number in range(1, rounds + 1):
        order = [*names[1:9], names[0], *names[9:]] if number % 2 else names
        members = {name: [place * procs, procs] for place, name in enumerate(order)}
        history.take({"kind": "round", "time": 1.0, "round": number, "reason": f"node {number} was lost: gone"})
        event = {"kind": "running", "round": number, "nodes": order, "members": members, "world_size": nodes * procs}
        history.take({"time": 1.5, **event})
    rows = [
        NodeStatus(
            name,
            "running",
            f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}",
            index,
            list(range(index * procs, (index + 1) * procs)),
            index % 3,
        )
        for index, name in enumerate(names)
    ]
    ranks = [
        RankProgress(rank, names[rank // procs], 1200 + rank % 3, 10 + rank % 97 / 100) for rank in range(nodes * procs)
    ]
    progress = ProgressStatus(1230, 10.0, {"loss": 0.5}, ranks=ranks)
    return replace(first_status(job_record()), nodes=rows, rounds=history.rounds, progress=progress)


@pytest.mark.parametrize(("nodes", "procs", "rounds"), [(1024, 8, 170), (10_000, 8, 120)])
def test_a_large_status_fits_into_a_frame(nodes: int, procs: int, rounds: int) -> None:
    status = large(nodes, procs, rounds)
    frame = encode_frame({"id": 1, "ok": {"version": 3, "status": status.pack()}})
    assert len(frame) < COORDINATOR_LIMIT
    assert JobStatus.from_dict(json.loads(frame[4:])["ok"]["status"]) == status


def test_members_are_told_in_full() -> None:
    status = large(5, 2, 3)
    assert status.rounds[0].members == {"1": [0, 2], "2": [2, 2], "3": [4, 2], "4": [6, 2], "0": [8, 2]}
    assert status.rounds[0].nodes == ["1", "2", "3", "4", "0"]


def test_names_that_are_no_numbers_are_kept() -> None:
    members = {"0": [0, 2], "guest": [2, 2], "007": [4, 1], "8": [5, 1], "9": [6, 1], "11": [7, 1]}
    past = RoundStatus.of(1, "", members)
    assert past.blocks == [("0", 0, 2), ("guest", 2, 2), ("007", 4, 1), ("8:9", 5, 1), ("11", 7, 1)]
    assert past.members == members and past.nodes == list(members)


def test_nodes_whose_ranks_are_not_known_are_still_told() -> None:
    past = RoundStatus.of(1, "", dict.fromkeys(map(str, range(1000)), (0, 0)))
    assert (len(past.blocks), past.nodes[-1], past.members) == (1, "999", {})


def test_the_history_keeps_the_last_rounds_and_counts_all() -> None:
    history = History()
    for number in range(1, ROUNDS + 21):
        history.take({"kind": "running", "time": float(number), "round": number, "nodes": ["0"], "world_size": 1})
    assert (len(history.rounds), history.rounds[0].number, history.ran) == (ROUNDS, 21, ROUNDS + 20)
