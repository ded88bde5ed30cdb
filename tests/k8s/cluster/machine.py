"""A machine of the cluster: namespaces of its own (processes, mounts, network, host name), an init, its programs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Mapping, Sequence

from tests.k8s.cluster import ledger, network, packages
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.ledger import Ledger
from tests.k8s.cluster.waiting import until

_INIT = Path(__file__).with_name("init.py")


class Machine:
    """One of `control`, `node1` and `node2`; reached from any process, not only from the one that started it."""

    def __init__(self, name: str, book: Ledger) -> None:
        self.name = name
        self.address = network.ADDRESSES[name]
        self.directory = book.directory / name
        self._book = book

    def boot(self) -> None:
        """Start it: directories, namespaces, network. It runs nothing yet."""
        var = self.directory / "var"
        for directory in (self.directory / "logs", *(var / name for name in ("lib", "log", "tmp"))):
            directory.mkdir(parents=True)
        (var / "run").symlink_to("/run")
        words = [str(packages.program("unshare")), "--fork", "--kill-child=SIGKILL", "--pid", "--mount-proc", "--mount"]
        words += ["--propagation", "slave", "--net", "--uts", sys.executable, "-I", str(_INIT)]
        words += [str(self._socket), self.name, "--own", f"/var={var}", "--empty", "/run"]
        environment = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "HOME": "/root",
            ledger.MARK: self._book.record.id,
        }
        with (self.directory / "logs" / "init.log").open("wb") as log:
            process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._note("unshare", process.pid)
        until(lambda: self._socket.exists() or process.poll() is not None, f"{self.name}: its init listens", 60, 0.01)
        if process.poll() is not None:
            raise ClusterError(f"{self.name} did not start: {self.log('init').strip()}")
        pid = _children(process.pid)[0]
        self._note("init", pid)
        self._book.record.namespaces[self.name] = ledger.namespaces_of(pid)
        self._book.write()
        network.attach(self.name, pid)

    @property
    def pid(self) -> int:
        """The init's, as this side sees it."""
        for process in self._book.record.processes:
            if process.name == f"{self.name}/init":
                return process.pid
        raise ClusterError(f"{self.name} was not started; see {self._book.directory / 'ledger.json'}")

    def start(self, name: str, argv: Sequence[object]) -> None:
        """Start one program; it runs until it is stopped or the machine ends."""
        request = {
            "start": name,
            "argv": [str(word) for word in argv],
            "log": str(self.directory / "logs" / f"{name}.log"),
        }
        (self.directory / f"{name}.json").write_text(json.dumps(request))
        self._ask(name, request)

    def start_again(self, name: str) -> None:
        """As it was started before, after a `stop`."""
        self._ask(name, json.loads((self.directory / f"{name}.json").read_text()))

    def stop(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End one program, as a fault would, and wait until it is gone."""
        pid = self.pid_of(name)
        os.kill(pid, number)
        until(lambda: ledger.start_of(pid) is None, f"{self.name}: {name} has ended", 60)

    def pid_of(self, name: str) -> int:
        """The process of one program, as this side sees it."""
        inside = int((self.directory / f"{name}.pid").read_text())
        for pid in _children(self.pid):
            numbers = _field(pid, "NSpid")
            if numbers and int(numbers[-1]) == inside and ledger.start_of(pid) is not None:
                return pid
        raise ClusterError(f"{self.name}: {name} does not run; its log is {self.directory / 'logs' / f'{name}.log'}")

    def runs(self, name: str) -> bool:
        """Whether a program that was started is still there."""
        try:
            return self.pid_of(name) > 0
        except ClusterError:
            return False

    def command(self, words: Sequence[object]) -> list[str]:
        """The words that run a command inside the machine."""
        enter = [packages.program("nsenter"), f"--target={self.pid}", "--mount", "--net", "--pid", "--uts", "--"]
        return [str(word) for word in [*enter, *words]]

    def run(self, words: Sequence[object], environment: Mapping[str, str] | None = None) -> str:
        """Run a command inside the machine; what it printed."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            shown = " ".join(str(word) for word in words)
            raise ClusterError(f"{self.name}: `{shown}` failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def log(self, name: str, length: int = 2000) -> str:
        """The end of what a program has written."""
        try:
            return (self.directory / "logs" / f"{name}.log").read_text(errors="replace")[-length:]
        except FileNotFoundError:
            return ""

    @property
    def _socket(self) -> Path:
        return self.directory / "init.socket"

    def _ask(self, name: str, request: Mapping[str, object]) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(30)
            connection.connect(str(self._socket))
            with connection.makefile("rwb") as stream:
                stream.write(json.dumps(request).encode() + b"\n")
                stream.flush()
                answer = json.loads(stream.readline())
        if "error" in answer:
            raise ClusterError(f"{self.name}: {name} could not be started: {answer['error']}")
        (self.directory / f"{name}.pid").write_text(str(answer["pid"]))

    def _note(self, name: str, pid: int) -> None:
        process = ledger.described(f"{self.name}/{name}", pid)
        if process is not None:
            self._book.record.processes.append(process)
            self._book.write()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _field(pid: int, name: str) -> list[str]:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            key, _, value = line.partition(":")
            if key == name:
                return value.split()
    except (FileNotFoundError, ProcessLookupError):
        pass
    return []
