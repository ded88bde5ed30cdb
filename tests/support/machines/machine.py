"""One machine: processes, mounts, network and name of its own, on the files of this one.

Its own are /home, with root's home directory /home/root (Python may lie in the other one), /var/log and /var/tmp, which
outlive a reboot; /tmp, /run and /dev/shm, which do not; /etc/hosts. All machines of a Lan share /mnt. Everything else,
this checkout included, is this machine's, and nobody should write there.
"""

from __future__ import annotations

import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[3]
INIT = Path(__file__).with_name("init.py")
FREEZER = Path("/sys/fs/cgroup/freezer")
HOME = "/home/root"
KEPT = {"home": "/home", "log": "/var/log", "var-tmp": "/var/tmp"}
PASSING = ("/tmp", "/run", "/dev/shm")
WITHIN = 30.0


class Program:
    """What a machine's first process has started."""

    def __init__(self, pid: int, log: Path) -> None:
        self.pid, self.log = pid, log  # as the machine sees it; its output, as this machine sees it
        self.code: int | None = None
        self.over = threading.Event()

    def wait(self, seconds: float = WITHIN) -> int:
        """Its exit code."""
        assert self.over.wait(seconds), f"it does not end: {self.log.read_text(errors='replace')[-2000:]}"
        assert self.code is not None
        return self.code


class Machine:
    """Booted by its Lan; ended by it, too, if nobody did before."""

    def __init__(self, name: str, directory: Path, shared: Path, disk: str, attach: Callable[[Machine], None]) -> None:
        self.name, self.directory = name, directory / name
        self._mounts = [f"/etc/{name}={directory / name}" for name in ("hosts", "passwd")] + [f"/mnt={shared}"]
        for kept, place in KEPT.items():
            (self.directory / kept).mkdir(parents=True)
            self._mounts.append(f"{place}={self.directory / kept}")
        (self.directory / "home" / "root").mkdir(0o700)
        self._disk = disk  # the size of /tmp, if it has a limit
        self._attach = attach
        self._group = FREEZER / f"petctl-test-{secrets.token_hex(4)}"
        self._unshare: subprocess.Popen[bytes] | None = None
        self._programs: dict[int, Program] = {}
        self._answers: queue.Queue[dict[str, int | str]] = queue.Queue()
        self._reader: threading.Thread | None = None
        self.pid = 0  # of its first process, as this machine sees it

    @property
    def is_up(self) -> bool:
        """Whether it has been booted, and not killed since."""
        return self._unshare is not None

    def boot(self) -> None:
        """Starts it: nothing runs there yet."""
        assert self._unshare is None, f"{self.name} is up"
        words = ["unshare", "--fork", "--kill-child=SIGKILL", "--pid", "--mount-proc", "--mount", "--propagation"]
        words += ["private", "--net", "--uts", "--ipc", sys.executable, "-I", str(INIT), self.name]
        words += [word for pair in self._mounts for word in ("--own", pair)]
        sizes = {"/tmp": f":{self._disk}" if self._disk else ""}
        words += [word for place in PASSING for word in ("--empty", place + sizes.get(place, ""))]
        hiding = [*KEPT.values(), *PASSING]
        words += ["--keep", str(ROOT)] if any(ROOT.is_relative_to(place) for place in hiding) else []
        self._unshare = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, env=self.environment()
        )
        assert self._unshare.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._unshare.stdout, self._answers))
        self._reader.start()
        assert self._answers.get(timeout=WITHIN) == {"up": True}, f"{self.name} did not start"
        children = Path(f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        self.pid = int(children[0])
        self._attach(self)

    def environment(self, **more: str) -> dict[str, str]:
        """What programs of the machine get."""
        path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return {"PATH": path, "HOME": HOME, "LANG": "C.UTF-8", "HOSTNAME": self.name, **more}

    # -- programs ------------------------------------------------------------------------------------------------------

    def start(
        self, name: str, argv: Sequence[object], environment: Mapping[str, str] | None = None, cwd: str = HOME
    ) -> Program:
        """Starts a program that runs until it ends by itself, or the machine does; its output is in /var/log."""
        assert self._unshare is not None and self._unshare.stdin is not None, f"{self.name} is down"
        request = {
            "argv": [str(word) for word in argv],
            "log": f"/var/log/{name}.log",
            "environment": self.environment(**(environment or {})),
            "cwd": cwd,
        }
        self._unshare.stdin.write(json.dumps(request).encode() + b"\n")
        self._unshare.stdin.flush()
        answer = self._answers.get(timeout=WITHIN)
        assert "pid" in answer, f"{self.name}: {name} could not be started: {answer}"
        program = self._programs[int(answer["pid"])]
        program.log = self.directory / "log" / f"{name}.log"
        return program

    def command(self, argv: Sequence[object]) -> list[str]:
        """The words that run a command there, in its home directory, for whoever runs it with `environment()`."""
        enter = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--pid", "--uts", "--ipc", "--"]
        return [*enter, "sh", "-c", 'cd; exec "$@"', "sh", *(str(word) for word in argv)]

    def run(
        self, argv: Sequence[object], environment: Mapping[str, str] | None = None, seconds: float = WITHIN
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command there; its exit code and what it has printed."""
        whole = self.environment(**(environment or {}))
        return subprocess.run(self.command(argv), env=whole, capture_output=True, text=True, timeout=seconds)

    def ip(self, *commands: str) -> None:
        """Commands of ip(8)."""
        from tests.support.machines.lan import ip

        ip(self.pid, *commands)

    # -- faults --------------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Ends all its processes at once; their connections close. What it has kept is still there."""
        if self._unshare is None:
            return
        self.thaw()
        process, self._unshare = self._unshare, None
        assert process.stdin is not None and process.stdout is not None and self._reader is not None
        with suppress(ProcessLookupError):
            os.kill(self.pid or process.pid, signal.SIGKILL)
        process.wait(WITHIN)
        self._reader.join(WITHIN)
        process.stdin.close()
        process.stdout.close()

    def freeze(self) -> None:
        """Stops all its processes where they are; the network of its kernel goes on."""
        self._group.mkdir()
        (self._group / "freezer.state").write_text("FROZEN")
        while self._move(self._group):  # what has been forked meanwhile
            pass

    def thaw(self) -> None:
        """Lets them go on."""
        if self._group.is_dir():
            (self._group / "freezer.state").write_text("THAWED")
            while self._move(FREEZER):
                pass
            self._group.rmdir()

    def _move(self, group: Path) -> int:
        """Puts the machine's processes into a control group; how many were not there."""
        there, moved = set((group / "cgroup.procs").read_text().split()), 0
        own = Path(f"/proc/{self.pid}/ns/pid").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended, or is none that we may look at
                if process.name not in there and (process / "ns" / "pid").readlink() == own:
                    (group / "cgroup.procs").write_text(process.name)
                    moved += 1
        return moved

    def reboot(self) -> None:
        """Killed, and booted again; nothing runs there."""
        self.kill()
        self.boot()

    # -- within --------------------------------------------------------------------------------------------------------

    def _read(self, lines: IO[bytes], answers: queue.Queue[dict[str, int | str]]) -> None:
        """Takes in what the first process tells, until it has ended."""
        for line in lines:
            told = json.loads(line)
            if "ended" in told:
                program = self._programs.pop(told["ended"], None)  # or an orphan, which nobody asked for
                if program is not None:
                    program.code = told["code"]
                    program.over.set()
                continue
            if "pid" in told:
                self._programs[told["pid"]] = Program(told["pid"], self.directory)
            answers.put(told)
        for program in self._programs.values():
            program.code = -signal.SIGKILL
            program.over.set()
        self._programs.clear()
