"""Why a job failed, as its user will read it; and what a node does when it cannot even start its workers."""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

import pytest

from petctl.agent.node import guardian
from petctl.rendezvous.core.messages import ENDED_FAILED, SUCCEEDED, Failure
from tests.integration.agent.conftest import Bench, alive
from tests.integration.waiting import until


def failure(bench: Bench) -> Failure:
    outcome = bench.ended()
    assert outcome.state == ENDED_FAILED and outcome.failure is not None
    assert outcome.code == outcome.failure.code
    return outcome.failure


def test_a_signal_has_its_name_and_code(bench: Bench) -> None:
    bench.open("shell", ["echo last words >&2; kill -SEGV $$"])
    node = bench.agent()
    found = failure(bench)
    assert (found.signal, found.code, found.message) == ("SIGSEGV", 139, "")
    assert found.traceback == "last words"
    assert node.wait() == 139


def test_torchs_error_file_comes_before_stderr(bench: Bench) -> None:
    message = {
        "message": "RuntimeError: from the file",
        "extraInfo": {"py_callstack": "Traceback\n  deep", "timestamp": "1"},
    }
    content = json.dumps({"message": message})
    program = (
        f"import os, sys; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({content!r}); sys.exit('from stderr')"
    )
    bench.open("program", [sys.executable, "-c", program])
    bench.agent()
    found = failure(bench)
    assert (found.message, found.traceback, found.code) == ("RuntimeError: from the file", "Traceback\n  deep", 1)


def test_the_exit_code_of_the_first_failure_is_the_jobs(bench: Bench) -> None:
    bench.open("shell", ["test $RANK = 1 && exit 7; trap 'exit 9' TERM; sleep 600 & wait"], procs="3")
    node = bench.agent()
    assert failure(bench).rank == 1
    assert node.wait() == 7
    bench.nothing_left()


def test_a_worker_that_lost_its_peer_does_not_hide_the_root_cause(bench: Bench) -> None:
    """Rank 0 fails first, because of what rank 1 is about to die of."""
    program = """
import os, select, sys
mine = f"pid-{os.environ['RANK']}"
open(mine + ".part", "w").write(str(os.getpid()))
os.rename(mine + ".part", mine)
if os.environ["RANK"] == "0":
    raise RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711")
while not os.path.exists("pid-0"):
    select.select([], [], [], 0.01)
peer = int(open("pid-0").read())
while os.path.exists(f"/proc/{peer}"):
    select.select([], [], [], 0.01)
raise ValueError("a label is out of range")
"""
    bench.open("program", [sys.executable, "-c", program], procs="2", cwd=str(bench.directory))
    bench.agent()
    found = failure(bench)
    assert (found.rank, found.message) == (1, "ValueError: a label is out of range")


def test_a_program_that_does_not_exist(bench: Bench) -> None:
    bench.open("program", ["/no/such/program"])
    bench.agent()
    found = failure(bench)
    assert found.code == 127 and found.message == "cannot start /no/such/program: No such file or directory"


def test_a_working_directory_that_does_not_exist(bench: Bench) -> None:
    bench.open("shell", ["true"], cwd="/no/such/place")
    bench.agent()
    assert failure(bench).message == "the working directory /no/such/place does not exist on this node"


def test_a_node_of_the_jobs_own_cluster_without_the_wanted_gpu_fails_the_job(bench: Bench) -> None:
    revive = {"argv": ["true"], "lock": str(bench.directory / "revive.lock")}
    bench.open("shell", ["true"], procs="gpu", revive=revive)
    bench.agent("--gpus", "")
    assert "no GPU" in failure(bench).message


def test_a_node_that_came_by_hand_without_the_wanted_gpu_only_leaves(bench: Bench) -> None:
    bench.open("shell", ["true"], procs="gpu")
    node = bench.agent("--gpus", "")
    assert node.wait() == 2
    assert "no GPU" in node.log.read_text() and "Traceback" not in node.log.read_text()
    assert not bench.closed.is_set()


def test_a_wrong_token_is_refused_with_a_sentence(bench: Bench) -> None:
    bench.open("shell", ["true"])
    content = json.loads(bench.join_path.read_text())
    bench.join_path.write_text(json.dumps({**content, "token": "00" * 16}))
    node = bench.agent()
    assert node.wait() != 0
    assert "petctl token" in node.log.read_text() and "Traceback" not in node.log.read_text()


def test_a_missing_join_file_is_a_usage_error(bench: Bench) -> None:
    node = bench.agent()
    assert node.wait() == 2
    text = node.log.read_text()
    assert "cannot read the join file" in text and "Traceback" not in text


def test_a_first_coordinator_that_comes_late_is_waited_for(bench: Bench) -> None:
    bench.open("shell", ["true"])
    bench.close_coordinator()
    node = bench.agent()
    until(lambda: "trying again" in node.log.read_text(), "the node says that it waits")
    bench.open("shell", ["true"])
    assert bench.ended().state == SUCCEEDED
    assert node.wait() == 0


def test_sigterm_while_waiting_for_a_coordinator_is_leaving(bench: Bench) -> None:
    bench.open("shell", ["true"])
    bench.close_coordinator()
    node = bench.agent()
    until(lambda: "trying again" in node.log.read_text(), "the node says that it waits")
    node.terminate()
    assert node.wait() == 0


def test_two_agents_cannot_share_a_state_directory(bench: Bench) -> None:
    bench.open("shell", ["echo up; exec sleep 600"])
    bench.agent()
    bench.line()
    second = bench.agent()
    assert second.wait() == 2
    assert "another agent" in second.log.read_text()


def test_who_only_asks_whether_a_node_lives_keeps_none_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asks = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(asks, fcntl.LOCK_SH)
    monkeypatch.setattr("time.sleep", lambda seconds: os.close(asks))  # it has its answer meanwhile
    os.close(guardian._take_lock(str(tmp_path)))
    assert (tmp_path / "pid").read_text() == f"{os.getpid()}\n"


def test_prepare_runs_once_and_what_it_left_running_stays(bench: Bench) -> None:
    count = bench.directory / "count"
    prepare = f"echo x >> {count}; sleep 600 & echo $! > {bench.directory}/daemon"
    worker = f"kill -0 $(cat {bench.directory}/daemon) || exit 3; test $PETCTL_ROUND = 2 || exit 1"
    bench.open("shell", [worker], prepare=prepare, restarts=1)
    node = bench.agent()
    assert bench.ended().state == SUCCEEDED
    assert node.wait() == 0
    assert count.read_text() == "x\n"
    bench.nothing_left()


def test_a_failing_prepare_is_the_root_cause(bench: Bench) -> None:
    bench.open("shell", ["true"], prepare="echo cannot fetch data >&2; exit 5")
    bench.agent()
    found = failure(bench)
    assert (found.code, found.rank, found.message) == (5, 0, "prepare: cannot fetch data")


def test_a_stop_during_prepare_ends_it(bench: Bench) -> None:
    bench.open("shell", ["true"], prepare=f"echo $$ > {bench.directory}/pid; exec sleep 600")
    node = bench.agent()
    path = bench.directory / "pid"
    until(lambda: path.exists() and path.read_text().endswith("\n"), "the preparation runs")
    node.terminate()
    assert node.wait() == 0
    assert not alive(int(path.read_text()))
