"""Breaks one rule of the pure machines at a time, in a copy, and runs the tests: every mutant must be killed.

    python -m tests.simulation.mutate              all of them, a line each; the exit code is the number of survivors
    python -m tests.simulation.mutate stall decide only mutants of these modules
    python -m tests.simulation.mutate --list       their names

`mutants.py` has those that random histories must find; these here are killed by a unit test or a story.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
RENDEZVOUS = Path("src/petctl/rendezvous/core")
TESTS = (
    *(
        f"tests/unit/rendezvous/test_{name}.py"
        for name in ("rules", "blame", "budget", "decide", "machine", "member", "stall")
    ),
    "tests/unit/controller/test_sizing.py",
    "tests/simulation/test_scripts.py",
)


class PointMutant(NamedTuple):
    """One replacement in one module; `old` must be there exactly once."""

    name: str
    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        assert source.count(self.old) == 1, f"{self.name}: {self.old!r} is not in {self.module}.py exactly once"
        return source.replace(self.old, self.new)


POINT_MUTANTS = [
    PointMutant(
        "a refused coordinator counts as heard",
        "member",
        '            return [Reconnect(f"refused',
        '            self.contact = self.heard = now\n            return [Reconnect(f"refused',
    ),
    PointMutant(
        "a pending verdict does not stop planned rounds",
        "machine",
        "self.phase == RUNNING and self.budget.verdict is None and",
        "self.phase == RUNNING and",
    ),
    PointMutant(
        "a pending failure does not stop planned rounds",
        "machine",
        "and self.held_since is None and not self._ended()",
        "and not self._ended()",
    ),
    PointMutant(
        "an older incarnation may speak", "facts", "if report.incarnation < node.report.incarnation:", "if False:"
    ),
    PointMutant("old reports are taken", "facts", "elif report.number <= node.report.number:", "elif False:"),
    PointMutant(
        "done members that go are missed",
        "machine",
        "for name in self.gone if name not in self.done]",
        "for name in self.gone]",
    ),
    PointMutant(
        "a round behind is acknowledged",
        "member",
        "if order.round <= self.at[1] and self.at[0] >= wanted[0]:",
        "if False:",
    ),
    PointMutant(
        "growth does not wait",
        "machine",
        "len(spare) >= room or now >= self.growth_since + self.config.resize_interval",
        "True",
    ),
    PointMutant("growth does not wait for a step", "machine", "(gathered and self._proceeds(now))", "gathered"),
    PointMutant("growth does not see the first step", "machine", "self.steps.reports and self.steps.moved", "False"),
    PointMutant(
        "growth waits long where no steps are reported", "machine", "min(SETTLES_WITHIN, interval)", "interval"
    ),
    PointMutant("growth is not looked at when it is due", "machine", ", self._settled_at()]", "]"),
    PointMutant(
        "expected nodes are waited for for ever",
        "machine",
        "if self.expected and now >= self._overdue_at():",
        "if False:",
    ),
    PointMutant(
        "enough nodes wait as long as too few",
        "facts",
        "if self.enough_since is None or not self.once_enough:",
        "if True:",
    ),
    PointMutant(
        "a node that comes does not help those on their way",
        "facts",
        "max(self.enough_since, self.came) + self.once_enough",
        "self.enough_since + self.once_enough",
    ),
    PointMutant(
        "prepared in the broken round is not seen",
        "machine",
        " or (r.state == m.PREPARED and r.round >= top[1])",
        "",
    ),
    PointMutant(
        "last_call is ignored",
        "machine",
        "called = self.enough_since is None or now < self.enough_since + config.last_call",
        "called = False",
    ),
    PointMutant(
        "the roster is believed without looking",
        "machine",
        "(self.roster is not None and self.roster <= set(self.nodes))",
        "self.roster is not None",
    ),
    PointMutant(
        "any failure is charged at once",
        "machine",
        "if not told and now < self.held_since",
        "if False and self.held_since",
    ),
    PointMutant("a leave explains no failure", "machine", "if leaving and leaving[0] in self.places:", "if False:"),
    PointMutant("a leave gives a failure back", "facts", "explains = not node.goes and", "explains ="),
    PointMutant(
        "any lateness forgives closed connections", "facts", "if event.seconds >= self.silence - 2 * beat:", "if True:"
    ),
    PointMutant(
        "no lateness forgives closed connections", "facts", "if event.seconds >= self.silence - 2 * beat:", "if False:"
    ),
    PointMutant("lateness loses refunds", "facts", "        self.budget.late(event.seconds, now)\n", ""),
    PointMutant("progress of a prepared node counts", "facts", "and report.state != m.PREPARED and", "and"),
    PointMutant("a release before the join is forgotten", "facts", 'in ("", report.incarnation):', "in ():"),
    PointMutant("stuck workers hold their node for ever", "member", "now >= self.stop_by:", "False:"),
    PointMutant(
        "too few nodes counts from the opening",
        "machine",
        "            self.short_since = None\n",
        "            pass\n",
    ),
    PointMutant(
        "falls are never charged",
        "budget",
        "            if itself or self._ranks[rank] >= FALLS:",
        "            if False:",
    ),
    PointMutant("falls of a rank are not counted", "budget", "itself or self._ranks[rank] >= FALLS:", "itself:"),
    PointMutant("falls of a node are not counted", "budget", "itself = self._nodes[name] >= FALLS", "itself = False"),
    PointMutant("falls with progress are charged", "budget", "        if progress:\n", "        if False:\n"),
    PointMutant(
        "falls of all nodes are counted together",
        "budget",
        "self._ranks[rank] = self._ranks.get(rank, 0) + 1",
        "self._ranks[rank] = sum(self._ranks.values()) + 1",
    ),
    PointMutant(
        "falls that were charged are charged again",
        "budget",
        "                self._nodes, self._ranks = {}, {}\n",
        "",
    ),
    PointMutant("newcomers come before survivors", "decide", "return survivors + sorted(", "return sorted("),
    PointMutant(
        "node 10 comes before node 9", "decide", "(0, int(part)) if part.isdigit()", "(0, part) if part.isdigit()"
    ),
    PointMutant("survivors do not keep their ranks", "decide", "rank = previous.get(name, -1)", "rank = -1"),
    PointMutant("rank 0 may be a newcomer's", "decide", "    if not slots[0]:\n", "    if False:\n"),
    PointMutant("stopping nodes are not waited for", "decide", "    if busy:\n", "    if False:\n"),
    PointMutant("living nodes are not waited for", "decide", "    if slow:\n", "    if False:\n"),
    PointMutant("expected nodes are not waited for", "decide", "    if expected:\n", "    if False:\n"),
    PointMutant("a round may have too few nodes", "decide", "if len(ready) < least:", "if False:"),
    PointMutant("all places begin at rank 0", "decide", "        first += procs[rank]\n", ""),
    PointMutant(
        "roles with a count are on each node",
        "decide",
        "range(rank, count or nodes, nodes)",
        "range(rank, nodes, nodes)",
    ),
    PointMutant(
        "rank 0's node is given up first", "decide", "            return (4, 0)\n", "            return (0, 0)\n"
    ),
    PointMutant(
        "slow nodes are kept longest", "decide", "return (2, slow.index(name))", "return (3, slow.index(name))"
    ),
    PointMutant(
        "lost connections are eligible", "roll", "return self.connected and not self.goes", "return not self.goes"
    ),
    PointMutant(
        "who leaves is eligible",
        "roll",
        "self.connected and not self.goes and not self.unfit",
        "self.connected and not self.unfit",
    ),
    PointMutant("unfit nodes are eligible", "roll", " and not self.unfit", ""),
    PointMutant("the oldest round is taken for the last", "roll", "top = max(key", "top = min(key"),
    PointMutant(
        "who leaves is only who was released",
        "roll",
        "return self.release or self.report.leaving",
        "return self.release",
    ),
    PointMutant(
        "nodes without a place are shown at work",
        "roll",
        'report.state if place or not running else "standby"',
        "report.state",
    ),
    PointMutant(
        "a report that says nothing new is a sign of life",
        "stall",
        "if progress.heard == self._heard.get(node):",
        "if False:",
    ),
    PointMutant(
        "slow steps are taken for a stall",
        "stall",
        "max(self.stall_after, STALL_FACTOR * median(",
        "min(self.stall_after, STALL_FACTOR * median(",
    ),
    PointMutant(
        "the first rank is blamed, not the last", "stall", "least = min(left.values())", "least = max(left.values())"
    ),
    PointMutant("the same rank is blamed for ever", "stall", "        self._named.add(behind[0])\n", ""),
    PointMutant("the coordinator's lateness is a stall", "stall", "        self._alive += seconds\n", ""),
    PointMutant(
        "stall_after 0 is a stall at once",
        "stall",
        "if not self._ranks or not self.stall_after:",
        "if not self._ranks:",
    ),
    PointMutant(
        "a stall outlives its round",
        "stall",
        "        self.stall: Optional[Stall] = None\n",
        "        self.stall: Optional[Stall] = getattr(self, 'stall', None)\n",
    ),
    PointMutant("a rank is slow at once", "stall", "now >= rank.slow_since + SLOW_FOR", "True"),
    PointMutant(
        "who was slow is slow for ever",
        "stall",
        "                rank.slow_since = None\n                continue\n",
        "                if number not in self.stragglers:\n                    continue\n",
    ),
    PointMutant(
        "own work is not looked at", "stall", "if all(rank.busy > 0 for rank in self._ranks.values()):", "if False:"
    ),
    PointMutant(
        "own errors wait for peers",
        "blame",
        "return UNCLEAR if failure.cause in _UNCLEAR_CAUSES or failure.code in _UNCLEAR_CODES else OWN",
        "return UNCLEAR",
    ),
    PointMutant(
        "the first failure is the root cause", "blame", "root = min(failures, key=origin)", "root = failures[0]"
    ),
    PointMutant("a lost connection of Open MPI is a root cause", "blame", "(14, 128 + 1,", "(128 + 1,"),
]


def survives(mutant: PointMutant, python: str = sys.executable) -> bool:
    """Whether all tests pass although the rule is broken."""
    with tempfile.TemporaryDirectory(prefix="petctl-mutant-") as directory:
        copy = Path(directory) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = Path(directory) / RENDEZVOUS / f"{mutant.module}.py"
        path.write_text(mutant.apply(path.read_text()))
        command = [python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
        env = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        env.pop("PYTEST_ADDOPTS", None)
        return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, check=False).returncode == 0


def main(words: list[str]) -> int:
    """Tries the mutants that were asked for."""
    chosen = [mutant for mutant in POINT_MUTANTS if mutant.module in words or not set(words) - {"--list"}]
    alive = 0
    for mutant in chosen:
        if "--list" in words:
            print(f"{mutant.module}: {mutant.name}")
            continue
        alive += survived if (survived := survives(mutant)) else 0
        print(f"{'SURVIVED' if survived else 'killed'}  {mutant.module}: {mutant.name}", flush=True)
    return alive


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
