"""Whole jobs on this machine, undisturbed: they run, end with the right code, scale, queue, and can be ended."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

import petctl
from petctl.clusters.local.job_directory import JobDirectory
from petctl.errors import NotFound, PetctlError, UsageError
from petctl.files import locked
from petctl.jobs import JobHandle, get, list_jobs, render, submit
from petctl.jobs.secrets import remove_secret, set_secret
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import read_join_file
from tests.integration.local.conftest import (
    Stage,
    exists,
    job_path,
    processes_of,
    still_there,
    supervisor_pid,
)
from tests.integration.waiting import DEADLINE, until


def test_two_nodes_say_hello(stage: Stage) -> None:
    stage.finish()
    handle = stage.start(nodes=2, procs=2)
    lines = list(handle.logs(follow=True))
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code, status.final) == ("succeeded", 0, True)
    assert sorted(line.text for line in lines) == [b"rank %d of 4 in round 1\n" % rank for rank in range(4)]
    assert {(line.rank, line.node) for line in lines} == {(0, "0"), (1, "0"), (2, "1"), (3, "1")}
    assert [(past.number, past.nodes, past.world_size) for past in status.rounds] == [(1, ["0", "1"], 4)]
    assert status.code.startswith("snapshot ")
    assert str(stage.path) in status.code
    assert not still_there([job_path(handle)])


def test_the_exit_code_of_a_worker_is_the_jobs(stage: Stage) -> None:
    status = stage.start("exit", "7", restarts=0).wait(DEADLINE)
    assert (status.state, status.exit_code) == ("failed", 7)
    assert status.error is not None
    assert (status.error.rank, status.error.node, status.error.code) == (0, "0", 7)


def test_a_worker_that_always_fails_uses_up_the_restarts(stage: Stage) -> None:
    status = stage.start("fail", nodes=2, restarts=2).wait(DEADLINE)
    assert (status.state, status.exit_code, status.spent, len(status.rounds)) == ("failed", 1, 2, 3)
    assert status.error is not None
    assert status.error.rank == 0
    assert "out of luck" in status.error.traceback


def test_scale_up_and_down(stage: Stage) -> None:
    handle = stage.start(nodes="1:1:3")
    first = stage.running(1)
    assert "3" in handle.scale(3)
    second = stage.running(3, after=first)
    handle.scale(2)
    third = stage.running(2, after=second)
    until(lambda: [node.name for node in handle.status().nodes] == ["0", "1"], "two nodes in the status")
    assert handle.status().size.wanted == 2
    with pytest.raises(UsageError, match="1 to 3"):
        handle.scale(4)
    with pytest.raises(UsageError, match="a whole number, not True"):
        handle.scale(True)
    join = read_join_file(job_path(handle) / "join.json")
    with (
        ControlLink(join.for_control((job_path(handle) / "token").read_text().strip())) as link,
        pytest.raises(PetctlError, match="'wanted' must be a whole number, not true"),
    ):
        link.call("scale", wanted=True)
    with ControlLink(join) as link, pytest.raises(PetctlError, match="'scale' is not allowed for nodes"):
        link.call("scale", wanted=1)
    stage.finish()
    status = handle.wait(DEADLINE)
    assert (status.state, status.spent) == ("succeeded", 0)
    assert [past.number for past in status.rounds] == [first, second, third]
    assert {line.round for line in handle.logs(tail=1)} == {max(line.round for line in handle.logs())}


def test_nodes_that_are_not_wanted_any_more_when_they_join_go_again(stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 3}}\n")
    handle = stage.start(nodes="1:1:3")
    first = stage.running(1)
    handle.scale(3)
    handle.scale(1)
    events = job_path(handle) / "events.jsonl"
    begun = lambda: len(re.findall(r"started node [12]", events.read_text()))  # noqa: E731
    gone = lambda: len(re.findall(r"node [12] exited with code 0", events.read_text()))  # noqa: E731
    until(lambda: begun() > 0 and begun() == gone(), "whoever was started has gone")
    until(lambda: [node.name for node in handle.status().nodes] == ["0"], "one node in the status")
    other = submit(petctl.Job(program=["true"], nodes=2, cwd=stage.path))
    assert other.wait(DEADLINE).state == "succeeded", "in the slots of those that went"
    stage.goes_on(first, 1)
    stage.finish()
    assert [past.number for past in handle.wait(DEADLINE).rounds] == [first]


def held_back(handle: JobHandle) -> AbstractContextManager[None]:
    """Nobody gets at the job's code meanwhile."""
    return locked(str(job_path(handle) / "code.lock"))


def test_nobody_stops_for_a_node_whose_code_is_still_coming(stage: Stage) -> None:
    handle = stage.start(nodes="1:1:2")
    first = stage.running(1)
    with held_back(handle):
        handle.scale(2)
        until(lambda: "node 1 joined" in (job_path(handle) / "events.jsonl").read_text(), "a second node")
        stage.goes_on(first, 1)
    second = stage.running(2, after=first)
    stage.finish()
    assert [past.number for past in handle.wait(DEADLINE).rounds] == [first, second]


def test_workers_that_can_be_started_early_wait_for_their_code_too(stage: Stage) -> None:
    worker = Path(__file__).parents[1] / "agent" / "elastic_worker.py"
    (stage.path / "parks.py").write_bytes(worker.read_bytes())
    handle = submit(petctl.Job(script="parks.py", nodes="1:1:2", cwd=stage.path, grace=2))

    def pid_in(name: str) -> str:
        path = job_path(handle) / "logs" / name
        found = re.search(r", pid (\d+)\n", path.read_text()) if path.exists() else None
        return found.group(1) if found else ""

    until(lambda: pid_in("round-0001/rank-0.out"), "the first round, whose worker has said that it parks")
    with held_back(handle):
        handle.scale(2)
        until(lambda: "node 1 joined" in (job_path(handle) / "events.jsonl").read_text(), "a second node")

    early = until(lambda: pid_in("early-1-0.out"), "a worker without a place")
    assert until(lambda: pid_in("round-0002/rank-1.out"), "a worker of the second round") == early
    handle.cancel(kill=True)
    assert len(handle.wait(DEADLINE).rounds) == 2


def test_cancel_lets_workers_go(stage: Stage) -> None:
    handle = stage.start(nodes=2)
    number = stage.running(2)
    pids = [mark.pid for mark in stage.marks(number)]
    handle.cancel()
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("cancelled", 130)
    assert not any(exists(pid) for pid in pids)
    assert handle.cancel() == "has ended already"


def test_kill_does_not_wait_for_the_grace(stage: Stage) -> None:
    handle = stage.start("stubborn", grace=300)
    stage.running(1)
    handle.cancel(kill=True)
    assert handle.wait(DEADLINE).state == "cancelled"


def test_a_job_over_its_time_ends_with_124(stage: Stage) -> None:
    for seconds in (1, 5, 25):  # the first in which a worker comes up: how long that takes is the machine's business
        status = stage.start(max_time=seconds).wait(DEADLINE)
        assert (status.state, status.exit_code) == ("failed", 124)
        assert "time limit" in status.sentence
        if stage.steps(1, 0):
            return
    pytest.fail("no worker came up")


def test_jobs_wait_in_line_for_slots(stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 2}}\n")
    first = stage.start(nodes=2)
    stage.running(2)
    second = stage.start(nodes=2)
    third = stage.start(nodes=1)
    urgent = stage.start(nodes=1, priority=5)
    for job in (second, third, urgent):
        until(lambda job=job: job.status().state == "queued", f"{job.id} in the queue")  # type: ignore[misc]
    until(
        lambda: third.status().sentence == "queued: 2 jobs ahead, needs 1 of 2 node slots, 0 free", "the third's place"
    )
    third.cancel()
    assert third.wait(DEADLINE).sentence == "cancelled while it was queued"
    stage.finish()
    done = [job.wait(DEADLINE) for job in (first, urgent, second)]
    assert [status.state for status in done] == ["succeeded"] * 3
    starts = [status.started or 0.0 for status in done]
    assert starts == sorted(starts)
    with pytest.raises(UsageError, match="2 node slots"):
        stage.start(nodes=3)


def test_an_elastic_job_starts_small_and_grows_when_slots_are_free(stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 3}}\n")
    blocker = petctl.submit(petctl.Job(shell="trap 'exit 0' TERM; sleep 100 & wait", nodes=2, grace=1))
    until(lambda: blocker.status().state == "running", "the other job running")
    handle = stage.start(nodes="1:3")
    first = stage.running(1)
    until(lambda: "1 of 3 nodes have slots" in handle.status().sentence, "why it is so small")
    blocker.cancel()
    stage.running(3, after=first)
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


def test_secrets_reach_the_workers_and_no_file(stage: Stage) -> None:
    with pytest.raises(NotFound, match="petctl secret set key"):
        stage.start(secrets={"API_KEY": "key"})
    set_secret("key", "very-secret-value")
    line = 'printf %s "$API_KEY" | rev > "$PETCTL_OUTPUT_DIR/seen"'
    job = petctl.Job(shell=line, secrets={"API_KEY": "key"}, restarts=0)
    handle = petctl.submit(job)
    assert handle.wait(DEADLINE).state == "succeeded"
    assert (job_path(handle) / "outputs" / "seen").read_text() == "very-secret-value"[::-1]
    for path in job_path(handle).rglob("*"):
        assert not path.is_file() or b"very-secret-value" not in path.read_bytes(), path
    assert "very-secret-value" not in render(job)
    assert (stage.path / "home" / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_the_users_words_survive(stage: Stage) -> None:
    words = ["a b", "", "'", '"', "$HOME", "--", "*", "ü\n"]
    program = ["python3", "-c", "import sys; print(ascii(sys.argv[1:]))", *words]
    handle = petctl.submit(petctl.Job(program=program))
    assert [line.text for line in handle.logs(follow=True)] == [f"{words!a}\n".encode()]


def test_the_submitters_environment_reaches_the_workers(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_SUBMITTER", "here")
    handle = petctl.submit(petctl.Job(shell='echo "$FROM_SUBMITTER $FROM_JOB $PWD"', env={"FROM_JOB": "there"}))
    assert [line.text for line in handle.logs(follow=True)] == [f"here there {stage.path}\n".encode()]


def test_jobs_are_listed_found_and_removed(stage: Stage) -> None:
    stage.finish()
    handle = stage.start(name="alpha")
    other = stage.start(name="beta")
    handle.wait(DEADLINE)
    other.wait(DEADLINE)
    (stage.path / "finish").unlink()
    long = stage.start(name="gamma")
    with pytest.raises(UsageError, match="has not ended"):
        long.remove()
    assert [status.name for status in list_jobs()] == ["gamma", "beta", "alpha"]
    assert get("alph").id == get(handle.id[-4:]).id == handle.id
    for damage in ("", "not a database"):
        (stage.path / "home" / "registry.db").write_text(damage)
        assert len(list_jobs()) == 3
    handle.remove()
    long.remove(force=True)
    assert [status.name for status in list_jobs()] == ["beta"]
    with pytest.raises(NotFound):
        get(handle.id)


def test_exec_forward_and_token(stage: Stage) -> None:
    handle = stage.start(nodes=2)
    stage.running(2)
    command = 'echo "$PETCTL_JOB_ID $PETCTL_NODE $PWD" > "$PETCTL_OUTPUT_DIR/said"; exit 3'
    assert handle.exec(["sh", "-c", command], node="1") == 3
    job = job_path(handle)
    assert (job / "outputs" / "said").read_text() == f"{handle.id} 1 {stage.path}\n"
    with pytest.raises(NotFound, match="its nodes: 0, 1"):
        handle.exec(["true"], node="9")
    (stage.path / "no-program").write_text("no program\n")
    (stage.path / "no-program").chmod(0o755)
    with pytest.raises(UsageError, match="Exec format error"):
        handle.exec([str(stage.path / "no-program")])
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
        with (
            handle.forward(server.getsockname()[1]) as port,
            socket.create_connection(("127.0.0.1", port), DEADLINE) as peer,
        ):
            assert peer.recv(5) == b"hello"
    path = stage.path / "join.json"
    handle.token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["job"] == handle.id
    with pytest.raises(UsageError, match="--listen"):
        handle.token(path, address="10.0.0.1")


def test_events_tell_the_story(stage: Stage) -> None:
    stage.finish()
    handle = stage.start()
    kinds = [event["kind"] for event in handle.events(follow=True)]
    assert kinds[0] == "started"
    assert kinds[-1] == "closing"
    assert {"node", "joined", "round", "running"} <= set(kinds)


def test_logs_can_be_narrowed(stage: Stage) -> None:
    stage.finish()
    handle = stage.start(nodes=2)
    handle.wait(DEADLINE)
    assert [line.rank for line in handle.logs(rank=1)] == [1]
    assert [line.rank for line in handle.logs(node="0")] == [0]
    assert not list(handle.logs(round=2))
    assert len(list(handle.logs(tail=1))) == 2


def test_a_damaged_job_does_not_hide_the_others(stage: Stage) -> None:
    stage.finish()
    handle, other = stage.start(), stage.start()
    handle.wait(DEADLINE)
    other.wait(DEADLINE)
    path = job_path(handle)
    (stage.path / "home" / "registry.db").unlink()
    (path / "job.json").write_text("{")
    assert {status.id: status.state for status in list_jobs()} == {handle.id: "lost", other.id: "succeeded"}
    until(lambda: not JobDirectory(path).alive(), "the end of its supervisor, which alone tells that it is over")
    handle.remove()
    assert not path.exists()


def test_a_node_joins_by_hand_when_slots_are_short(stage: Stage) -> None:
    (stage.path / "petctl.yaml").write_text("clusters: {local: {slots: 1}}\n")
    handle = stage.start(nodes="1:2", rendezvous={"resize_interval": 0.1})
    first = stage.running(1)
    handle.token(stage.path / "join.json")
    command = [sys.executable, "-m", "petctl.agent", "join", "--file", "join.json", "--node", "guest"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as guest:
        try:
            second = stage.running(2, after=first)
            assert {mark.node for mark in stage.marks(second)} == {"0", "guest"}
            stage.finish()
            assert handle.wait(DEADLINE).state == "succeeded"
            assert guest.wait(DEADLINE) == 0
        finally:
            guest.terminate()


def test_who_joins_by_hand_too_late_is_told_how_the_job_ended(stage: Stage) -> None:
    handle = stage.start()
    stage.running(1)
    handle.token(stage.path / "join.json")
    handle.cancel()
    handle.wait(DEADLINE)
    until(lambda: not processes_of(job_path(handle)), "the end of its supervisor")
    command = [sys.executable, "-m", "petctl.agent", "join", "--file", "join.json", "--node", "guest"]
    late = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert late.returncode == 130
    assert f"{handle.id} has ended: cancelled by the user" in late.stderr
    handle.remove()
    late = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert late.returncode == 1
    assert f"{handle.id} has ended and was removed" in late.stderr


def test_a_secret_that_is_gone_ends_the_job_with_its_nodes(stage: Stage) -> None:
    set_secret("key", "value")
    handle = stage.start(nodes=2, secrets={"API_KEY": "key"})
    stage.running(2)
    remove_secret("key")
    os.kill(supervisor_pid(handle), signal.SIGKILL)
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("failed", 2)
    assert "petctl secret set key" in status.sentence
