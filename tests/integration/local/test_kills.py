"""Everything in a job can be killed -9, and the job goes on; and when everything is killed at once, nothing is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.agent.node import runtime_dir
from petctl.jobs import JobHandle, list_jobs
from petctl.rendezvous.core.messages import Header, Report, encode
from petctl.rendezvous.net.client import AgentLink
from petctl.rendezvous.net.join_file import read_join_file
from tests.integration.local.conftest import (
    Stage,
    children,
    exists,
    guardian,
    job_path,
    processes_of,
    still_there,
    supervisor_pid,
)
from tests.integration.waiting import DEADLINE, until


def test_a_killed_worker_costs_one_restart(stage: Stage) -> None:
    handle = stage.start(nodes=2)
    first = stage.running(2)
    os.kill(stage.marks(first)[0].pid, signal.SIGKILL)
    stage.running(2, after=first)
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent, len(status.rounds)) == ("succeeded", 1, 2)
    assert status.rounds[1].seconds_lost > 0


def restarted(handle: JobHandle, node: str) -> Any:
    """The node's row, once it tells of a restart."""
    return next((row for row in handle.status().nodes if row.name == node and row.restarts), None)


@pytest.mark.parametrize("who", ["agent", "guardian"])
@pytest.mark.parametrize("node", ["0", "1"])
def test_a_killed_node_is_replaced_and_not_charged(stage: Stage, who: str, node: str) -> None:
    handle = stage.start(nodes=2)
    first = stage.running(2)
    old = next(mark.pid for mark in stage.marks(first) if mark.node == node)
    top = guardian(handle, node)
    os.kill(top if who == "guardian" else children(top)[0], signal.SIGKILL)
    stage.running(2, after=first)
    assert not exists(old)
    assert not exists(top)
    row = until(lambda: restarted(handle, node), "the restart in the status, which is written after the fact")
    assert row.restarts == 1
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent) == ("succeeded", 0)


def test_a_job_with_a_lost_node_goes_on_below_its_wanted_size(stage: Stage) -> None:
    handle = stage.start(nodes="1:2")
    first = stage.running(2)
    os.kill(guardian(handle, "1"), signal.SIGKILL)
    after = until(lambda: [mark for mark in stage.marks() if mark.round > first], "a next round")
    assert after[0].world in (1, 2)
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


def test_a_killed_supervisor_comes_back_and_touches_nobody(stage: Stage) -> None:
    handle = stage.start(nodes=2)
    number = stage.running(2)
    before = stage.marks()
    old = supervisor_pid(handle)
    os.kill(old, signal.SIGKILL)
    until(lambda: supervisor_pid(handle) != old, "a new supervisor")
    until(lambda: "continued" in [event["kind"] for event in handle.events()], "the round going on under it")
    stage.goes_on(number, 2)
    assert stage.marks() == before
    status = until(lambda: (now := handle.status()).epoch == 2 and now, "a status of the new supervisor")
    assert (status.epoch, status.state) == (2, "running")
    assert [past.number for past in status.rounds] == [number]
    assert [node.name for node in status.nodes] == ["0", "1"]

    os.kill(guardian(handle, "0"), signal.SIGKILL)  # the new one can do all that the old one could
    stage.running(2, after=number)
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent) == ("succeeded", 0)
    assert not still_there([job_path(handle)])


def test_a_node_that_is_held_up_while_the_supervisor_is_replaced_costs_no_round(stage: Stage) -> None:
    handle = stage.start(nodes=2, rendezvous={"silence": 1})
    number = stage.running(2)
    agent, old = children(guardian(handle, "1"))[0], supervisor_pid(handle)
    for pid, what in ((agent, signal.SIGSTOP), (old, signal.SIGKILL)):
        os.kill(pid, what)
    try:
        until(lambda: supervisor_pid(handle) != old, "a new supervisor")
        for _ in range(40):  # each takes three steps of 0.02 s: twice the silence
            stage.goes_on(number, 2)
    finally:
        os.kill(agent, signal.SIGCONT)
    until(lambda: "continued" in [event["kind"] for event in handle.events()], "the round going on under it")
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent, len(status.rounds)) == ("succeeded", 0, 1), list(handle.events())


def test_a_member_that_joined_by_hand_is_waited_for_when_the_supervisor_is_replaced(stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    handle = stage.start(nodes="1:2", rendezvous={"resize_interval": 0.1})
    first = stage.running(1)
    handle.token(stage.path / "join.json")
    command = [sys.executable, "-m", "petctl.agent", "join", "--file", "join.json", "--node", "guest"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as guest:
        try:
            second = stage.running(2, after=first)
            agent, old = children(guest.pid)[0], supervisor_pid(handle)
            os.kill(agent, signal.SIGSTOP)  # it is slower than the new supervisor's own node
            try:
                os.kill(old, signal.SIGKILL)
                until(lambda: "1 of 2 members" in handle.status().sentence, "a new one that waits for the guest")
            finally:
                os.kill(agent, signal.SIGCONT)
            until(lambda: "continued" in [event["kind"] for event in handle.events()], "the round going on")
            stage.goes_on(second, 2)
            stage.finish()
            assert [past.number for past in handle.wait(DEADLINE).rounds] == [first, second]
        finally:
            guest.terminate()


def test_a_deposed_supervisor_ends_and_leaves_the_nodes_alone(stage: Stage) -> None:
    handle = stage.start(nodes=1)
    number = stage.running(1)
    old = supervisor_pid(handle)
    handle.token(stage.path / "join.json")
    join = read_join_file(stage.path / "join.json")

    async def tell_of_a_newer_one() -> None:
        link = AgentLink(join)
        await link.connect(10.0)
        newer = Header(epoch=1, leader="another", seq=1, round=number, ran=number, wanted=1)
        link.send({"report": encode(Report("messenger", "i1", 1, 1, "127.0.0.1", newer))})
        until(lambda: not exists(old), "the end of the deposed supervisor")
        link.close()

    asyncio.run(tell_of_a_newer_one())
    until(lambda: "deposed" in [event["kind"] for event in handle.events()], "what happened, in the events")
    stage.goes_on(number, 1)
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


def test_a_wish_survives_the_supervisor(stage: Stage) -> None:
    handle = stage.start(nodes="1:1:2")
    first = stage.running(1)
    handle.scale(2)
    second = stage.running(2, after=first)
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    assert "1" in handle.scale(1)
    stage.running(1, after=second)
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    handle.cancel()
    assert handle.wait(DEADLINE).state == "cancelled"


def test_everything_killed_at_once_is_lost_and_leaves_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    handle = stage.start(nodes=2)
    stage.running(2)
    path = job_path(handle)
    # Supervisor, its standby, 2 guardians, 2 agents, 2 workers.
    found = until(lambda: len(processes_of(path)) == 8 and processes_of(path), "all processes of the job")
    private_directories = [Path("/tmp", runtime_dir.name_of(str(node))) for node in (path / "nodes").iterdir()]
    assert all(directory.is_dir() for directory in private_directories)
    # One worker is left for the sweep; all others are stopped first, so that nobody is brought back between two kills.
    spared = stage.marks()[0].pid
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            if pid != spared and exists(pid):
                os.kill(pid, number)
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("lost", 70)
    assert "killed" in status.sentence
    assert not still_there([path])
    assert not any(directory.exists() for directory in private_directories)
    assert [job.state for job in list_jobs()] == ["lost"]


def test_a_job_whose_supervisor_never_begins_is_lost(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("petctl.clusters.local.queue.scheduler.MOST_LIVES", 2)
    monkeypatch.setattr("petctl.clusters.local.controller.spawn.start_detached", lambda argv, directory, lock: None)
    handle = petctl.submit(petctl.Job(shell="true"))
    assert handle.status().state == "pending"
    status = handle.wait(DEADLINE)
    assert status.state == "lost"
    assert "supervisor.log" in status.sentence


def test_a_queued_job_survives_its_supervisor(stage: Stage) -> None:
    """Only the head of the line has one; killed, it is started anew by whoever looks, and the job keeps its place."""
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    first = stage.start()
    stage.running(1)
    second, third = stage.start(), stage.start()
    path = job_path(second)
    (head,) = until(lambda: processes_of(path), "the supervisor of the head")
    assert processes_of(job_path(third)) == []
    os.kill(head, signal.SIGKILL)
    until(lambda: [pid for pid in processes_of(path) if pid != head], "another one")
    assert [job.status().sentence.partition(",")[0] for job in (second, third)] == [
        "queued: 0 jobs ahead",
        "queued: 1 job ahead",
    ]
    stage.finish()
    assert [job.wait(DEADLINE).state for job in (first, second, third)] == ["succeeded"] * 3
    assert len(stage.marks()) == 3


def test_all_nodes_and_then_the_supervisor_can_be_killed(stage: Stage) -> None:
    handle = stage.start(nodes=2)
    first = stage.running(2)
    until(lambda: len(processes_of(job_path(handle))) == 8, "the standby")
    for node in ("0", "1"):
        os.kill(guardian(handle, node), signal.SIGKILL)
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    stage.running(2, after=first)
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent) == ("succeeded", 0)


def test_a_silent_node_is_put_down_and_replaced(stage: Stage) -> None:
    handle = stage.start(nodes=2, rendezvous={"silence": 1, "fence_after": 60})
    first = stage.running(2)
    top = guardian(handle, "1")
    agent = children(top)[0]
    os.kill(agent, signal.SIGSTOP)
    stage.running(2, after=first)
    assert not exists(top)
    assert not exists(agent)
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


def test_a_draft_of_a_killed_submitter_is_not_a_job(stage: Stage) -> None:
    jobs = stage.path / "home" / "jobs"
    draft = jobs / ".new-0123456789ab"
    draft.mkdir(parents=True)
    os.utime(draft, (0, 0))
    assert list_jobs() == []
    stage.finish()
    stage.start().wait(DEADLINE)
    assert not draft.exists()
    assert [path for path in Path(jobs).iterdir() if path.name.startswith(".")] == []
