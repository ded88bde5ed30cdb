"""The API server is away: jobs and those who follow them go on. Ctrl-C cancels a job at any time of its life."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.gate import Gate, gate_of
from tests.k8s.stepping import TIMED, gaps, steps_of, usual
from tests.k8s.user import User

pytestmark = [pytest.mark.root]


@pytest.fixture
def gate(user: User) -> Iterator[Gate]:
    """Between the user and the cluster."""
    with gate_of(user.kubeconfig) as gate:
        yield gate


@contextlib.contextmanager
def started(user: User, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A command that goes on beside the test, and not after it."""
    argv, pipe = [sys.executable, "-m", "petctl", *words], subprocess.PIPE
    process = subprocess.Popen(argv, cwd=user.project, env=user.environment, stdout=pipe, stderr=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def step(process: subprocess.Popen[str]) -> int:
    return int(line_with(process.stdout, "step ").partition("step ")[2].split()[0])


def line_with(stream: IO[str] | None, words: str) -> str:
    assert stream is not None
    return next(line for line in stream if words in line)


def test_logs_and_wait_go_on_when_the_server_was_away(user: User, gate: Gate) -> None:
    job = user.submit("steps.py")
    user.running(job, 1)
    with started(user, "logs", "-f", "--tail", "1", job) as following, contextlib.ExitStack() as both:
        first = step(following)
        before = gate.accepted
        waiting = both.enter_context(started(user, "wait", job))
        until(lambda: gate.accepted >= before + 4, "it has found its job, and asked its coordinator twice")
        gate.shut()
        until(lambda: gate.refused >= 4, "both have tried again")
        gate.open()
        steps = [first]
        while len(steps) < 30:
            steps.append(step(following))
        assert steps == list(range(first, first + 30))  # each line once
        assert waiting.poll() is None
        user.finish(job)
        assert waiting.wait(90) == 0
        assert following.wait(90) == 0


@pytest.mark.parametrize("when", ["submitted job", "step 1 "])
def test_ctrl_c_cancels_from_the_first_moment(user: User, when: str) -> None:
    with started(user, "run", "-c", "k8s", "steps.py") as running:
        line_with(running.stderr if when == "submitted job" else running.stdout, when)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=90)
    assert running.returncode == 130, said
    assert "cancelled" in said and "cannot cancel the job" not in said


DOWN = 60.0


@pytest.mark.long
@pytest.mark.timeout(420)
def test_training_goes_on_while_the_api_server_is_down(own_cluster: Cluster, user: User) -> None:
    # Last in its file: it stops the API server itself, for everybody.
    (user.project / "timed.py").write_text(TIMED)
    control = own_cluster.machine("control")
    job = user.submit("-n", "1:1:2", "timed.py")
    before = user.running(job, 1)
    until(lambda: len(steps_of(user, job)) >= 100, "a calm time")
    begin = time.monotonic()  # nodes are this very machine: their clock is the same
    control.stop("kube-apiserver")
    try:
        assert user.petctl("status", job).returncode == 6
        threading.Event().wait(begin + DOWN - time.monotonic())
    finally:
        control.start_again("kube-apiserver")
    kubectl = own_cluster.kubectl
    until(lambda: kubectl.attempt("get", "--raw", "/readyz").stdout == "ok", "the API server is back", 60, 0.2)
    end = time.monotonic()
    kubectl("wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")

    after = user.running(job, 1)
    assert [after[name] for name in ("round", "epoch", "spent")] == [
        before[name] for name in ("round", "epoch", "spent")
    ]
    assert user.petctl("scale", job, "2").returncode == 0
    # Kubernetes' own programs have tried less and less often by now: up to half a minute for each that must see it.
    grown = user.running(job, 2, after=before["round"], seconds=150)
    assert (grown["spent"], grown["size"]["wanted"]) == (0, 2)
    steps = [step for step in steps_of(user, job) if step.round == before["round"]]
    assert [step.step for step in steps] == list(range(len(steps)))  # each once, none missing
    assert len({step.pid for step in steps}) == 1
    calm = [step for step in steps if step.time < begin]
    meanwhile = [step for step in steps if begin - 1 <= step.time <= end]
    assert meanwhile[-1].time > end - 1
    assert max(gaps(meanwhile)) <= 3 * usual(calm)
    user.finish(job)
    assert user.ended(job)["state"] == "succeeded"
