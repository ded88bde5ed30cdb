"""Claim: a change has made nothing slower: this checkout beside another one, in turn.

    git worktree add ../before COMMIT && make -C ../before .venv/.ready
    python benchmarks/against.py ../before [--what first-line] [--pairs 20]

Each checkout is measured by its own command or its own benchmark, with the same PyTorch. For every figure the ratio of
the medians is at most 1.05.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from common import PROGRAMS, ROOT, Claim, Missed, Samples, finish, interleave, options, print_table, ratio
from first_line import first_line

RESTARTS = 7  # runs of one restart benchmark: it teaches a job first, which takes longer than a run
SLOWER = 1.05


def run(checkout: Path, script: str, *words: str) -> str:
    """What a checkout's own benchmark prints."""
    argv = [str(checkout / ".venv/bin/python"), str(checkout / "benchmarks" / script), *words]
    done = subprocess.run(argv, capture_output=True, text=True)
    if not done.stdout:
        raise Missed(f"{script} of {checkout}: {done.stderr[-300:]}")
    return done.stdout


def rendezvous(checkout: Path, nodes: int) -> float:
    """Seconds until so many agents agree on a round."""
    printed = run(checkout, "rendezvous.py", "--nodes", str(nodes), "--repeat", "1", "--torch-python", "none")
    return float(next(line.split()[1] for line in printed.splitlines() if line.split()[:1] == [str(nodes)]))


def restarts(checkout: Path, python: str, system: str) -> list[float]:
    """Seconds from the kill of a worker to the next step, several times."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        words = ["--event", "worker", "--system", system, "--pairs", str(RESTARTS), "--torch-python", python]
        run(checkout, "restart.py", *words, "-o", str(report), "--plot", str(Path(directory) / "plot.svg"))
        rows = json.loads(report.read_text())["tables"]["worker: until the next step"]
    return next([float(one) for one in row["seconds"] if one] for row in rows if row["name"] == system)


def in_turn(pairs: int, checkouts: dict[str, Path], measure: Callable[[Path], float]) -> list[Samples]:
    """The samples of all checkouts."""
    return list(interleave(pairs, {name: partial(measure, path) for name, path in checkouts.items()}).values())


def main() -> int:
    """Measure and print."""
    parser = options(__doc__, pairs=20)
    parser.add_argument("other", type=Path, help="a checkout with its own .venv")
    parser.add_argument("--what", action="append", choices=("first-line", "rendezvous", "restart"), help="default: all")
    chosen = parser.parse_args()
    checkouts = {"this checkout": ROOT, "the other": chosen.other.absolute()}
    python, tables = chosen.torch_python, {}
    wanted = chosen.what or ("first-line", "rendezvous", "restart")
    if "first-line" in wanted:
        words = ["run", "--python", python, "-n", "2", str(PROGRAMS / "first.py")]
        tables["first line of 2 nodes"] = in_turn(
            chosen.pairs, checkouts, lambda path: first_line([str(path / ".venv/bin/petctl"), *words])
        )
    if "rendezvous" in wanted:
        for nodes in (64, 1024):
            tables[f"rendezvous of {nodes}"] = in_turn(chosen.pairs, checkouts, partial(rendezvous, nodes=nodes))
    if "restart" in wanted:
        for system in ("petctl, warm", "petctl, in place"):
            samples = [Samples(name) for name in checkouts]
            while len(samples[0].seconds) < chosen.pairs:
                for one, path in zip(samples, checkouts.values(), strict=True):
                    one.seconds += restarts(path, python, system)
            tables[f"a worker is killed, {system}: next step"] = samples
    claims = []
    for title, rows in tables.items():
        print_table(title, rows, rows[0].name)
        share = ratio(*rows)
        claims.append(Claim(f"{title}: {share:.2f} of the other's time (at most {SLOWER})", share <= SLOWER))
    return finish("against", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
