"""How the operator tells how it is."""

from __future__ import annotations

import contextlib
import socket
import threading
import urllib.error
import urllib.request

import pytest

from petctl.clusters.kubernetes.operator.runtime import health as module
from petctl.clusters.kubernetes.operator.runtime.health import Health, serve_health
from petctl.clusters.kubernetes.operator.runtime.options import parse_options
from petctl.errors import UsageError


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def page(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_answers_three_questions_and_no_other() -> None:
    health, port = Health(), free_port()
    with serve_health(health, port):
        assert page(port, "/healthz") == (200, "ok\n")
        assert page(port, "/readyz") == (503, "not yet\n")
        health.stands_by()
        assert page(port, "/readyz") == (200, "ok\n")
        health.lacks = "create pods"
        assert page(port, "/readyz") == (503, "lacks the right to create pods\n")
        health.lacks = ""
        assert page(port, "/etc/passwd")[0] == 404
        health.leads()
        health.looked()
        for method in ("GET", "GET", "POST"):
            health.asked(method)
        assert page(port, "/metrics")[1].splitlines() == [
            "# TYPE petctl_operator_looks_total counter",
            "petctl_operator_looks_total 1",
            "# TYPE petctl_operator_failures_total counter",
            "petctl_operator_failures_total 0",
            "# TYPE petctl_operator_leading gauge",
            "petctl_operator_leading 1",
            "# TYPE petctl_operator_api_calls_total counter",
            'petctl_operator_api_calls_total{method="GET"} 2',
            'petctl_operator_api_calls_total{method="POST"} 1',
            'petctl_operator_api_calls_total{method="PATCH"} 0',
            'petctl_operator_api_calls_total{method="DELETE"} 0',
        ]


def test_who_connects_and_never_asks_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN", 0.05)
    port = free_port()
    with serve_health(Health(), port), socket.create_connection(("127.0.0.1", port), 20) as silent:
        assert silent.recv(1) == b""


def test_many_silent_connections_cost_no_threads_and_keep_nobody_from_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WITHIN", 3600.0)
    port = free_port()
    with contextlib.ExitStack() as silent, serve_health(Health(), port):
        threads = set(threading.enumerate())
        connections = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(400)]
        for connection in connections:
            silent.enter_context(connection)
        assert page(port, "/healthz") == (200, "ok\n")
        assert set(threading.enumerate()) <= threads  # one of an earlier test may end meanwhile
        for connection in connections[: -module.MOST]:
            assert connection.recv(1) == b""  # there is an end to how many may stay, also of those who come at once
        connections[-1].sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert connections[-1].recv(15) == b"HTTP/1.1 200 OK"


def test_who_asks_one_byte_at_a_time_or_without_end_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    with serve_health(Health(), port), socket.create_connection(("127.0.0.1", port), 20) as endless:
        with contextlib.suppress(OSError):
            endless.sendall(b"GET /" + b"x" * 100_000)
        assert ended(endless)
    monkeypatch.setattr(module, "WITHIN", 0.3)
    port = free_port()
    with serve_health(Health(), port), socket.create_connection(("127.0.0.1", port), 20) as slow:
        slow.settimeout(0.05)
        for _ in range(400):  # 20 s: each byte in time, the question never
            with contextlib.suppress(TimeoutError):
                if ended(slow):
                    return
            with contextlib.suppress(OSError):
                slow.sendall(b"x")
        pytest.fail("it still listens")


def ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"cannot listen on port {port} for --health-port"),
            serve_health(Health(), port),
        ):
            pass


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_what_is_no_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options([f"--health-port={port}"])
    assert end.value.code == 2
    assert "--health-port must be a port" in capsys.readouterr().err
