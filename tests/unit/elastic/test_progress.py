"""report() and expires(), each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from petctl.agent.health.progress import parse_end

ROOT = Path(__file__).parents[3]
DEADLINE = 20.0


def run(program: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs it as a worker would be, with these variables."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PETCTL_")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, "PYTHONPATH": str(ROOT / "src"), **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


MANY = """
from petctl import elastic
for step in range(1, 20001):
    elastic.report(step, loss=1 / step)
elastic.report(accuracy=float("nan"), name="not a number", flag=True)
"""


def test_reports_go_to_the_file_when_there_is_no_agent_and_the_last_always_does(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    done = run(MANY, PETCTL_PROGRESS=str(path))
    assert (done.returncode, done.stderr) == (0, "")
    lines = path.read_bytes().splitlines()
    assert 1 <= len(lines) < 40, "a few per second leave the process"
    assert parse_end(path.read_bytes()) == {"step": 20000, "loss": 1 / 20000, "accuracy": "nan"}


def test_reports_go_to_the_agent_while_it_listens(tmp_path: Path) -> None:
    program = """
from petctl import elastic
elastic.report(1, loss=0.5)
input()
"""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "agent"))
        listener.listen()
        listener.settimeout(DEADLINE)
        env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PETCTL_WORKER_KEY": "k"}
        env["PETCTL_AGENT_SOCKET"] = str(tmp_path / "agent")
        worker = subprocess.Popen([sys.executable, "-c", program], env=env, stdin=subprocess.PIPE)
        try:
            connection, _ = listener.accept()
            connection.settimeout(DEADLINE)
            with connection, connection.makefile("r") as lines:
                assert json.loads(lines.readline()) == {"hello": {"key": "k", "pid": worker.pid}}
                [(word, body)] = json.loads(lines.readline()).items()
                assert (word, body["step"], body["metrics"]) == ("progress", 1, {"loss": 0.5})
                connection.sendall(json.dumps({"stacks": {"file": str(tmp_path / "stacks")}}).encode() + b"\n")
                assert json.loads(lines.readline()) == {"dumped": {"file": str(tmp_path / "stacks")}}
            assert 'File "<string>", line 4 in <module>' in (tmp_path / "stacks").read_text()
            worker.communicate(b"\n", timeout=DEADLINE)
        finally:
            worker.kill()
            worker.communicate()
    assert worker.returncode == 0


def test_under_plain_python_it_says_so_once() -> None:
    done = run("from petctl import elastic\nfor step in range(3): elastic.report(step)")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "petctl.elastic: reports go nowhere here; run under petctl\n"


def test_the_graph_of_a_loss_is_not_kept(tmp_path: Path) -> None:
    program = """
import gc, weakref
from petctl import elastic
class Graph: pass
class Loss:
    def __init__(self, graph): self.graph = graph
    def detach(self): return Loss(None)
    def __float__(self): return 0.25
graph = Graph()
alive = weakref.ref(graph)
elastic.report(1, loss=Loss(graph))
del graph
gc.collect()
print(alive())
"""
    done = run(program, PETCTL_PROGRESS=str(tmp_path / "progress"))
    assert done.stdout == "None\n"
    assert parse_end((tmp_path / "progress").read_bytes()) == {"step": 1, "loss": 0.25}


def test_a_deadline_in_time_changes_nothing() -> None:
    program = """
import threading
from petctl import elastic
with elastic.expires(after=0.2):
    with elastic.expires(after=30):
        pass
threading.Event().wait(0.5)
print("alive")
"""
    done = run(program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "alive\n", "")


@pytest.mark.parametrize(
    "body",
    [
        "with elastic.expires(after=0.2): threading.Event().wait()",
        "with elastic.expires(after=0.2):\n with elastic.expires(after=30): threading.Event().wait()",
        "with elastic.expires(after=0.3):\n with elastic.expires(after=0.1): pass\n threading.Event().wait()",
        "with elastic.expires(after=0.2): ctypes.PyDLL(None).sleep(60)",  # holds the interpreter lock
    ],
)
def test_an_overrun_deadline_ends_the_process(body: str) -> None:
    began = time.monotonic()
    done = run(f"import ctypes, threading\nfrom petctl import elastic\n{body}\nprint('never')")
    assert done.returncode == 1 and not done.stdout
    assert done.stderr.startswith("Timeout (") and 'File "<string>", line' in done.stderr
    assert time.monotonic() - began < DEADLINE / 2
