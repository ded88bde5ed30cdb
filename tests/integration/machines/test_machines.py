"""The machines that tests of clusters stand on: they are apart, fail as machines do, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.waiting import until
from tests.support.machines.lan import Lan
from tests.support.machines.machine import FREEZER, Machine, Program

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces"),
]

ECHO = """
import socketserver
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(100):
            self.request.sendall(data)
server = socketserver.ThreadingTCPServer(("0.0.0.0", 7000), Echo)
print("listens", flush=True)
server.serve_forever()
"""
ASK = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[3]))
print("connected", flush=True)
peer.settimeout(float(sys.argv[2]))
for line in sys.stdin:
    begun = time.monotonic()
    try:
        peer.sendall(b"x")
        print("heard" if peer.recv(1) else "closed", time.monotonic() - begun, flush=True)
    except OSError as error:
        print(type(error).__name__, 0, flush=True)
"""


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[Lan]:
    with Lan(tmp_path / "lan", ["a", "b", "c"]) as lan:
        yield lan


def serve(machine: Machine) -> Program:
    program = machine.start("echo", [sys.executable, "-c", ECHO])
    until(lambda: "listens" in program.log.read_text(), "the server")
    return program


class Client:
    """A connection from one machine to another's server."""

    def __init__(self, machine: Machine, other: str, seconds: float = 1.0) -> None:
        words = machine.command([sys.executable, "-c", ASK, other, seconds, 10])
        self.process = subprocess.Popen(
            words, env=machine.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._line() == "connected\n"

    def ask(self) -> tuple[str, float]:
        """What came of a question, and how long it took."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        answer, seconds = self._line().split()
        return answer, float(seconds)

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_machines_are_apart_and_reach_each_other_by_name(lan: Lan) -> None:
    assert lan["a"].run(["hostname"]).stdout == "a\n"
    for machine in lan:
        machine.run(["sh", "-c", "echo $HOSTNAME > /home/own; echo $HOSTNAME > /tmp/own"])
        (lan.shared / machine.name).touch()
    assert [machine.run(["cat", "/home/own", "/tmp/own"]).stdout for machine in lan] == ["a\na\n", "b\nb\n", "c\nc\n"]
    assert lan["c"].run(["ls", "/mnt"]).stdout.split() == ["a", "b", "c"]
    assert not Path("/home/own").exists() and not Path("/tmp/own").exists()
    sleeper = lan["a"].start("sleeper", ["sleep", "1000"])
    seen = lan["b"].run(["ps", "-e", "-o", "args"]).stdout
    assert "init.py b" in seen and "sleep" not in seen
    assert "sleep 1000" in lan["a"].run(["ps", "-o", "args", "-p", str(sleeper.pid)]).stdout
    serve(lan["b"])
    client = Client(lan["a"], "b")
    assert client.ask()[0] == "heard"
    client.close()


def test_a_killed_machine_closes_its_connections_and_boots_with_its_files(lan: Lan) -> None:
    program = serve(lan["b"])
    client = Client(lan["a"], "b", 10.0)
    lan["b"].run(["sh", "-c", "echo kept > /home/file; echo gone > /tmp/file"])
    lan["b"].kill()
    assert program.wait() == -signal.SIGKILL
    answer, seconds = client.ask()
    assert answer in ("closed", "ConnectionResetError") and seconds < 5.0
    client.close()
    lan["b"].boot()
    assert lan["b"].run(["cat", "/home/file"]).stdout == "kept\n"
    assert lan["b"].run(["cat", "/tmp/file"]).returncode == 1
    serve(lan["b"])
    client = Client(lan["a"], "b")
    assert client.ask()[0] == "heard"
    client.close()


def test_a_cut_is_silent_and_can_be_mended(lan: Lan) -> None:
    serve(lan["b"])
    client, other = Client(lan["a"], "b"), Client(lan["c"], "b", 10.0)
    lan.cut("a")
    assert client.ask()[0] == "TimeoutError"
    assert other.ask()[0] == "heard"
    lan.mend()
    until(lambda: client.ask()[0] == "heard", "it is heard again")
    lan.cut_way("b", "c")
    other.close()
    late = subprocess.run(
        lan["c"].command([sys.executable, "-c", ASK, "b", 1, 2]),
        env=lan["c"].environment(),
        input="",
        capture_output=True,
        text=True,
    )
    assert "timed out" in late.stderr
    assert client.ask()[0] == "heard"
    client.close()


def test_a_frozen_machine_takes_connections_and_answers_when_it_thaws(lan: Lan) -> None:
    if not FREEZER.is_dir():
        pytest.skip("the control groups here freeze nothing")
    serve(lan["b"])
    client = Client(lan["a"], "b")
    lan["b"].freeze()
    assert client.ask()[0] == "TimeoutError"
    lan["b"].thaw()
    until(lambda: client.ask()[0] == "heard", "the answer")
    client.close()
    lan["b"].freeze()  # and is ended like any other


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_a_slow_network_delays_and_loses(tmp_path: Path, loss: float) -> None:
    with Lan(tmp_path / "lan", ["a", "b"], delay=0.05, loss=loss) as lan:
        serve(lan["b"])
        client = Client(lan["a"], "b", 30.0)
        for _ in range(5):
            answer, seconds = client.ask()
            assert answer == "heard" and seconds >= 0.1
        lan.cut("b")
        client.close()
        lan.mend(delay=0.01)
        client = Client(lan["a"], "b", 30.0)
        client.ask()
        assert client.ask()[1] >= 0.02
        client.close()
        lan["b"].reboot()
        serve(lan["b"])
        client = Client(lan["a"], "b", 30.0)
        assert client.ask()[0] == "heard"
        client.close()


def test_a_small_disk_is_full_at_its_size(tmp_path: Path) -> None:
    with Lan(tmp_path / "lan", ["a"], disk="1m") as lan:
        done = lan["a"].run(["dd", "if=/dev/zero", "of=/tmp/file", "bs=1M", "count=2"])
        assert done.returncode == 1 and "No space left" in done.stderr


def test_a_lan_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    made = (
        "import pathlib, sys\nfrom tests.support.machines.lan import Lan\n"
        "lan = Lan(pathlib.Path(sys.argv[1]), ['a', 'b'])\nlan['a'].start('sleeper', ['sleep', '1000'])\n"
        "print(*[machine.pid for machine in lan], flush=True)\nsys.stdin.read()\n"
    )
    words = [sys.executable, "-c", made, str(tmp_path / "lan")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        assert len(pids) == 2
        process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "the end of both machines")


def test_a_lan_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    before = time.monotonic()
    (tmp_path / "lan" / "b" / "home").mkdir(parents=True)  # in the way
    with pytest.raises(FileExistsError):
        Lan(tmp_path / "lan", ["a", "b"])
    assert time.monotonic() - before < 30.0
    mine = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    assert not any("unshare" in Path(f"/proc/{pid}/comm").read_text() for pid in Path(mine).read_text().split())
