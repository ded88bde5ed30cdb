"""Whoever follows a job goes on when the API server was away; Ctrl-C cancels a job at any time of its life."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO
from urllib.parse import urlsplit

import pytest
import yaml

from tests.k8s.cluster.waiting import until
from tests.k8s.user import User

pytestmark = [pytest.mark.root]


class Gate:
    """The way to the API server: while it is shut nobody gets through, and whoever was is cut off."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._shut = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._shut:
                    self.refused += 1
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
                self.accepted += 1
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        with self._lock:
            self._shut = True
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        with self._lock:
            self._shut = False

    def close(self) -> None:
        self.shut()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._open):
            end.close()


@pytest.fixture
def gate(user: User) -> Iterator[Gate]:
    """Between the user and the cluster."""
    found = yaml.safe_load(user.kubeconfig.read_text())
    (there,) = found["clusters"]
    server = urlsplit(there["cluster"]["server"])
    gate = Gate(server.hostname or "", server.port or 443)
    there["cluster"] |= {"server": f"https://127.0.0.1:{gate.port}", "tls-server-name": server.hostname}
    user.kubeconfig.write_text(yaml.safe_dump(found))
    try:
        yield gate
    finally:
        gate.close()


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


@pytest.mark.parametrize("when", ["is submitted", "step 1 "])
def test_ctrl_c_cancels_from_the_first_moment(user: User, when: str) -> None:
    with started(user, "run", "-c", "k8s", "steps.py") as running:
        line_with(running.stderr if when == "is submitted" else running.stdout, when)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=90)
    assert running.returncode == 130, said
    assert "cancelled" in said and "could not be cancelled" not in said
