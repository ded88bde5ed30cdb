"""Getting at a running job: its nodes, its ports, its membership; from elsewhere, and when nobody answers."""

from __future__ import annotations

import json
import socket
import stat
import time
from collections.abc import Callable

import pytest

from petctl.errors import NotFound, PetctlError, UsageError
from petctl.jobs import JobHandle
from tests.conformance.backend import OTHER_PROCESSES, TOKEN, UNREACHABLE, Backend

Start = Callable[..., JobHandle]


def test_a_command_runs_in_a_node_and_its_exit_code_is_told(backend: Backend, live: JobHandle) -> None:
    check = '[ "$PETCTL_NODE" = 1 ] && [ "$PETCTL_JOB_ID" = "$0" ] && [ -d "$PETCTL_OUTPUT_DIR" ] && exit 7'
    assert live.exec(["sh", "-c", check, live.id], "1") == 7
    assert live.exec(["true"]) == 0


def test_a_command_in_no_node(backend: Backend, live: JobHandle, ended: JobHandle) -> None:
    with pytest.raises(NotFound, match=f"{live.id} has no (running )?node '9'"):
        live.exec(["true"], "9")
    with pytest.raises(UsageError):
        ended.exec(["true"])
    with pytest.raises(UsageError, match="no command"):
        live.exec([])


def test_a_port_leads_to_a_worker(backend: Backend, live: JobHandle) -> None:
    said = backend.printed(live, lambda line: line.text.startswith(b"serves at"), "a port")
    with live.forward(int(said.text.split()[-1]), node="0") as here:
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", here), timeout=backend.patience) as connection:
                assert connection.makefile().readline() == "served by node 0\n"
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", here), timeout=1).close()


def test_no_port_leads_to_a_node_that_does_not_exist(backend: Backend, live: JobHandle) -> None:
    with pytest.raises(NotFound, match=f"{live.id} has no (running )?node '9'"), live.forward(80, node="9"):
        pass


def test_a_join_file_is_for_its_owner_alone(backend: Backend, live: JobHandle) -> None:
    backend.needs(TOKEN)
    path = backend.directory / "join.json"
    live.token(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    join = json.loads(path.read_text())
    assert join["job"] == live.id and join["token"]
    path.unlink()


def test_a_second_client_sees_and_steers_the_job(backend: Backend, start: Start) -> None:
    backend.needs(OTHER_PROCESSES)
    handle = start("wait", nodes="1:1:2")
    backend.greeted(handle, 1)
    first = backend.running(handle, 1)
    other = backend.another_environment()
    told = backend.petctl("status", "-o", "json", handle.id, environment=other)
    assert told.returncode == 0, told.stderr
    status = json.loads(told.stdout)
    assert (status["id"], status["state"], status["round"]) == (handle.id, "running", first.round)
    assert backend.petctl("scale", handle.id, "2", environment=other).returncode == 0
    backend.running(handle, 2, after=first.round)
    assert backend.petctl("cancel", handle.id, environment=other).returncode == 0
    assert handle.wait(backend.patience).state == "cancelled"
    assert backend.petctl("wait", handle.id, environment=other).returncode == 130


def test_a_cluster_that_does_not_answer_is_an_error_and_no_hang(backend: Backend, start: Start) -> None:
    backend.needs(UNREACHABLE)
    handle = start("wait", nodes="1:2")
    backend.greeted(handle, 2)
    began = time.monotonic()
    with backend.unreachable(handle) as ask, pytest.raises(PetctlError) as told:
        ask()
    assert time.monotonic() - began < backend.patience
    assert told.value.code not in (0, 2, 70) and str(told.value)
