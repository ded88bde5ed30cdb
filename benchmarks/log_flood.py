"""Claim: a flood of 3,000,000 lines arrives whole, at 5 times the speed of `torchrun --tee 3` or more.

One worker writes lines of 80 characters in blocks of a thousand. petctl: `petctl run` into a pipe that is drained
as fast as it fills, and the log file in the job's directory. torchrun: `--tee 3 --log-dir`, which also gives both.
The time is that of the whole command; each side's own time for a script that writes a single line is measured too
and shown, because the flood itself is the difference.

Complete means: every line is in the file, in order. The live stream may drop lines for a slow reader, and says so;
the count of lines that came through is printed.
"""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from common import PROGRAMS, Claim, Missed, Samples, finish, interleave, options, print_table, progress
from subjects import BEST_ENVIRONMENT, Subject


def flood(argv: list[str], logs: str, lines: int) -> float:
    """Run the command to its end, read all it says, and check the log file."""
    with Subject() as run:
        command = [word.replace("DIRECTORY", str(run.directory)) for word in argv]
        begin = time.monotonic()
        process = run.piped(command, {**BEST_ENVIRONMENT, "PETCTL_HOME": str(run.directory / "home")})
        assert process.stdout is not None
        streamed = 0
        while block := process.stdout.read(1 << 20):
            streamed += block.count(b"\n")
        code = process.wait()
        seconds = time.monotonic() - begin
        if code != 0:
            raise Missed(f"ended with {code}")
        files = [path for path in run.directory.glob(logs) if path.stat().st_size]
        check_complete(files, lines)
        if streamed < lines:
            progress(f"{lines - streamed} of {lines} lines were not in the stream")
        return seconds


def bare(argv: list[str]) -> float:
    """The floor: the same program, its output straight into a file, and nobody between."""
    with Subject() as run, (run.directory / "out").open("wb") as file:
        begin = time.monotonic()
        subprocess.run(argv, stdout=file, check=True)
        return time.monotonic() - begin


def check_complete(files: list[Path], lines: int) -> None:
    """Every line is there, once and in order."""
    expected = 0
    for path in files:
        with path.open("rb") as log:
            for line in log:
                if line.startswith(b"line "):
                    if int(line[5:14]) != expected:
                        raise Missed(f"line {expected} is missing in {path.name}")
                    expected += 1
    if expected != lines:
        raise Missed(f"{expected} of {lines} lines in the log file")


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--lines", type=int, default=3_000_000)
    chosen = parser.parse_args()
    script, python = str(PROGRAMS / "flood.py"), chosen.torch_python
    petctl = [chosen.petctl, "run", "--python", python, script]
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
    torchrun += ["--tee", "3", "--log-dir", "DIRECTORY/logs", script]
    ours, peer = "home/jobs/*/logs/round-*/rank-*.out", "logs/**/stdout.log"
    subjects = {
        "petctl run": partial(flood, [*petctl, str(chosen.lines)], ours, chosen.lines),
        "torchrun --tee 3": partial(flood, [*torchrun, str(chosen.lines)], peer, chosen.lines),
        "the program alone, into a file": partial(bare, [python, script, str(chosen.lines)]),
        "petctl run, 1 line": partial(flood, [*petctl, "1"], ours, 1),
        "torchrun --tee 3, 1 line": partial(flood, [*torchrun, "1"], peer, 1),
    }
    samples = interleave(chosen.pairs, subjects)
    print_table(f"{chosen.lines:,} lines, whole command", list(samples.values()), "petctl run")

    def throughput(flooded: Samples, empty: Samples) -> float:
        return float(chosen.lines) / (flooded.median - empty.median)

    mine = throughput(samples["petctl run"], samples["petctl run, 1 line"])
    theirs = throughput(samples["torchrun --tee 3"], samples["torchrun --tee 3, 1 line"])
    print(f"  lines per second, start deducted: petctl {mine:,.0f}, torchrun {theirs:,.0f}: {mine / theirs:.1f} times")
    whole = not samples["petctl run"].reasons
    claims = [
        Claim("petctl's log files are complete", whole),
        Claim(f"{mine / theirs:.1f} times torchrun's throughput (at least 5)", mine >= 5 * theirs),
    ]
    return finish("log_flood", chosen.output, {"flood": list(samples.values())}, claims)


if __name__ == "__main__":
    sys.exit(main())
