"""Sweeps on this machine, with real jobs: killed drivers, failures, early stops, leaving and going on."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from functools import partial
from typing import Any
from xml.etree import ElementTree

from tests.integration.cli.conftest import Petctl
from tests.integration.waiting import until

POINTS = 10


def started(petctl: Petctl, *words: str) -> subprocess.Popen[str]:
    """A driver in its own process."""
    return subprocess.Popen(
        [*petctl.argv, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=petctl.directory,
        env=petctl.environment,
    )


def kinds(petctl: Petctl, name: str) -> Counter[str]:
    """How many events of each kind there are."""
    file = petctl.home / "sweeps" / name / "events.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    return Counter(json.loads(line)["kind"] for line in lines if line.endswith("}"))


def has(petctl: Petctl, name: str, accepted: int) -> bool:
    """Whether so many attempts were submitted."""
    return kinds(petctl, name)["accepted"] >= accepted


def column(document: dict[str, Any], name: str) -> list[Any]:
    return [point[name] for point in document["points"]]


def test_killed_drivers_leave_a_sweep_that_goes_on(petctl: Petctl) -> None:
    """Each point runs once, and all run the code that there was at the beginning."""
    ran = petctl.directory / "ran"
    ran.mkdir()
    petctl.script("point.sh", f"set -C; echo first > {ran}/$PARAM_N")  # a second run of a point fails
    words = ("sweep", "--name", "many", "--restarts", "0", "-p", f"n=1:{POINTS}", "sh", "point.sh")
    for accepted in (3, 7):
        driver = started(petctl, *words)
        try:
            until(partial(has, petctl, "many", accepted), f"{accepted} points are submitted")
        finally:
            driver.kill()
            driver.communicate()
        petctl.script("point.sh", f"set -C; echo second > {ran}/$PARAM_N")

    told = petctl.json("sweep", "ls")
    assert [(sweep["name"], sweep["state"], sweep["points"]) for sweep in told] == [("many", "left", POINTS)]
    assert "continuing sweep" in petctl(*words).stderr
    done = petctl.json("sweep", "status", "many")
    assert column(done, "state") == ["succeeded"] * POINTS
    assert column(done, "attempts") == [1] * POINTS
    assert {path.name: path.read_text() for path in ran.iterdir()} == {
        str(number): "first\n" for number in range(1, POINTS + 1)
    }
    assert kinds(petctl, "many")["accepted"] == POINTS
    assert len(petctl("list", "-q").stdout.split()) == POINTS
    assert "of another job" in petctl("sweep", "--name", "many", "-p", "n=1", "true", code=2).stderr


LINE = """
case $PARAM_KIND in
  bad) test -e mended || exit 3;;
  flaky) mkdir once 2>/dev/null && exit 3;;
  worse) echo step=1 loss=99 > $PETCTL_PROGRESS; sleep 60;;
esac
echo step=5 loss=${loss} > $PETCTL_PROGRESS
"""


def test_failures_metrics_and_results(petctl: Petctl) -> None:
    petctl.script("points.csv", "kind,loss\ngood,0.5\nbest,0.1\nbad,1\nflaky,0.7\nworse,9\n")
    words = ["--points", "points.csv", "--metric", "loss", "--stop-when", "loss>10", "--retries", "1"]
    done = petctl(
        *("sweep", "--name", "tune", *words, "--restarts", "0", "--no-upload", "-o", "json", "--shell", LINE), code=1
    )
    told = json.loads(done.stdout)
    assert column(told, "state") == ["succeeded", "succeeded", "failed", "succeeded", "stopped"]
    assert column(told, "attempts") == [1, 1, 2, 2, 1]
    assert column(told, "value") == [0.5, 0.1, None, 0.7, 99.0]
    assert told["best"]["values"] == {"kind": "best", "loss": "0.1"}
    assert "tune-003 failed" in done.stderr
    assert "stopped tune-005: loss>10 (it is 99)" in done.stderr
    assert "petctl sweep retry tune" in petctl("sweep", "status", "tune").stderr

    (petctl.directory / "mended").touch()
    again = petctl("sweep", "retry", "tune")
    assert "best loss 0.1 (kind=best loss=0.1)" in again.stderr
    petctl("rm", "tune-001")  # what came of it is known nevertheless
    lines = petctl("sweep", "export", "tune").stdout.splitlines()
    assert lines[0].startswith("kind,loss,loss,point,job,state,attempts,step,seconds")
    assert [line.split(",")[2:7] for line in lines[1:4]] == [
        ["0.5", "1", "tune-001", "succeeded", "1"],
        ["0.1", "2", "tune-002", "succeeded", "1"],
        ["1.0", "3", "tune-003-3", "succeeded", "3"],
    ]
    petctl("sweep", "plot", "-f", "tune.svg", "tune")
    picture = ElementTree.fromstring((petctl.directory / "tune.svg").read_text())
    assert len(picture.findall(".//{*}circle")) == 2 * 5
    assert "the best: point 2: kind=best loss=0.1: 0.1" in petctl("sweep", "plot", "--text", "tune").stdout
    assert petctl.json("sweep", "rm", "tune")["jobs"][-1] == "tune-005"
    assert petctl("list", "-q").stdout == ""
    assert petctl("sweep", "status", "tune", code=2).stderr.startswith("petctl: there is no sweep")


def test_leaving_going_on_and_cancelling(petctl: Petctl) -> None:
    line = 'echo "loss: $PARAM_N"; sleep 60'
    words = ("--name", "long", "-j", "2", "-p", "n=1:3", "--metric-regex", r"loss: (\d+)", "--shell", line)
    driver = started(petctl, "sweep", *words)
    until(partial(has, petctl, "long", 2), "two points are submitted")
    driver.send_signal(signal.SIGINT)
    _, words_of_it = driver.communicate()
    assert driver.returncode == 130
    assert "2 of its jobs keep running" in words_of_it
    assert "petctl sweep resume long" in words_of_it
    assert petctl("sweep", "rm", "long", code=2).stderr.startswith("petctl: jobs of long are still running")

    assert petctl("sweep", "resume", "-d", "-j", "3", "long").stdout == "long\n"
    assert petctl.json("sweep", "ls")[0]["state"] == "driven"
    until(partial(has, petctl, "long", 3), "the third is submitted")
    assert "another petctl" in petctl("sweep", "resume", "long", code=1).stderr
    for job in ("long-001", "long-002", "long-003"):
        petctl.follow_until(job, "loss:")
    petctl("sweep", "cancel", "long")
    petctl("sweep", "status", "--watch", "long")
    told = petctl.json("sweep", "status", "long")
    assert told["state"] == "cancelled"
    assert column(told, "state") == ["cancelled"] * 3
    assert column(told, "value") == [1.0, 2.0, 3.0]


def test_a_sweep_ends_when_it_has_what_it_wants(petctl: Petctl) -> None:
    line = 'echo "acc ${n}"; test ${n} -lt 2 || exec sleep 60'
    regex = ("--metric-regex", r"acc (\d+)", "--metric", "acc", "--goal", "max", "--until", "acc>=2")
    told = json.loads(petctl("sweep", "-q", "-o", "json", "-j", "1", "-p", "n=1:4", *regex, "--shell", line).stdout)
    assert column(told, "state") == ["succeeded", "stopped", "skipped", "skipped"]
    assert told["best"]["point"] == 2
    assert "point 2 has reached acc>=2" in told["sentence"]


def test_what_cannot_be(petctl: Petctl) -> None:
    """What is wrong with all points is told before anything is made; what is wrong with one is that point's failure."""
    taken = petctl("sweep", "-p", "lr=1", "-e", "PARAM_LR=2", "true", code=2)
    assert "PARAM_LR is in the job's environment already" in taken.stderr
    assert "there is no script train.py" in petctl("sweep", "-p", "lr=1", "train.py", code=2).stderr
    assert not (petctl.home / "sweeps").exists()
    wrong = petctl("sweep", "-p", "n=1,x", "--restarts", "${n}", "true", code=2)
    assert "--restarts: 'x' is not a whole number\n(in the point n=x)" in wrong.stderr
    done = petctl("sweep", "-p", "n=1,100", "-n", "${n}", "--restarts", "${n}", "true", code=1)
    assert "was refused: the job needs at least 100 nodes" in done.stderr
    assert "2 of 2 points are done (1 refused, 1 succeeded)" in done.stderr
