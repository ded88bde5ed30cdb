"""Runs every benchmark in turn, each into build/bench/NAME.json, and ends with one line for each.

The exit code is 1 when a claim of any of them does not hold. The soak has a target of its own: `make soak`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECORD = HERE.parent / "build" / "bench"
WITH_PAIRS = (
    "cli_start",
    "first_line",
    "log_flood",
    "supervisor_kill",
    "scale",
    "recovery",
    "restart",
    "snapshot",
    "mpi_start",
    "act_submit",
)
OTHERS: dict[str, list[str]] = {
    "transfer": ["--pairs", "3", "-o", str(RECORD / "transfer.json")],
    "listing": ["--pairs", "3", "-o", str(RECORD / "listing.json")],
    "job_queue": ["-o", str(RECORD / "job_queue.json")],
    "sweep": ["-o", str(RECORD / "sweep.json")],
    "rendezvous": [],
    "fuzz_coordinator": [],
    "goodput": ["-o", str(RECORD / "goodput.json")],
}
ROOT_ONLY = ("silent_loss",)


def main() -> int:
    """Run them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--only", action="append", metavar="NAME", help="only this one (repeatable)")
    chosen = parser.parse_args()
    RECORD.mkdir(parents=True, exist_ok=True)
    results: dict[str, str] = {}
    for name in (*WITH_PAIRS, *ROOT_ONLY, *OTHERS):
        if chosen.only and name not in chosen.only:
            continue
        if name in ROOT_ONLY and os.geteuid() != 0:
            results[name] = "not run: needs root for network namespaces"
            continue
        print(f"\n=== {name}", flush=True)
        words = OTHERS.get(name, ["--pairs", str(chosen.pairs), "-o", str(RECORD / f"{name}.json")])
        begin = time.monotonic()
        code = subprocess.run([sys.executable, str(HERE / f"{name}.py"), *words]).returncode
        results[name] = f"{'holds' if code == 0 else f'FAILED ({code})'} after {time.monotonic() - begin:.0f} s"
    print("\n" + "\n".join(f"{name:18} {result}" for name, result in results.items()))
    return int(any("FAILED" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
