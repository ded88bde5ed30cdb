"""A petctl of its own for every test: own home, own directory, and no job left behind, however the test ends."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Iterator

import pytest

from tests.integration.waiting import until

SOURCE = Path(__file__).parents[3] / "src"
PATIENCE = 60


class Petctl:
    """The command line, as a shell would run it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        program = directory / "bin" / "petctl"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m petctl "$@"\n')
        program.chmod(0o755)
        self.environment = {
            **os.environ,
            "PETCTL_HOME": str(self.home),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "PYTHONPATH": str(SOURCE),
            "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        }
        self.argv = [sys.executable, "-m", "petctl"]

    def __call__(self, *words: str, stdin: str = "", code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Runs one command to its end and checks its exit code."""
        done = subprocess.run(
            [*self.argv, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            cwd=self.directory,
            env=self.environment,
        )
        if code is not None:
            assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words: str, code: int | None = 0) -> Any:
        """The one document that a command prints with -o json."""
        return json.loads(self(*words, "-o", "json", code=code).stdout)

    def script(self, name: str, text: str) -> str:
        """A script in the directory in which petctl runs."""
        (self.directory / name).write_text(text)
        return name

    def submit(self, *words: str) -> str:
        """A job's id."""
        return self("submit", "-q", *words).stdout.strip()

    def follow_until(self, job: str, text: str) -> None:
        """Returns once the job has printed the text, and its status, which is written meanwhile, shows that it runs."""
        with subprocess.Popen(
            [*self.argv, "logs", "-f", job],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.directory,
            env=self.environment,
        ) as process:
            assert process.stdout is not None
            try:
                seen = []
                for line in process.stdout:
                    seen.append(line)
                    if text in line:
                        break
                else:
                    raise AssertionError(f"{text!r} was not printed, but: {''.join(seen)}")
            finally:
                process.kill()
        until(lambda: self.json("status", job, code=None)["state"] not in ("pending", "starting"), "its status")

    @contextlib.contextmanager
    def far_node(self, job: str, state: Path, python: str = sys.executable) -> Iterator[subprocess.Popen[bytes]]:
        """A node of another machine: this one, with another disk in the place of petctl's home. Needs root."""
        join, agent = state.parent / "join.json", state.parent / "petctl-agent.pyz"
        self("token", job, "--file", str(join), "--agent", str(agent))
        found = json.loads((self.home / "jobs" / job / "coordinator.json").read_text())
        there = {**json.loads(join.read_text()), "locator": {"address": found["address"]}, "revive": None}
        join.write_text(json.dumps(there))
        words = [python, str(agent), "join", "--file", str(join), "--node", "far", "--state-dir", str(state)]
        hidden = f"mount -t tmpfs none {self.home} && exec {' '.join(words)}"
        keyless = {name: self.environment[name] for name in ("PATH", "XDG_CACHE_HOME")}
        far = subprocess.Popen(["unshare", "-m", "sh", "-c", hidden], env=keyless)
        try:
            yield far
        finally:
            far.kill()
            far.wait()

    def clean_up(self) -> None:
        """Ends and removes every job; their processes are gone when it returns."""
        jobs = self("list", "-q", code=None).stdout.split()
        if jobs:
            self("rm", "--force", *jobs, code=None)


class Terminal:
    """petctl on a pseudo terminal, with somebody at the keyboard."""

    def __init__(self, petctl: Petctl, *words: str) -> None:
        self.pid, self.keyboard = pty.fork()
        if self.pid == 0:
            os.chdir(petctl.directory)
            os.execve(petctl.argv[0], [*petctl.argv, *words], {**petctl.environment, "TERM": "xterm"})
        self.screen = b""
        self._status: int | None = None

    def until(self, text: bytes) -> None:
        """Reads until the text has appeared."""
        deadline = time.monotonic() + PATIENCE
        while text not in self.screen:
            assert self._read(deadline), f"the terminal closed without {text!r}: {self.screen!r}"

    def type(self, keys: bytes) -> None:
        os.write(self.keyboard, keys)

    def press_control_c(self) -> None:
        self.type(b"\x03")

    def exit_code(self) -> int:
        """Reads to the end; the exit code as a shell would say it."""
        deadline = time.monotonic() + PATIENCE
        while self._read(deadline):
            pass
        self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def close(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.keyboard)

    def _read(self, deadline: float) -> bool:
        left = deadline - time.monotonic()
        assert left > 0 and select.select([self.keyboard], [], [], left)[0], f"nothing more on: {self.screen!r}"
        try:
            data = os.read(self.keyboard, 65536)
        except OSError:  # EIO: the other side is closed
            return False
        self.screen += data
        return bool(data)


@pytest.fixture
def petctl(tmp_path: Path) -> Iterator[Petctl]:
    program = Petctl(tmp_path)
    try:
        yield program
    finally:
        program.clean_up()
