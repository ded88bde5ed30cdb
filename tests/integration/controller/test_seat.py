"""Two coordinators of one job at the same time, as where a kubelet has died and its pods live on."""

from __future__ import annotations

import json
from pathlib import Path

from petctl.controller.seat import DEPOSED
from petctl.errors import Unreachable
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import read_join_file
from tests.integration.controller.conftest import PodBench
from tests.integration.elastic.harness import free_port
from tests.integration.waiting import until


def lead_to(place: Path, port: int) -> None:
    place.write_text(json.dumps({"address": f"127.0.0.1:{port}"}))


def listens(bench: PodBench) -> bool:
    try:
        with ControlLink(read_join_file(bench.join_path)) as link:
            return bool(link.call("status"))
    except Unreachable:
        return False


def test_an_older_coordinator_goes_when_a_newer_one_is_found_in_its_place(bench: PodBench) -> None:
    bench.steps(recover_within=15.0)
    place, newer = bench.found_by_file(), free_port()
    lead_to(place, bench.port)
    old = bench.coordinate()
    nodes = [bench.node(index) for index in (0, 1)]
    workers = [bench.up(node, 1, 2) for node in nodes]
    lead_to(place, newer)
    new = bench.coordinate(replacement=1, port=newer)
    assert old.wait() == DEPOSED
    until(lambda: new.events("continued"), "the round goes on under the newer one")
    assert [event["sentence"] for event in new.events("overlap")] == [
        "the previous coordinator was still running: it had round 1 on 2 nodes; stopping it; nothing was trained twice"
    ]
    assert [event["kind"] for event in old.events()][-1] == "deposed"
    assert bench.call("status")["round"] == 1
    bench.go.touch()
    assert new.wait() == 0 and [node.wait() for node in nodes] == [0, 0]
    assert [bench.up(node, 1, 2) for node in nodes] == workers  # the same processes to the end
    bench.nothing_left()


def test_what_two_sides_trained_at_the_same_time_is_told(bench: PodBench) -> None:
    bench.steps(nodes=1, least=1, most=3, recover_within=0.5)
    place, newer = bench.found_by_file(), free_port()
    lead_to(place, bench.port)
    old = bench.coordinate()
    first = bench.node(0)
    bench.up(first, 1, 1)
    lead_to(place, newer)
    new = bench.coordinate(replacement=1, port=newer)
    until(lambda: listens(bench), "the newer one listens")
    second = bench.node(1)
    bench.up(second, 1, 1)  # it knows of no other round
    assert old.wait() == DEPOSED
    (told,) = until(lambda: new.events("overlap"), "the overlap is told")
    assert "s, so the checkpoints from that time mix two trainings" in told["sentence"]
    assert (told["round"], told["nodes"]) == (1, ["0"])
    assert "two coordinators trained at once for " in bench.call("status")["sentence"]
    bench.go.touch()
    assert new.wait() == 0
    bench.nothing_left()
