"""Claim: one Python process submits 500 short jobs at 20 a second or more, and each of them runs exactly once.

The jobs last from 0 to 0.9 s and need one slot of the local cluster each; those that have slots run beside their
submitter. Nobody looks at the line meanwhile but the jobs' own supervisors. Then the same again, with the submitter
killed (SIGKILL) at random moments and started again, until it has submitted all.

There is no peer that promises the same: the limit beside it is a Python process that only makes a directory per job,
with the same syncs, and starts its command with `sh -c`. It keeps no logs, no status and no order.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from common import PROGRAMS, Claim, Missed, Samples, finish, options, print_table, progress
from processes import KEY, new_key, sweep

from petctl.agent.node.native import set_child_subreaper

QUIET = 60.0  # seconds without any job's end after which the line is taken to stand still
LIVES = (0.3, 3.0)  # how long a submitter lives, at least and at most, where it is killed
STEP = 0.05
COUNT_STEP = 2.0


@dataclass
class Run:
    """What one run of all jobs took."""

    accepted: float  # jobs a second
    total: float  # from the first submission until the last job has ended
    processor: float  # seconds per job, of all its processes
    kills: int
    lost: int
    twice: int
    most: int  # supervisors at once, standbys included
    listing: str  # what a list of all jobs took, right after the last submission


LISTING = """
import time
from petctl.jobs import list_jobs
begun = time.process_time()
states = [status.state for status in list_jobs()]
print(f"{time.process_time() - begun:.2f} s of processor for {len(states)} jobs, {states.count('queued')} in line")
"""


class Queue:
    """A fresh home, and a list of jobs to bring into it."""

    def __init__(self, folder: Path, jobs: int, slots: int, key: str) -> None:
        self.folder, self.ids = folder, [f"short-{number:04d}" for number in range(jobs)]
        self.home, self.ran, self.notes = folder / "home", folder / "ran", folder / "notes"
        self.most, self._counted = 0, 0.0
        self.ran.mkdir()
        (folder / "ids").write_text("\n".join(self.ids))
        if slots:
            (folder / "petctl.yaml").write_text(f"clusters: {{local: {{slots: {slots}}}}}\n")
        self.environment = {**os.environ, "PETCTL_HOME": str(self.home), KEY: key}
        self.environment["XDG_CONFIG_HOME"] = str(folder / "config")

    def submitter(self) -> subprocess.Popen[bytes]:
        words = [sys.executable, str(PROGRAMS / "submit_many.py"), "ids", str(self.notes), str(self.ran)]
        return subprocess.Popen(words, cwd=self.folder, env=self.environment)

    def listing(self) -> str:
        words = [sys.executable, "-c", LISTING]
        return subprocess.run(words, env=self.environment, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    def noted(self) -> dict[str, float]:
        """When each job was accepted."""
        lines = self.notes.read_text().splitlines() if self.notes.exists() else []
        return {line.split()[0]: float(line.split()[2]) for line in lines if line.endswith(".")}

    def ended(self) -> int:
        """How many jobs are over. Their files are read, not asked for: whoever asks would move the line on."""
        return sum(1 for _ in (self.home / "jobs").glob("short-*/outcome.json"))

    def count_supervisors(self) -> None:
        """Notes how many processes look after jobs; now and then, because it takes a while itself."""
        if time.monotonic() > self._counted + COUNT_STEP:
            words = b"petctl.clusters.local.controller.supervisor"
            self.most = max(self.most, sum(words in _words(path) for path in Path("/proc").glob("[0-9]*")))
            self._counted = time.monotonic()


def _words(path: Path) -> bytes:
    try:
        return (path / "cmdline").read_bytes()
    except OSError:
        return b""


def run_all(jobs: int, slots: int, lives: tuple[float, float] | None, chance: random.Random) -> Run:
    """All jobs, submitted in one life of the submitter or in many."""
    with fresh(jobs, slots) as queue:
        before = _processor()
        begun = time.monotonic()
        kills = 0
        submitter = queue.submitter()
        dies = begun + chance.uniform(*lives) if lives else None
        while submitter.poll() is None:
            queue.count_supervisors()
            _reap(submitter.pid)
            if dies is not None and time.monotonic() > dies:
                submitter.kill()
                submitter.wait()
                kills += 1
                submitter = queue.submitter()
                dies = time.monotonic() + chance.uniform(*lives) if lives else None
            time.sleep(STEP)
        if submitter.returncode:
            raise Missed(f"the submitter ended with code {submitter.returncode}")
        noted = sorted(queue.noted().values())
        progress(f"{len(noted)} accepted after {time.monotonic() - begun:.1f} s, {queue.ended()} have ended")
        listing = queue.listing() if lives else ""  # whoever lists looks at the line, as the killed submitter has done
        _until_ended(queue, jobs)
        total = time.monotonic() - begun
        _reap_all()
        ran = {path.name for path in queue.ran.iterdir()}
        twice = queue.ran.with_name("ran.twice")
        return Run(
            accepted=(len(noted) - 1) / (noted[-1] - noted[0]),
            total=total,
            processor=(_processor() - before) / jobs,
            kills=kills,
            lost=len(set(queue.ids) - ran) + _failed(queue),
            twice=len(twice.read_text().split()) if twice.exists() else 0,
            most=queue.most,
            listing=listing,
        )


def _until_ended(queue: Queue, jobs: int) -> None:
    """Waits for the last."""
    last, moved = -1, time.monotonic()
    while (ended := queue.ended()) < jobs:
        if ended != last:
            last, moved = ended, time.monotonic()
        if time.monotonic() - moved > QUIET:
            raise Missed(f"nothing moves any more: {ended} of {jobs} jobs have ended")
        queue.count_supervisors()
        _reap()
        time.sleep(4 * STEP)


def _failed(queue: Queue) -> int:
    outcomes = (queue.home / "jobs").glob("short-*/outcome.json")
    return sum(b'"succeeded"' not in path.read_bytes() for path in outcomes)


@contextmanager
def fresh(jobs: int, slots: int) -> Iterator[Queue]:
    """A home of its own; nothing of it is left, whatever happens."""
    key = new_key()
    folder = Path(tempfile.mkdtemp(prefix="petctl-queue-"))
    try:
        yield Queue(folder, jobs, slots, key)
    finally:
        sweep(key)
        _reap_all()
        shutil.rmtree(folder, ignore_errors=True)


def bare(jobs: int) -> tuple[float, float]:
    """The limit: a directory with the same syncs and `sh -c` for each job; jobs a second, and all seconds."""
    with tempfile.TemporaryDirectory(prefix="petctl-bare-") as name:
        folder = Path(name)
        begun = time.monotonic()
        running = []
        for number in range(jobs):
            draft = folder / f".new-{number}"
            draft.mkdir()
            for part in ("record", "environment"):
                with open(draft / part, "wb") as file:
                    file.write(bytes(4000))
                    file.flush()
                    os.fsync(file.fileno())
            _sync(draft)
            draft.rename(folder / str(number))
            _sync(folder)
            command = f"set -C; echo ran > {folder}/{number}/ran; sleep {number % 10 / 10}"
            running.append(subprocess.Popen(["/bin/sh", "-c", command]))
        accepted = jobs / (time.monotonic() - begun)
        for process in running:
            process.wait()
        return accepted, time.monotonic() - begun


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _processor() -> float:
    """Processor time of all that has ended below this process; it adopts what loses its parents."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap(spared: int = 0) -> bool:
    """Takes leave of adopted processes that have ended; False when there is none left at all. `spared`: one that is
    waited for elsewhere."""
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != spared:
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return False
    return True


def _reap_all(patience: float = 20.0) -> None:
    deadline = time.monotonic() + patience
    while _reap() and time.monotonic() < deadline:
        time.sleep(STEP)


def main() -> int:
    """Measure and print."""
    parser = options(__doc__, pairs=1)
    parser.add_argument("--jobs", type=int, default=500, help="how many (default: 500)")
    parser.add_argument(
        "--slots", type=int, default=0, help="how many run at once (default: the cluster's own, 16 or more)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="for the moments of the kills")
    chosen = parser.parse_args()
    set_child_subreaper(True)
    progress(f"seed {chosen.seed}")
    chance = random.Random(chosen.seed)
    rows = {name: Samples(name) for name in ("petctl", "petctl, submitter killed", "bare sh -c")}
    claims: list[Claim] = []
    figures: dict[str, object] = {"jobs": chosen.jobs, "seed": chosen.seed}
    for _ in range(chosen.pairs):
        rate, seconds = bare(chosen.jobs)
        rows["bare sh -c"].seconds.append(seconds)
        print(f"\n  bare sh -c: {rate:.0f} a second, {seconds:.1f} s in all")
        for name, lives in (("petctl", None), ("petctl, submitter killed", LIVES)):
            try:
                run = run_all(chosen.jobs, chosen.slots, lives, chance)
            except Missed as missed:
                rows[name].seconds.append(float("inf"))
                rows[name].reasons.append(str(missed))
                claims.append(Claim(f"{name}: {missed}", holds=False))
                continue
            rows[name].seconds.append(run.total)
            figures[name] = vars(run)
            print(
                f"  {name}: {run.accepted:.1f} accepted a second, {run.total:.1f} s in all, "
                f"{run.processor:.2f} s of processor per job, at most {run.most} supervisors and standbys at once"
                + (f", {run.kills} kills; a list: {run.listing}" if lives else "")
            )
            claims.append(Claim(f"{name}: {run.lost} lost, {run.twice} ran twice", not run.lost and not run.twice))
            if lives is None:
                sentence = f"{run.accepted:.1f} jobs accepted a second (at least 20)"
                claims.append(Claim(sentence, run.accepted >= 20))
    print_table(f"{chosen.jobs} jobs, until all have ended", list(rows.values()), "petctl")
    return finish("job_queue", chosen.output, {"until all have ended": list(rows.values())}, claims, figures)


if __name__ == "__main__":
    sys.exit(main())
