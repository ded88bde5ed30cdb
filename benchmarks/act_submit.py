"""Claim: `act submit` with pinned code takes at most 0.5 s until the run is accepted.

The whole process of `act submit true`, in a project of 1,000 files whose code was pinned: it looks whether the code has
changed, and puts the run in line. In turn with `petctl submit` of the same command, which takes a snapshot of the same
unchanged project, and with a bare `python -c pass`, below which no Python program can be. Each job has ended and is
gone before the next one is submitted. `--changed`: with one file written anew before each submission, of which `act`
then warns.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Claim, Missed, finish, interleave, options, print_table
from processes import KEY, new_key, sweep

FILES, SIZE = 1000, 4096
CONFIGURATION = "experiment_name: bench\ngpu_per_node: 1\ndevice: cpu\n"


def plant(root: Path, files: int) -> None:
    """A project with its configuration."""
    chance = random.Random(1)
    for number in range(files):
        path = root / f"package{number // 50:03d}" / f"module{number:05d}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"# " + chance.randbytes(SIZE // 2).hex().encode() + b"\n")
    (root / "aux_data" / "aml").mkdir(parents=True)
    (root / "aux_data" / "aml" / "aml.yaml").write_text(CONFIGURATION)
    (root / "petctl.yaml").write_text("clusters: {local: {slots: 4}}\n")


class Project:
    """Where commands are typed."""

    def __init__(self, root: Path, home: Path, key: str) -> None:
        self.root, self.changing = root, False
        self.environment = {**os.environ, "PETCTL_HOME": str(home), KEY: key, "XDG_CONFIG_HOME": str(home / "config")}
        self.environment["CUDA_VISIBLE_DEVICES"] = ""

    def run(self, words: list[str]) -> str:
        """One command to its end; what it printed."""
        done = subprocess.run(
            words, cwd=self.root, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise Missed(f"{' '.join(words[-3:])} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
        return done.stdout.strip()

    def timed(self, words: list[str]) -> tuple[float, str]:
        begin = time.monotonic()
        printed = self.run(words)
        return time.monotonic() - begin, printed

    def submission(self, words: list[str], petctl: str) -> Callable[[], float]:
        """Measures one; what it submitted is over and gone afterwards."""

        def measured() -> float:
            if self.changing:
                (self.root / "package000" / "module00000.py").write_text(f"# {time.time()}\n")
            seconds, job = self.timed(words)
            self.run([petctl, "wait", job])
            self.run([petctl, "rm", job])
            return seconds

        return measured


def main() -> int:
    """Measure and print."""
    parser = options(__doc__, pairs=20)
    parser.add_argument("--files", type=int, default=FILES, help=f"of the project (default: {FILES})")
    parser.add_argument("--changed", action="store_true", help="write a file anew before each submission")
    chosen = parser.parse_args()
    key = new_key()
    with tempfile.TemporaryDirectory(prefix="petctl-bench-") as folder:
        root, home, programs = (Path(folder, name) for name in ("project", "home", "bin"))
        plant(root, chosen.files)
        project = Project(root, home, key)
        try:
            project.run([chosen.petctl, "compat", "install", "act", "--no-package", "--force", "--dir", str(programs)])
            act = str(programs / "act")
            project.run([act, "init"])
            time.sleep(2.5)  # files that were written just now are read again each time
            project.changing = chosen.changed
            subjects: dict[str, Callable[[], float]] = {
                "act submit": project.submission([act, "submit", "true"], chosen.petctl),
                "petctl submit": project.submission([chosen.petctl, "submit", "-q", "--", "true"], chosen.petctl),
                "python -c pass": lambda: project.timed([sys.executable, "-c", "pass"])[0],
            }
            for subject in subjects.values():
                subject()  # the first run compiles the bytecode and fills the index
            samples = interleave(chosen.pairs, subjects)
        finally:
            sweep(key)
    ours = samples["act submit"]
    title = f"submitting with pinned code, {chosen.files:,} files" + (", one of them changed" * chosen.changed)
    print_table(title, list(samples.values()), ours.name)
    claims = [Claim(f"act submit takes {ours.median:.3f} s (at most 0.5)", ours.median <= 0.5)]
    return finish("act_submit", chosen.output, {title: list(samples.values())}, claims)


if __name__ == "__main__":
    sys.exit(main())
