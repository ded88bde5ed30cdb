"""What a node finds out about its machine."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from petctl.agent.node.host import Devices, choose_log_dir, own_address
from petctl.agent.node.node_assets import Belongings
from petctl.agent.node.options import Options
from petctl.errors import PetctlError
from petctl.job.task import Task
from petctl.rendezvous.net.join_file import JoinFile


def join(address: str) -> JoinFile:
    return JoinFile("j", "t", "", {"address": address})


def test_a_node_beside_its_coordinator_is_reached_over_loopback() -> None:
    assert own_address(join("127.0.0.1:4711")) == own_address(join("localhost:4711")) == "127.0.0.1"


def test_without_an_answer_the_hosts_name_has_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "big-one")
    assert own_address(JoinFile("j", "t", "", {"file": "/no/such/file"})) == "big-one"


def test_logs_go_where_the_job_wants_them_or_else_to_the_nodes_own_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = Options("F", "n0", "1", state_dir=str(tmp_path / "state"))
    caplog.set_level(logging.INFO)
    wanted, blocked = tmp_path / "wanted", tmp_path / "file"
    blocked.write_text("")
    assert choose_log_dir(task(str(wanted)), options) == str(wanted) and not caplog.records
    assert choose_log_dir(task(str(blocked / "x")), options) == str(tmp_path / "state" / "logs")
    assert str(blocked) in caplog.text
    with pytest.raises(PetctlError, match="--state-dir"):
        choose_log_dir(task(""), Options("F", "n0", "1", state_dir=str(blocked)))


def task(log_dir: str) -> Task:
    return Task(job="j", kind="shell", words=["true"], log_dir=log_dir)


def test_a_directory_for_checkpoints_is_made_where_its_place_is_here(tmp_path: Path) -> None:
    async def bring(place: Path) -> bool:
        work = Task(job="j", kind="shell", words=["x"], checkpoint_dir=str(place))
        options = Options("F", "n0", "1", state_dir=str(tmp_path / "state"))
        Belongings(work, join(""), options, str(tmp_path), Devices(), print, print)
        return place.is_dir()

    assert asyncio.run(bring(tmp_path / "checkpoints"))
    assert not asyncio.run(bring(tmp_path / "on another machine" / "checkpoints"))
