"""Runs a command with this process's terminal and waits for it, as a shell would: Ctrl-C is the command's to answer.

`NodesHere` has that, and connections, for backends whose nodes are processes of this machine.
A node elsewhere runs it as a worker of its job would, in its directory and with its environment (`worker_command`).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.secret_file import secret_values


class NodesHere:
    """A part of a Backend: its jobs have a `record`, and run in a directory of this machine."""

    home: Path
    host = "127.0.0.1"

    def dial(self, node: Any, port: int) -> socket.socket:
        return socket.create_connection((self.host, port), timeout=10)

    def execute(self, job: Any, node: Any, argv: Sequence[str]) -> int:
        """With the environment of that node's workers."""
        task, secrets = job.record.task, secret_values(self.home, job.record.secrets)
        own = {"PETCTL_JOB_ID": job.job_id, "PETCTL_NODE": str(node), "PETCTL_OUTPUT_DIR": task.output_dir}
        return run_in_foreground(argv, task.cwd, {**os.environ, **task.env, **secrets, **own})


_AS_A_WORKER = """
import json, os, pathlib, sys
wish, own = json.loads(sys.argv[1]), b""
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found = b"\\0" + path.read_bytes()
    except OSError:
        continue
    if b"\\0PETCTL_WORKER_KEY=" in found:
        own = found
        break
    if b"\\0PETCTL_NODE_KEY=" in found:  # a warm worker's: its round's variables do not show from outside
        own = found
os.environ.update(line.split("=", 1) for line in os.fsdecode(own).split("\\0") if "=" in line)
os.environ.update(wish["env"])
try:
    os.chdir(wish["cwd"] or ".")
    os.execvp(wish["argv"][0], wish["argv"])
except OSError as error:
    sys.exit(f"cannot run {wish['argv'][0]!r} in {os.getcwd()}: {error.strerror}")
"""


def run_in_foreground(argv: Sequence[str], cwd: str | None = None, env: Mapping[str, str] | None = None) -> int:
    """Its exit code as a shell would say it."""
    try:
        with _left_to_the_command():
            code = subprocess.run(argv, cwd=cwd, env=env, check=False).returncode
    except OSError as error:
        raise UsageError(f"cannot run {argv[0]!r} in {cwd or Path.cwd()}: {error.strerror}") from None
    return code if code >= 0 else 128 - code


@contextmanager
def _left_to_the_command() -> Iterator[None]:
    """The terminal sends the keys' signals to every process in its foreground. A handler, not SIG_IGN: that would be
    inherited by the command."""
    keys = (signal.SIGINT, signal.SIGQUIT) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda *_: None) for number in keys}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def worker_command(python: Sequence[str], env: Mapping[str, str], cwd: str, argv: Sequence[str]) -> list[str]:
    """What to run on a node; `python`: that of its agent, `env`: what a worker there has beside its round's."""
    return [*python, "-c", _AS_A_WORKER, json.dumps({"env": dict(env), "cwd": cwd, "argv": list(argv)})]
