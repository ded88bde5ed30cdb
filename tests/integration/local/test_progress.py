"""Progress from real workers to `status`: by the file and by the library; stalls, stragglers, deadlines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import petctl
from petctl.job.spec import IN_PLACE
from petctl.jobs import JobHandle, submit
from tests.integration.local.conftest import Stage, job_path
from tests.integration.waiting import DEADLINE, until

# Any language will do: this one is /bin/sh.
SHELL = """
step=0
while [ ! -e finish ]; do
  step=$((step + 1))
  if [ $step -gt "${STOP_AT:-1000000}" ] && [ "$PETCTL_ROUND" = 1 ]; then sleep 1000; fi
  echo "step=$step loss=0.$step epoch=1 note=training" >> "$PETCTL_PROGRESS"
  sleep 0.1
done
"""

LIBRARY = """
import os, pathlib, sys, threading, time
from petctl import elastic
mode = sys.argv[1]
rank = int(os.environ["RANK"])
first = os.environ["PETCTL_ROUND"] == "1"

def wait_for_ever_here():
    threading.Event().wait()

step = 0
while not pathlib.Path("finish").exists():
    step += 1
    if mode == "hang" and first and rank == 1 and step == 5:
        wait_for_ever_here()
    if mode == "hang" and first and step == 6:
        threading.Barrier(2).wait()
    pace = {"slow": 12 if rank == 2 else 4}.get(mode, 1)  # slow enough to be told from a busy machine
    elastic.report(step, loss=1 / step, samples=32 * step, bad=float("nan"))
    time.sleep(0.05 * pace)
elastic.report(step=1_000_000)
"""


def run(stage: Stage, shell: str = "", script: str = "", args: tuple[str, ...] = (), **fields: Any) -> JobHandle:
    fields = {"grace": 2, "cwd": stage.path, **fields}
    if shell:
        return submit(petctl.Job(shell=shell, code=IN_PLACE, **fields))
    (stage.path / "train.py").write_text(script)
    return submit(petctl.Job(script="train.py", args=list(args), code=IN_PLACE, **fields))


def events(handle: JobHandle, kind: str) -> list[dict[str, Any]]:
    lines = (job_path(handle) / "events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def test_lines_in_the_progress_file_reach_the_status(stage: Stage) -> None:
    handle = run(stage, shell=SHELL, nodes=2)
    paced = lambda p: len(p.ranks) == 2 and p.step > 12 and 2 < p.steps_per_second < 11  # noqa: E731
    seen = until(lambda: (p := handle.status().progress) and paced(p) and p, "progress at the pace of its sleep")
    assert seen.metrics["epoch"] == 1 and seen.metrics["loss"] == pytest.approx(float(f"0.{seen.step}"))
    assert "note" not in seen.metrics, "only numbers are metrics"
    assert [(row.rank, row.node) for row in seen.ranks] == [(0, "0"), (1, "1")]
    stage.finish()
    final = handle.wait(DEADLINE)
    assert final.state == "succeeded" and final.progress is not None and final.progress.step >= seen.step
    assert len(events(handle, "progress")) == 1


def test_a_stall_is_one_failure_and_the_round_is_restarted(stage: Stage) -> None:
    handle = run(stage, shell=SHELL, nodes=2, stall_after=4, env={"STOP_AT": "8"})
    status = until(lambda: (s := handle.status()).spent == 1 and s.round == 2 and s, "a second round")
    until(lambda: (p := handle.status().progress) and p.step > 10, "steps of the second round")
    failure = handle.status().last_failure
    assert failure is not None and failure.hung and failure.code == 124
    assert failure.message.startswith("no step for") and "stopped after step 8" in failure.message
    assert status.rounds[0].number == 1 and "hangs" in events(handle, "round")[1]["reason"]
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"
    assert handle.status().spent == 1
    assert len(events(handle, "stall")) == 1


def test_a_stall_without_restarts_left_ends_the_job(stage: Stage) -> None:
    handle = run(stage, shell=SHELL, stall_after=4, restarts=0, env={"STOP_AT": "5"})
    status = handle.wait(DEADLINE)
    assert (status.state, status.exit_code) == ("failed", 124)
    assert status.error is not None and status.error.hung and "no step for" in status.sentence


def test_the_library_reports_and_tells_where_it_hangs(stage: Stage) -> None:
    handle = run(stage, script=LIBRARY, args=("hang",), nodes=2, stall_after=4)
    failure = until(lambda: handle.status().last_failure, "a failure")
    assert (failure.rank, failure.hung) == (1, True)
    assert "rank 1 stopped after step 4, others after step 5" in failure.message
    assert failure.traceback.startswith("rank 1:\n") and "\nrank 0:\n" in failure.traceback
    assert "wait_for_ever_here" in failure.traceback and "channel.py" not in failure.traceback
    stacks = Path(handle.status().directory, "logs", "round-0001", "rank-0.stacks")
    assert "train.py" in stacks.read_text()
    seen = until(lambda: (p := handle.status().progress) and p.step > 20 and p, "steps of the second round")
    assert seen.metrics["bad"] == "nan" and float(seen.metrics["samples_per_second"]) > 10
    stage.finish()
    final = handle.wait(DEADLINE)
    assert final.state == "succeeded"
    assert final.progress is not None and final.progress.step == 1_000_000, "the last report always arrives"


BY_FILE = """
import os, sys, threading, time
before = {"faulthandler", "PETCTL_STARTUP_STACKS"} & {*sys.modules, *os.environ}
assert not before, before

def wait_for_ever_here():
    threading.Event().wait()

for step in range(1, 10):
    with open(os.environ["PETCTL_PROGRESS"], "a") as progress:
        print(f"step={step}", file=progress)
    time.sleep(0.05)
wait_for_ever_here()
"""


@pytest.mark.parametrize("warm", [True, False])
def test_a_hang_found_by_the_progress_file_has_stacks(stage: Stage, warm: bool) -> None:
    handle = run(stage, script=BY_FILE, restarts=1, stall_after=4, warm=warm)  # the second worker may be a fork
    status = handle.wait(DEADLINE)
    assert status.error is not None and status.error.hung
    assert status.error.traceback.startswith("rank 0:\n"), status.error
    assert "in wait_for_ever_here" in status.error.traceback
    for number in (1, 2):
        stacks = Path(status.directory, "logs", f"round-000{number}", "rank-0.stacks")
        assert "in wait_for_ever_here" in stacks.read_text()


def test_a_slow_rank_is_named_once(stage: Stage) -> None:
    handle = run(stage, script=LIBRARY, args=("slow",), nodes=3)
    until(lambda: (p := handle.status().progress) and p.stragglers == [2], "a straggler")
    [event] = events(handle, "stragglers")
    assert event["sentence"].startswith("rank 2 on node 2 is slow: ")
    stage.finish()
    assert handle.wait(DEADLINE).state == "succeeded"


OVERRUN = """
import time
from petctl import elastic
with elastic.expires(after=60):
    with elastic.expires(after=0.3):
        time.sleep(1000)
"""


def test_an_overrun_deadline_is_the_root_cause(stage: Stage) -> None:
    handle = run(stage, script=OVERRUN, restarts=0)
    status = handle.wait(DEADLINE)
    assert status.error is not None
    assert (status.state, status.exit_code) == ("failed", 1)
    assert status.error.message == "it overran a deadline of its own (elastic.expires)"
    assert "train.py" in status.error.traceback
