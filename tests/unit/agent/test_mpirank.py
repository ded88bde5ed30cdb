"""The script between mpirun and a rank, run by the real /bin/sh."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.launchers import mpi_rank
from petctl.agent.launchers.mpi_rank import RankScript


class Rank:
    """One script, and what it tells."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.directory = directory
        self.logs = directory / "lo gs"
        self.logs.mkdir()
        os.mkfifo(directory / "fifo")
        self.fifo = os.open(directory / "fifo", os.O_RDWR | os.O_NONBLOCK)
        given = {
            "round": 3,
            "first": 4,
            "key": "j/n/1/3",
            "logs": str(self.logs),
            "fifo": str(directory / "fifo"),
            "cwd": str(directory),
            "argv": ["/bin/sh", "-c", "true"],
            "variables": {},
        }
        (directory / "rank").write_text(RankScript(**{**given, **fields}).text())

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        given = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_LOCAL_RANK": "1", **env}
        variables = {**os.environ, "SCRIPT": str(self.directory / "rank"), **given}
        return subprocess.Popen(["/bin/sh", "-c", '. "$SCRIPT"'], cwd="/", env=variables, start_new_session=True)

    def told(self) -> list[str]:
        return os.read(self.fifo, 4096).decode().splitlines()

    def log(self, name: str) -> str:
        return (self.logs / name).read_text()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """One whose name a careless script would fall over."""
    path = tmp_path / "it's $here"
    path.mkdir()
    return path


def test_a_rank_knows_its_place_and_its_end_is_told(directory: Path) -> None:
    show = 'echo "$RANK $LOCAL_RANK $ROLE_RANK $PETCTL_WORKER_KEY $A $TMPDIR. $place $code"; pwd; echo no >&2; exit 7'
    rank = Rank(directory, argv=["/bin/sh", "-c", show], variables={"A": "b 'c'", "TMPDIR": None})
    process = rank.start(TMPDIR="/tmp", place="mine", code="mine")
    assert process.wait(10) == 7
    begin, end = rank.told()
    assert begin.split()[:4] == ["3", "begin", "1", "5"] and end == "3 end 1 7"
    assert rank.log("rank-5.out") == f"5 1 5 j/n/1/3/5 b 'c' . mine mine\n{directory}\n"
    assert rank.log("rank-5.err") == "no\n"


def test_mpich_says_the_same_in_other_words(directory: Path) -> None:
    rank = Rank(directory, argv=["/bin/sh", "-c", "echo $RANK $LOCAL_RANK"])
    env = {**os.environ, "SCRIPT": str(directory / "rank"), "PMI_RANK": "2", "MPI_LOCALRANKID": "0"}
    subprocess.run(["/bin/sh", "-c", '. "$SCRIPT"'], env=env, check=True, timeout=10)
    assert rank.log("rank-2.out") == "2 0\n"


@pytest.mark.parametrize("with_setsid", [True, False])
def test_what_ends_the_script_does_not_reach_the_rank(
    directory: Path, with_setsid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_setsid:
        monkeypatch.setattr("shutil.which", lambda name: None)
    rank = Rank(directory, argv=["/bin/sh", "-c", "read line <gate; exit 3"])
    os.mkfifo(directory / "gate")
    process = rank.start()
    gate = os.open(directory / "gate", os.O_WRONLY)  # waits until it reads
    os.killpg(process.pid, signal.SIGTERM)  # as mpirun does when it gives up
    (begin,) = rank.told()
    pid = int(begin.split()[4])
    assert os.getsid(pid) == pid
    os.write(gate, b"go\n")
    os.close(gate)
    assert process.wait(10) == 3
    assert rank.told() == ["3 end 1 3"]


def test_a_killed_rank_has_the_last_word_itself(directory: Path) -> None:
    rank = Rank(directory, argv=["/bin/sh", "-c", "echo last words >&2; kill -9 $$"])
    assert rank.start().wait(10) == 128 + signal.SIGKILL
    assert rank.told()[1] == "3 end 1 137"
    assert rank.log("rank-5.err") == "last words\n"


def test_a_command_that_is_not_there_is_told_as_a_shell_tells_it(directory: Path) -> None:
    rank = Rank(directory, argv=["no-such-program"])
    assert rank.start().wait(10) == 127
    assert rank.told()[1] == "3 end 1 127"
    assert "no-such-program" in rank.log("rank-5.err")


def test_without_setsid_this_python_gives_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert mpi_rank.session_words()[0] == sys.executable
