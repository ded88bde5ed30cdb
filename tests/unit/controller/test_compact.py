"""A status that fits into one frame, however large the job is and however many rounds it has had."""

from __future__ import annotations

import json
from typing import Any

import pytest

from petctl.controller.status.compact import pack, unpack
from petctl.controller.status.records import ROUNDS, History
from petctl.rendezvous.net.frames import COORDINATOR_LIMIT, encode_frame


def large(nodes: int, procs: int, rounds: int) -> dict[str, Any]:
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
        {
            "name": name,
            "address": f"10.{index >> 16}.{index >> 8 & 255}.{index & 255}",
            "state": "running",
            "rank": index,
            "ranks": list(range(index * procs, (index + 1) * procs)),
            "restarts": index % 3,
            "pid": 0,
            "sentence": "",
        }
        for index, name in enumerate(names)
    ]
    ranks = [
        {"rank": rank, "node": names[rank // procs], "step": 1200 + rank % 3, "steps_per_second": 10 + rank % 97 / 100}
        for rank in range(nodes * procs)
    ]
    progress = {"step": 1230, "steps_per_second": 10.0, "metrics": {"loss": 0.5}, "ranks": ranks, "stragglers": []}
    return {"id": "large", "state": "running", "nodes": rows, "rounds": history.rounds, "progress": progress}


@pytest.mark.parametrize(("nodes", "procs", "rounds"), [(1024, 8, 170), (10_000, 8, 120)])
def test_a_large_status_fits_into_a_frame(nodes: int, procs: int, rounds: int) -> None:
    status = large(nodes, procs, rounds)
    frame = encode_frame({"id": 1, "ok": {"version": 3, "status": pack(status)}})
    assert len(frame) < COORDINATOR_LIMIT
    assert unpack(json.loads(frame[4:])["ok"]["status"]) == unpack(status)


def test_unpacking_twice_changes_nothing() -> None:
    status = large(5, 2, 3)
    assert unpack(unpack(pack(status))) == unpack(status)
    assert unpack(status)["rounds"][0]["members"] == {"1": [0, 2], "2": [2, 2], "3": [4, 2], "4": [6, 2], "0": [8, 2]}


def test_a_status_without_nodes_is_as_before() -> None:
    status: dict[str, Any] = {"id": "x", "nodes": [], "rounds": [], "progress": None}
    assert unpack(pack(status)) == status


def test_names_that_are_no_numbers_are_kept() -> None:
    members = {"0": [0, 2], "guest": [2, 2], "007": [4, 1], "8": [5, 1], "9": [6, 1], "11": [7, 1]}
    past = {"number": 1, "nodes": list(members), "members": members}
    packed = pack({"rounds": [past]})["rounds"][0]
    assert packed["members"] == [["0", 0, 2], ["guest", 2, 2], ["007", 4, 1], ["8:9", 5, 1], ["11", 7, 1]]
    assert unpack({"rounds": [packed]})["rounds"] == [past]


def test_the_history_keeps_the_last_rounds_and_counts_all() -> None:
    history = History()
    for number in range(1, ROUNDS + 21):
        history.take({"kind": "running", "time": float(number), "round": number, "nodes": ["0"], "world_size": 1})
    assert (len(history.rounds), history.rounds[0]["number"], history.ran) == (ROUNDS, 21, ROUNDS + 20)
