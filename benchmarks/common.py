"""What every benchmark shares: options, interleaved runs, the table and the JSON record.

A benchmark measures petctl and its peers in the same run, in turn, so that a machine that is busy or slow is so for
all of them. The median is judged, the 90th percentile shown; a run that missed its deadline counts as endless, with
its reason. This file knows nothing of what is measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = Path(__file__).resolve().parent / "programs"
# Whatever is measured may keep its compiled modules, as on any machine that nobody has told otherwise.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


class Missed(Exception):
    """A run did not reach what was measured; the message says why."""


@dataclass
class Samples:
    """The runs of one subject: seconds, endless where it missed."""

    name: str
    seconds: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else math.nan

    @property
    def p90(self) -> float:
        ordered = sorted(self.seconds)
        return ordered[math.ceil(0.9 * len(ordered)) - 1] if ordered else math.nan


@dataclass
class Claim:
    """One figure that must hold, and whether it did."""

    text: str
    holds: bool


def options(doc: str | None, *, pairs: int = 10) -> argparse.ArgumentParser:
    """The options that all benchmarks take; the module's docstring is the help."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that an interrupted run cleans up as well
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=pairs, help=f"interleaved runs of each subject (default: {pairs})")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write all samples as JSON")
    parser.add_argument(
        "--petctl",
        type=_program,
        default=str(Path(sys.executable).parent / "petctl"),
        help="the command (default: beside this Python)",
    )
    parser.add_argument(
        "--torch-python",
        type=_program,
        default=os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch/bin/python")),
        help="an interpreter with PyTorch 2.13 (default: $PETCTL_TORCH_PYTHON, else .venv-torch/bin/python)",
    )
    return parser


def _program(word: str) -> str:
    """One that can be started from any directory."""
    return str(Path(word).absolute()) if os.sep in word else word


def interleave(pairs: int, subjects: Mapping[str, Callable[[], float]]) -> dict[str, Samples]:
    """Measure all subjects in turn, `pairs` times; every second time in reverse order."""
    samples = {name: Samples(name) for name in subjects}
    for number in range(pairs):
        order = list(subjects)[:: 1 if number % 2 == 0 else -1]
        for name in order:
            try:
                seconds = subjects[name]()
            except Missed as missed:
                seconds = math.inf
                samples[name].reasons.append(str(missed))
            samples[name].seconds.append(seconds)
            progress(f"run {number + 1} of {pairs}: {name}: {shown(seconds)}")
    return samples


def progress(text: str) -> None:
    """A line for whoever waits; on stderr, so that the table can be redirected."""
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def shown(seconds: float) -> str:
    """Seconds for people."""
    if math.isinf(seconds):
        return "missed"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def ratio(ours: Samples, peer: Samples) -> float:
    """Our median over the peer's."""
    if math.isinf(peer.median):
        return 0.0 if math.isfinite(ours.median) else math.nan
    return ours.median / peer.median


def print_table(title: str, rows: Sequence[Samples], ours: str) -> None:
    """Each subject with median, 90th percentile and our ratio to it."""
    samples = {row.name: row for row in rows}
    print(f"\n{title}")
    print(f"  {'':34} {'median':>9} {'p90':>9} {'runs':>5} {'missed':>7}   petctl / it")
    for row in rows:
        missed = sum(map(math.isinf, row.seconds))
        against = "" if row.name == ours else f"{ratio(samples[ours], row):11.2f}"
        print(f"  {row.name:34} {shown(row.median):>9} {shown(row.p90):>9} {len(row.seconds):5d} {missed:7d} {against}")
        for reason in sorted(set(row.reasons)):
            print(f"      missed: {reason} ({row.reasons.count(reason)} times)")
    sys.stdout.flush()


def finish(
    name: str,
    output: Path | None,
    tables: Mapping[str, Sequence[Samples]],
    claims: Sequence[Claim],
    figures: Mapping[str, object] | None = None,
) -> int:
    """Print what holds, write the JSON record, and give the exit code: 1 when a claim does not hold."""
    for claim in claims:
        print(f"  {'holds' if claim.holds else 'DOES NOT HOLD'}: {claim.text}")
    if output is not None:
        record = {
            "benchmark": name,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
            "tables": {
                title: [
                    {
                        "name": row.name,
                        "seconds": [second if math.isfinite(second) else None for second in row.seconds],
                        "reasons": row.reasons,
                        "median": row.median if math.isfinite(row.median) else None,
                        "p90": row.p90 if math.isfinite(row.p90) else None,
                    }
                    for row in rows
                ]
                for title, rows in tables.items()
            },
            **(figures or {}),
            "claims": [{"text": claim.text, "holds": claim.holds} for claim in claims],
        }
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if all(claim.holds for claim in claims) else 1
