"""What every supported Python must do: run a job, report its failure, and leave nothing behind, whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import zipfile
from pathlib import Path

import pytest

from petctl.clusters.agent_archive import build_agent
from petctl.rendezvous.core.messages import ENDED_FAILED, SUCCEEDED
from tests.integration.agent.conftest import INTERPRETERS, Bench, alive
from tests.integration.waiting import DEADLINE, until

pytestmark = pytest.mark.parametrize("python", INTERPRETERS)

# A worker with a child in a session of its own that ignores SIGTERM.
FAMILY = """
import os, signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", stubborn], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
print(os.getpid(), child.pid, flush=True)
"""
FAMILY_STAYS = FAMILY + "time.sleep(600)\n"


def test_two_workers_see_their_ranks_and_the_job_succeeds(bench: Bench, python: str) -> None:
    bench.open("shell", ["echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"], procs="2")
    node = bench.agent(python=python)
    assert bench.ended().state == SUCCEEDED
    assert node.wait() == 0
    lines = [bench.log(rank).read_text() for rank in (0, 1)]
    assert lines[0].startswith("rank 0 of 2 at 127.0.0.1:") and lines[1].startswith("rank 1 of 2 at 127.0.0.1:")
    bench.nothing_left()


def test_a_traceback_reaches_the_outcome(bench: Bench, python: str) -> None:
    script = bench.directory / "train.py"
    fail = "    raise ValueError('no such layer')\n"
    script.write_text(f"import os, time\nif os.environ['RANK'] == '1':\n{fail}time.sleep(600)\n")
    bench.open("script", [str(script)], procs="2")
    node = bench.agent(python=python)
    outcome = bench.ended()
    assert outcome.state == ENDED_FAILED and outcome.code == 1 and outcome.failure is not None
    assert outcome.failure.rank == 1 and outcome.failure.message == "ValueError: no such layer"
    assert 'train.py", line 3' in outcome.failure.traceback
    assert node.wait() == 1
    bench.nothing_left()


@pytest.mark.parametrize("victim", ["agent", "guardian"])
def test_nothing_outlives_a_killed_node(bench: Bench, python: str, victim: str) -> None:
    bench.open("script", [_script(bench, FAMILY_STAYS)], procs="2")
    node = bench.agent(python=python)
    pids = [int(pid) for rank in (0, 1) for pid in bench.line(rank).split()]
    assert all(alive(pid) for pid in pids)
    os.kill(node.agent if victim == "agent" else node.process.pid, signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pids), "the workers and their children are gone")
    node.wait()
    bench.nothing_left()


def test_sigterm_is_leaving(bench: Bench, python: str) -> None:
    bench.open("shell", ["echo up; exec sleep 600"])
    node = bench.agent(python=python)
    bench.line()
    node.terminate()
    assert node.wait() == 0
    assert not bench.closed.is_set()
    bench.nothing_left()


def test_stubborn_workers_are_killed_after_their_grace(bench: Bench, python: str) -> None:
    bench.open(
        "script", [_script(bench, "import signal\nsignal.signal(15, signal.SIG_IGN)\n" + FAMILY_STAYS)], grace=0.5
    )
    node = bench.agent(python=python)
    worker, child = (int(pid) for pid in bench.line().split())
    node.terminate()
    assert node.wait() == 0
    assert not alive(worker) and not alive(child)


def test_the_archive_is_the_same_bytes_each_time_and_runs(bench: Bench, python: str, tmp_path: Path) -> None:
    again = build_agent(tmp_path / "again.pyz")
    assert again.read_bytes() == bench.archive.read_bytes()
    assert again.stat().st_size < 1 << 20
    answer = subprocess.run([python, str(again), "version"], capture_output=True, text=True, timeout=DEADLINE)
    assert answer.returncode == 0 and answer.stdout.startswith("petctl ")
    names = [name for name in zipfile.ZipFile(again).namelist() if name.endswith(".py") and not name.endswith("__.py")]
    modules = [name[:-3].replace("/", ".") for name in names]
    assert "petctl.agent.logs.stream" in modules and "petctl.rendezvous.net.client" in modules
    program = (
        f"import sys, importlib; sys.path.insert(0, {str(again)!r})\nfor m in {modules}: importlib.import_module(m)"
    )
    subprocess.run([python, "-I", "-S", "-c", program], check=True, timeout=DEADLINE)


def _script(bench: Bench, text: str) -> str:
    path = bench.directory / "worker.py"
    path.write_text(text)
    return str(path)
