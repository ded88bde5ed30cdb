"""Whether a round still makes steps, and which ranks hold the others up: decided from what the nodes report.

The rules: once steps are reported in a round, ten times the usual time between two reports without any (and at least
`stall_after`) is a stall, and the rank that is furthest behind answers for it; where its node has no failure to tell,
because that rank has ended, the next one is named after as long again. A rank below 0.8 of the median pace for
some seconds is a straggler. Ranks that wait for each other in every step all have the pace of the slowest, so the
seconds of own work count instead where every rank reports them.

Pure, like `machine.py`, which owns it: time is handed in, and what follows from a stall is the machine's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from petctl.rendezvous.core.messages import Metrics, Progress, Stall

STALL_FACTOR = 10.0
SLOW, NO_LONGER_SLOW = 0.8, 0.9  # of the median pace; two numbers, so that a rank at the edge is not news all the time
SLOW_FOR = 5.0  # seconds before a slow rank is called a straggler
_LOOK_EVERY = 1.0  # seconds between two looks at all ranks: a round may have thousands, and every one reports ...
_RANKS_PER_SECOND = 10_000  # ... and in a very large one at most so many are looked at in a second

News = Tuple[str, str, Dict[str, Any]]  # kind, sentence and data of an event


@dataclass
class _Rank:
    """What is known of one rank."""

    node: str
    step: int
    pace: float
    gap: float
    busy: float
    slow_since: Optional[float] = None


class StepWatch:
    """The steps of the running round. `stall` stays until the next round begins."""

    def __init__(self, stall_after: float) -> None:
        self.stall_after = stall_after  # 0: a round may stand still for ever
        self.reports = False  # does this job report its steps?
        self._best = -1  # the highest of all rounds that was asked about
        self._newest = -1  # ... and of all
        self.begin()

    def begin(self) -> None:
        """A round begins, or is taken over: nothing is known of its steps."""
        self.stall: Optional[Stall] = None
        self.stragglers: List[int] = []
        self._ranks: Dict[int, _Rank] = {}
        self._heard: Dict[str, int] = {}
        self._told: Dict[str, Tuple[int, Metrics, float]] = {}  # node -> first rank, metrics, wall clock
        self._alive = 0.0  # when anybody was heard last ...
        self._named_at = 0.0  # ... or named for the stall
        self._named: Set[int] = set()  # ranks that were named already
        self._patience = self.stall_after
        self._looked: Optional[float] = None
        self._trains = False  # a worker of this round has said something
        self._news: List[News] = []

    def hear(self, node: str, first_rank: int, progress: Progress, now: float) -> None:
        """Takes in what a node says of its workers."""
        if progress.heard == self._heard.get(node):
            return
        if not self._trains:
            self._trains = True
            self._news.append(("training", "workers train", {}))
        step = max(progress.steps)
        self._newest = max(self._newest, step)
        if step >= 0 and not self.reports:
            self.reports = True
            self._news.append(("progress", f"first reported step: {step}", {"step": step}))
        self._heard[node], self._alive = progress.heard, now
        self._named.clear()
        self._told[node] = (first_rank, progress.metrics, progress.time)
        for local, step in enumerate(progress.steps):
            if step < 0:
                continue
            seen = self._ranks.get(first_rank + local)
            values = (step, progress.paces[local], progress.gaps[local], progress.busy[local])
            self._ranks[first_rank + local] = _Rank(node, *values, seen.slow_since if seen else None)

    def grew(self) -> bool:
        """Was a higher step reported than when this was asked last?"""
        before, self._best = self._best, self._newest
        return self._newest > before

    @property
    def moved(self) -> bool:
        """Was a step of this round reported?"""
        return bool(self._ranks)

    def late(self, seconds: float) -> None:
        """The coordinator itself was held up: that time counts for nobody."""
        self._alive += seconds
        self._named_at += seconds

    def look(self, now: float) -> List[News]:
        """What is new; afterwards `stall` and `stragglers` are up to date."""
        if self._look_due(now):
            self._looked = now
            self._patience = max(self.stall_after, STALL_FACTOR * median([r.gap for r in self._ranks.values()]))
            self._find_stragglers(now)
        due = self.deadline()
        if due is not None and now >= due:
            self._name_the_last(now)
        news, self._news = self._news, []
        return news

    def due(self, now: float) -> bool:
        """Would `look` have something to say, or to find out?"""
        return bool(self._news) or self._look_due(now)

    def _look_due(self, now: float) -> bool:
        every = max(_LOOK_EVERY, len(self._ranks) / _RANKS_PER_SECOND)
        return bool(self._ranks) and (self._looked is None or now >= self._looked + every)

    def deadline(self) -> Optional[float]:
        """When the round counts as stalled, should nothing be heard until then."""
        if not self._ranks or not self.stall_after:
            return None
        return max(self._alive, self._named_at) + self._patience

    def _name_the_last(self, now: float) -> None:
        if self._named.issuperset(self._ranks):
            self._named.clear()
        left = {number: rank.step for number, rank in self._ranks.items() if number not in self._named}
        least = min(left.values())
        behind = sorted(number for number, step in left.items() if step == least)
        ahead = max(rank.step for rank in self._ranks.values())
        where = f"{names(behind)} stopped after step {least}"
        if ahead > least:
            where += f", others after step {ahead}"
        sentence = f"no step for {now - self._alive:.0f} s: {where}"
        self.stall, self._named_at = Stall(behind[0], sentence), now
        self._named.add(behind[0])
        data = {"ranks": behind, "step": least}
        self._news.append(("stall", f"{sentence}; raise stall_after if it is not a hang", data))

    def _find_stragglers(self, now: float) -> None:
        paces = self._own_paces()
        usual = median(list(paces.values()))
        found = []
        for number, rank in sorted(self._ranks.items()):
            pace = paces.get(number, 0.0)
            limit = NO_LONGER_SLOW if number in self.stragglers else SLOW
            if not 0.0 < pace < limit * usual:
                rank.slow_since = None
                continue
            rank.slow_since = now if rank.slow_since is None else rank.slow_since
            if number in self.stragglers or now >= rank.slow_since + SLOW_FOR:
                found.append(number)
        if found != self.stragglers:
            self.stragglers = found
            if found:
                nodes = sorted({self._ranks[number].node for number in found})
                slowest = min(paces[number] for number in found) / usual
                verb = "is" if len(found) == 1 else "are"
                on = f"on node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
                sentence = f"{names(found)} {on} {verb} slow: {slowest:.0%} of the median pace"
            else:
                sentence = "no rank is slow any more"
            self._news.append(("stragglers", sentence, {"ranks": found}))

    def _own_paces(self) -> Dict[int, float]:
        """How fast each rank is by itself, where that can be known."""
        if all(rank.busy > 0 for rank in self._ranks.values()):
            return {number: 1.0 / rank.busy for number, rank in self._ranks.items()}
        return {number: rank.pace for number, rank in self._ranks.items() if rank.pace > 0}

    def slow_nodes(self) -> List[str]:
        """The nodes that stragglers are on, the slowest first."""
        paces = self._own_paces()
        behind = sorted(self.stragglers, key=lambda number: paces.get(number, 0.0))
        return list(dict.fromkeys(self._ranks[number].node for number in behind))

    def status(self) -> Optional[Dict[str, Any]]:
        """What users see, as plain JSON types; None as long as nothing was reported."""
        if not self._ranks:
            return None
        leader = min(self._ranks)
        first = self._ranks[leader]
        _, metrics, time = self._told[first.node]
        return {
            "step": first.step,
            "steps_per_second": _rounded(first.pace),
            "metrics": metrics,
            "time": time,
            "ranks": [
                {"rank": number, "node": rank.node, "step": rank.step, "steps_per_second": _rounded(rank.pace)}
                for number, rank in sorted(self._ranks.items())
            ],
            "stragglers": list(self.stragglers),
        }


def median(values: Sequence[float]) -> float:
    """The middle of those that are known (above 0), or 0."""
    known = sorted(value for value in values if value > 0)
    if not known:
        return 0.0
    middle = len(known) // 2
    return known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2


def names(ranks: Sequence[int]) -> str:
    """Ranks as people say them."""
    if len(ranks) > 8:
        return f"{len(ranks)} ranks (the first is {ranks[0]})"
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))


def _rounded(pace: float) -> float:
    return float(f"{pace:.4g}")
