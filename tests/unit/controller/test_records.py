"""History is a fold over events, so a replaced supervisor knows what its predecessor knew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from petctl.controller.journals.records import KEPT_ROUNDS, History, close_status, first_status
from petctl.controller.status_builder import node_rows, sentence_of, state_of
from petctl.job.events import append_event, new_event, read_events
from petctl.job.status import ErrorStatus, NodeStatus
from petctl.rendezvous.core.messages import LEFT, Failure, Outcome, encode
from petctl.rendezvous.net.server import _is_history
from tests.unit.records import job_record


def test_seconds_lost_are_counted_from_the_break_to_the_next_running() -> None:
    history = History()
    story: list[tuple[float, str, dict[str, Any]]] = [
        (1.0, "started", {}),
        (2.0, "round", {"round": 1, "reason": "the job starts"}),
        (3.0, "running", {"round": 1, "nodes": ["0", "1"], "world_size": 2}),
        (8.9, "failure", {"spent": 1}),
        (9.0, "round", {"round": 2, "reason": "node 1 was lost"}),
        (9.5, "node", {"node": "1", "restart": True}),
        (10.0, "round", {"round": 3, "reason": "node 0 was lost too"}),
        (11.5, "running", {"round": 3, "nodes": ["0"], "world_size": 1}),
    ]
    for time, kind, fields in story:
        history.take({"time": time, "kind": kind, **fields})
    assert [(past.number, past.seconds_lost) for past in history.rounds] == [(1, 0.0), (3, 2.5)]
    assert history.rounds[1].reason == "node 0 was lost too"
    assert history.restarts == {"1": 1}
    assert (history.started, history.broken, history.round, history.spent) == (1.0, None, 3, 1)


def test_seconds_lost_last_until_the_workers_train_where_they_tell() -> None:
    history = History()
    history.take({"time": 1.0, "kind": "running", "round": 1, "nodes": ["0", "1"], "world_size": 2})
    history.take({"time": 2.0, "kind": "training", "round": 1})
    history.take({"time": 9.0, "kind": "round", "round": 2, "reason": "node 1 was lost"})
    history.take({"time": 9.5, "kind": "running", "round": 2, "nodes": ["0"], "world_size": 1})
    assert history.rounds[1].seconds_lost == 0.5, "as far as is known"
    history.take({"time": 21.0, "kind": "training", "round": 2})
    history.take({"time": 30.0, "kind": "training", "round": 2})  # of a coordinator that has taken over
    assert [past.seconds_lost for past in history.rounds] == [0.0, 12.0]


def test_a_round_whose_beginning_is_not_known_is_there_once() -> None:
    history = History()
    event = {"kind": "continued", "sentence": "round 4 goes on", "round": 4, "nodes": ["0"], "members": {"0": [0, 2]}}
    history.take({"time": 5.0, **event})
    history.take({"time": 6.0, **event})
    assert [(past.number, past.started, past.members) for past in history.rounds] == [(4, 5.0, {"0": [0, 2]})]
    assert history.round == 4
    history.take({"time": 7.0, "kind": "round", "round": 5, "reason": "node 0 was lost"})
    history.take({"time": 9.0, "kind": "running", "round": 5, "nodes": ["1"], "world_size": 1})
    assert history.rounds[1].seconds_lost == 2.0


def test_a_torn_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    append_event(path, new_event("started", "a"))
    with open(path, "a") as file:
        file.write("[" * 100_000 + '\n[1]\n{"time": 1}\n{"time": 1, "kind": "run')
    append_event(path, new_event("closing", "b", code=3))
    assert [(event["kind"], event["sentence"]) for event in read_events(path)] == [("started", "a"), ("closing", "b")]
    assert read_events(tmp_path / "none") == []


def test_a_replaced_coordinator_does_not_change_the_state() -> None:
    assert state_of("gathering", "pending", False) == "starting"
    assert state_of("running", "starting", False) == "running"
    assert state_of("gathering", "running", True) == "recovering"
    assert state_of("recovering", "running", True) == "running"
    assert state_of("closed", "recovering", True) == "recovering"
    assert state_of("closing", "queued", False) == "starting"


def test_rows_join_what_the_coordinator_and_the_keeper_know() -> None:
    joined = {"address": "127.0.0.1", "procs": 2, "state": "running", "rank": 1, "first_rank": 2, "note": ""}
    facts = {"nodes": [{"name": "10", **joined}, {"name": "laptop-1f", **joined, "first_rank": None, "rank": None}]}
    kept = {
        "10": {"pid": 7, "restarts": 1, "sentence": "joining"},
        "9": {"pid": 8, "restarts": 0, "sentence": "joining"},
    }
    rows = node_rows(facts, kept)
    assert [(row.name, row.state, row.ranks, row.pid) for row in rows] == [
        ("9", "starting", [], 8),
        ("10", "running", [2, 3], 7),
        ("laptop-1f", "running", [], 0),
    ]


def test_the_sentence_tells_about_missing_slots_and_the_end() -> None:
    facts = {"sentence": "running on 1 node"}
    assert sentence_of(facts, 1, "", 1, 1) == "running on 1 node"
    assert sentence_of(facts, 1, "", 1, 3) == "running on 1 node; 1 of 3 nodes have slots"
    assert (
        sentence_of(facts, 2, "cancelled by the user", 1, 1) == "ending (cancelled by the user): 2 nodes are stopping"
    )


def test_the_last_picture_keeps_the_nodes_but_says_that_they_are_gone() -> None:
    status = replace(first_status(job_record()), state="running", nodes=[NodeStatus("0", "running", pid=9)])
    closed = close_status(status, Outcome("failed", 3, "x", Failure("0", 1, 0, 3)), 5.0)
    assert closed.nodes == [NodeStatus("0", "gone")]
    assert (closed.state, closed.exit_code, closed.finished) == ("failed", 3, 5.0)
    assert closed.error == ErrorStatus("0", 1, 0, 3)


def test_losses_and_lost_seconds_are_counted_over_all_rounds_and_coordinators() -> None:
    history = History()
    for number in range(1, 151):  # more rounds than a status tells
        history.take({"kind": "round", "time": number * 10.0, "round": number, "reason": "x"})
        history.take({"kind": "running", "time": number * 10.0 + 1, "round": number, "members": {"0": [0, 1]}})
        history.take({"kind": "lost", "time": number * 10.0 + 2, "node": "1", "why": "its connection closed"})
    history.take({"kind": "lost", "time": 1600.0, "node": "2", "why": LEFT})
    assert (history.nodes_lost, history.seconds_lost) == (150, 149.0)
    history.take({"kind": "training", "time": 1503.0, "round": 150})  # which began to train 2 s after it began to run
    assert history.seconds_lost == 151.0
    later = History()
    for _ in range(2):  # two nodes have kept the same
        later.take({"kind": "history", "time": 2000.0, "since": 1999.0, **history.kept()})
    later.take({"kind": "lost", "time": 2001.0, "node": "1", "why": "its connection closed"})
    assert (later.nodes_lost, later.seconds_lost) == (151, 151.0)


def failed(rank: int) -> dict[str, Any]:
    """As another coordinator's history tells it."""
    return encode(Failure("0", rank, 0, 1))


def ran(number: int) -> History:
    """What the coordinator of a job with so many rounds, one every 10 s, knows."""
    history = History()
    for each in range(1, number + 1):
        history.take({"kind": "running", "time": each * 10.0, "round": each, "members": {"0": [0, 1]}})
    return history


def test_a_replaced_coordinator_counts_the_rounds_that_no_node_has_kept() -> None:
    later = History()
    later.take({"kind": "history", "time": 2000.0, "since": 1999.0, **ran(120).kept()})
    assert (later.ran, len(later.rounds)) == (120, KEPT_ROUNDS)
    later.take({"kind": "continued", "time": 2001.0, "round": 120, "members": {"0": [0, 1]}, "sentence": "it goes on"})
    assert later.ran == 120
    later.take({"kind": "running", "time": 2002.0, "round": 121, "members": {"0": [0, 1]}})
    assert later.kept()["ran"] == 121


def test_a_history_that_comes_after_the_round_goes_on_counts_no_round_twice() -> None:
    later = History()
    later.take({"kind": "continued", "time": 2001.0, "round": 120, "members": {"0": [0, 1]}, "sentence": "it goes on"})
    later.take({"kind": "running", "time": 2002.0, "round": 121, "members": {"0": [0, 1]}})
    later.take({"kind": "history", "time": 2003.0, "since": 1999.0, **ran(120).kept()})
    assert later.ran == 121
    assert [past.number for past in later.rounds] == [*range(71, 122)]
    assert later.broken is None


def test_a_newer_history_corrects_an_older_one() -> None:
    later, old, new = History(), ran(5).kept(), ran(120).kept()
    later.take({"kind": "history", "time": 2000.0, "since": 60.0, **old, "last_failure": failed(1)})
    later.take({"kind": "history", "time": 2000.1, "since": 1999.0, **new, "last_failure": failed(2)})
    assert (later.ran, later.broken, later.last_failure) == (120, 1999.0, ErrorStatus("0", 2, 0, 1))
    assert [past.number for past in later.rounds] == [*range(1, 6), *range(71, 121)]
    later.take({"kind": "running", "time": 2001.0, "round": 121, "members": {"0": [0, 1]}})
    assert later.rounds[-1].seconds_lost == 2.0, "from when the newest coordinator was lost"


def test_what_nodes_keep_is_what_the_next_coordinator_takes() -> None:
    history = ran(3)
    history.take({"kind": "failure", "time": 40.0, "failure": failed(1), "spent": 1})
    kept = json.loads(json.dumps(history.kept()))
    assert _is_history({**kept, "at": [1, 3]})
    later = History()
    later.take({"kind": "history", "time": 50.0, "since": 45.0, **kept})
    assert (later.rounds, later.last_failure) == (history.rounds, history.last_failure)
