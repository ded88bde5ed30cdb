"""`petctl token` says for whom the file is, and what keeps it from being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.cli.failures import run_to_exit_code
from petctl.rendezvous.net.join_file import JoinFile, write_join_file


class FakeHandle:
    id = "mnist-3f9k"

    def __init__(self, locator: dict[str, str]) -> None:
        self.locator = locator

    def token(self, path: str, address: str | None = None) -> None:
        write_join_file(path, JoinFile(self.id, "secret", "", self.locator))


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch):
    """The one job there is, with this locator."""
    return lambda locator: monkeypatch.setattr("petctl.jobs.get", lambda name: FakeHandle(locator))


def test_a_job_that_only_this_machine_reaches_is_not_joined_from_another(
    job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job({"file": "/home/me/coordinator.json"})
    assert run_to_exit_code(["token", "3f9k", "--file", str(tmp_path / "join.json")]) == 0
    told = capfd.readouterr().err
    assert "listens only on this machine" in told and "--listen 0.0.0.0" in told
    assert "on the other machine" not in told


def test_how_another_machine_joins(job, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job({"address": "10.0.0.5:4000"})
    assert run_to_exit_code(["token", "3f9k", "--file", str(tmp_path / "join.json")]) == 0
    assert f"python petctl-agent.pyz join --file {tmp_path / 'join.json'}" in capfd.readouterr().err


def test_a_file_that_cannot_be_written(job, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job({"address": "10.0.0.5:4000"})
    path = tmp_path / "nowhere" / "join.json"
    assert run_to_exit_code(["token", "3f9k", "--file", str(path)]) == 1
    told = capfd.readouterr().err
    assert told == f"petctl: cannot write {path}: No such file or directory; choose another file with --file\n"
