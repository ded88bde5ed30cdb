"""Claim: of a sweep of 100 short jobs whose driver is killed (SIGKILL) again and again, each point runs exactly once.

The peer is what people write instead of a sweep: a loop that submits each job and then waits for all of them, with the
same jobs on the same cluster. It keeps no record, so it is not killed. A point is a job of `sh` that makes a file of
its own name and fails when there is one already.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common import Claim, Missed, Samples, finish, options, print_table, progress
from processes import KEY, new_key, sweep

LIVES = (1.0, 4.0)  # seconds that a driver lives, at least and at most, where it is killed
PATIENCE = 600.0
LOOP = """
import sys
import petctl
ran, points = sys.argv[1], int(sys.argv[2])
jobs = [
    petctl.Job(program=["sh", "point.sh"], restarts=0, env={"PARAM_N": str(number), "RAN": ran})
    for number in range(1, points + 1)
]
handles = [petctl.submit(job, id=f"loop-{number:03d}") for number, job in enumerate(jobs, 1)]
sys.exit(any(handle.wait().exit_code for handle in handles))
"""


class Place:
    """A fresh home, and a directory that points leave their marks in."""

    def __init__(self, folder: Path, points: int, key: str) -> None:
        self.folder, self.points = folder, points
        self.ran = folder / "ran"
        self.ran.mkdir()
        (folder / "project").mkdir()
        (folder / "project" / "point.sh").write_text("set -C; echo ran > $RAN/$PARAM_N\n")
        self.environment = {**os.environ, "PETCTL_HOME": str(folder / "home"), KEY: key}
        self.environment["XDG_CONFIG_HOME"] = str(folder / "config")

    def start(self, words: list[str]) -> subprocess.Popen[bytes]:
        nowhere = subprocess.DEVNULL
        project = self.folder / "project"
        return subprocess.Popen(words, cwd=project, env=self.environment, stdout=nowhere, stderr=nowhere)

    def driver(self, petctl: str) -> subprocess.Popen[bytes]:
        words = ["sweep", "-q", "--name", "many", "--restarts", "0", "-e", f"RAN={self.ran}"]
        return self.start([petctl, *words, "-p", f"n=1:{self.points}", "sh", "point.sh"])

    def loop(self) -> subprocess.Popen[bytes]:
        return self.start([sys.executable, "-c", LOOP, str(self.ran), str(self.points)])

    def wrong(self, petctl: str) -> int:
        """Points that did not run once."""
        words = [petctl, "sweep", "status", "-o", "json", "many"]
        done = subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, check=True)
        rows = json.loads(done.stdout)["points"]
        missing = self.points - sum(1 for _ in self.ran.iterdir())
        return missing + sum(bool(row["state"] != "succeeded" or row["attempts"] != 1) for row in rows)


@contextmanager
def fresh(points: int) -> Iterator[Place]:
    """Nothing of it is left, whatever happens."""
    key = new_key()
    folder = Path(tempfile.mkdtemp(prefix="petctl-sweep-"))
    try:
        yield Place(folder, points, key)
    finally:
        sweep(key)
        shutil.rmtree(folder, ignore_errors=True)


def ended(process: subprocess.Popen[bytes]) -> None:
    """Waits for it to end well."""
    try:
        code = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise Missed(f"it had not ended after {PATIENCE:.0f} s") from None
    if code:
        raise Missed(f"it ended with code {code}")


def killed_again_and_again(place: Place, petctl: str, chance: random.Random) -> int:
    """Drives the sweep to its end in many lives; how many were cut off."""
    kills = 0
    while True:
        driver = place.driver(petctl)
        try:
            code = driver.wait(chance.uniform(*LIVES))
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
            kills += 1
            continue
        if code:
            raise Missed(f"the driver ended with code {code}")
        return kills


def main() -> int:
    """Measures, prints, judges."""
    parser = options(__doc__, pairs=3)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    chance = random.Random(chosen.seed)
    rows = {name: Samples(name) for name in ("petctl sweep", "a loop of submit and wait", "petctl sweep, killed")}
    kills = wrong = 0
    for number in range(chosen.pairs):
        for name in list(rows)[:: 1 if number % 2 == 0 else -1]:
            with fresh(chosen.points) as place:
                begun = time.monotonic()
                try:
                    if name.startswith("a loop"):
                        ended(place.loop())
                    elif name.endswith("killed"):
                        kills += killed_again_and_again(place, chosen.petctl, chance)
                    else:
                        ended(place.driver(chosen.petctl))
                    seconds = time.monotonic() - begun
                    wrong += 0 if name.startswith("a loop") else place.wrong(chosen.petctl)
                except Missed as missed:
                    seconds = float("inf")
                    rows[name].reasons.append(str(missed))
                rows[name].seconds.append(seconds)
                progress(f"run {number + 1} of {chosen.pairs}: {name}: {seconds:.1f} s")
    print_table(f"{chosen.points} points, until all have ended", list(rows.values()), "petctl sweep")
    rates = {name: round(chosen.points / row.median, 2) for name, row in rows.items()}
    print("  points a second: " + ", ".join(f"{name} {rate}" for name, rate in rates.items()))
    claims = [Claim(f"{kills} kills; {wrong} points that did not run exactly once", kills > 0 and not wrong)]
    figures = {"points_a_second": rates, "kills": kills, "wrong": wrong}
    return finish("sweep", chosen.output, {"until all have ended": list(rows.values())}, claims, figures)


if __name__ == "__main__":
    sys.exit(main())
