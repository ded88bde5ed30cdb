"""A node among others: the coordinator goes and comes back, other nodes go, and the node still does the right thing."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Iterator

import pytest

from petctl.agent.workers import processes
from petctl.job.task import Timing
from petctl.rendezvous.core.messages import CANCELLED, ENDED_FAILED, SUCCEEDED, Outcome, encode
from petctl.rendezvous.net.join_file import read_join_file, write_join_file
from tests.integration.agent.conftest import Bench, alive
from tests.integration.waiting import until

# A worker that says who it is and ends when its file appears.
WAITS = """
import os, sys, time
print(os.getpid(), os.environ["WORLD_SIZE"], os.environ["PETCTL_ROUND"], flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


@pytest.fixture
def waits(bench: Bench) -> list[str]:
    path = bench.directory / "waits.py"
    path.write_text(WAITS)
    return [str(path), str(bench.directory / "go")]


def test_workers_go_on_under_a_replaced_coordinator(bench: Bench, waits: list[str]) -> None:
    bench.open("script", waits, procs="2")
    node = bench.agent()
    before = [bench.line(rank) for rank in (0, 1)]
    bench.close_coordinator()
    bench.open("script", waits, procs="2", epoch=2)
    until(lambda: bench.status()["phase"] == "running", "the replacement continues the round")
    assert bench.status()["round"] == 1
    assert all(alive(int(line.split()[0])) for line in before)
    Path(waits[1]).touch()
    assert bench.ended().state == SUCCEEDED
    assert node.wait() == 0


def test_without_a_coordinator_the_node_fences_itself(bench: Bench, waits: list[str]) -> None:
    bench.open("script", waits, timing=Timing(silence=0.5, fence_after=1.0))
    bench.agent()
    worker = int(bench.line().split()[0])
    bench.close_coordinator()
    until(lambda: not alive(worker), "the workers of a cut-off node are stopped")


def test_an_end_that_nobody_tells_is_looked_up(bench: Bench, waits: list[str]) -> None:
    bench.open("script", waits, grace=1.0)
    join, end = read_join_file(bench.join_path), bench.directory / "outcome.json"
    write_join_file(bench.join_path, replace(join, locator={**join.locator, "outcome": str(end)}))
    node = bench.agent()
    worker = int(bench.line().split()[0])
    bench.close_coordinator()
    end.write_text(json.dumps(encode(Outcome(ENDED_FAILED, 7, "over the time limit"))))
    assert node.wait() == 7
    assert "leaves: over the time limit" in node.log.read_text()
    assert not alive(worker)


def test_the_survivor_goes_on_in_a_new_round_when_a_node_is_killed(bench: Bench, waits: list[str]) -> None:
    bench.open("script", waits, nodes=2, min_nodes=1)
    first, second = bench.agent(node="n0"), bench.agent(node="n1")
    pids = [int(bench.line(rank).split()[0]) for rank in (0, 1)]
    os.kill(first.process.pid, signal.SIGKILL)
    assert bench.line(0, number=2).split()[1:] == ["1", "2"]
    assert not any(alive(pid) for pid in pids)
    Path(waits[1]).touch()
    assert bench.ended().state == SUCCEEDED
    assert second.wait() == 0


def test_what_a_round_left_running_is_gone_before_the_next_begins(bench: Bench) -> None:
    child = bench.directory / "child"
    stubborn = f"trap : TERM; echo $$ > {child}; while :; do sleep 600; done"
    first = f"setsid sh -c '{stubborn}' & until test -s {child}; do :; done; exit 1"
    second = f"if kill -0 $(cat {child}); then exit 9; fi"
    bench.open("shell", [f"if test $PETCTL_ROUND = 1; then {first}; else {second}; fi"], restarts=1, grace=0.5)
    bench.agent()
    assert bench.ended().state == SUCCEEDED


def test_cancel_gives_the_workers_their_grace(bench: Bench) -> None:
    program = (
        "import signal, sys\n"
        "def end(*_):\n    print('saved', flush=True)\n    sys.exit(0)\n"
        "signal.signal(15, end)\nprint('up', flush=True)\nsignal.pause()\n"
    )
    bench.open("program", [sys.executable, "-c", program], grace=20.0)
    node = bench.agent()
    bench.line()
    bench.cancel()
    assert bench.ended().state == CANCELLED
    assert node.wait() == 130
    assert bench.log().read_text() == "up\nsaved\n"


def test_a_second_ctrl_c_kills_at_once(bench: Bench) -> None:
    bench.open("shell", ["trap '' TERM INT; echo up; while :; do sleep 600; done"], grace=600.0)
    node = bench.agent()
    bench.line()
    node.process.send_signal(signal.SIGINT)
    until(lambda: "stopping the workers" in node.log.read_text(), "the first one is being handled")
    node.process.send_signal(signal.SIGINT)
    assert node.wait() == 0
    bench.nothing_left()


@pytest.fixture
def revived(bench: Bench) -> Iterator[Any]:
    """What the agents are told to start when the coordinator is gone: it notes who it is, and waits."""
    note = bench.directory / "revived"
    program = (
        "import os, signal; open(os.environ['NOTE'], 'a').write("
        "f\"{os.getpid()} {os.getppid()} {'PETCTL_NODE_KEY' in os.environ}\\n\"); signal.pause()"
    )
    argv = ["/usr/bin/env", f"NOTE={note}", sys.executable, "-c", program]
    yield {"argv": argv, "lock": str(bench.directory / "revive.lock")}, note
    for line in note.read_text().splitlines() if note.exists() else ():
        os.kill(int(line.split()[0]), signal.SIGKILL)


def test_a_supervisor_is_revived_once_and_outside_the_node(bench: Bench, waits: list[str], revived: Any) -> None:
    revive, note = revived
    bench.open("script", waits, nodes=2, revive=revive)
    nodes = [bench.agent(node=name) for name in ("n0", "n1")]
    bench.line(0), bench.line(1)
    bench.close_coordinator()
    whole = lambda: note.exists() and note.read_text().endswith("\n") and note.read_text()  # noqa: E731
    [line] = until(whole, "somebody starts a new supervisor").splitlines()
    pid, parent, marked = line.split()
    assert marked == "False"
    assert int(parent) not in {node.process.pid for node in nodes}
    living = processes.table()
    assert all(int(pid) not in processes.descendants(node.process.pid, living) for node in nodes)
    for node in nodes:  # whoever goes first lets the other one try
        node.terminate()
        node.wait()
    assert alive(int(pid))
    bench.nothing_left()
