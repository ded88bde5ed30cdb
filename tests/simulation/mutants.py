"""Deliberate faults: one check dropped from the machines each. Every one must be caught by the histories.

A mutant is a replacement in the source of one of the pure modules, compiled into modules of their own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from petctl.rendezvous.core import blame as real_blame
from petctl.rendezvous.core import budget as real_budget
from petctl.rendezvous.core import decide as real_decide
from petctl.rendezvous.core import facts as real_facts
from petctl.rendezvous.core import machine as real_machine
from petctl.rendezvous.core import member as real_member
from petctl.rendezvous.core import roll as real_roll
from petctl.rendezvous.core import stall as real_stall

# In the order in which they import each other.
PURE = (real_blame, real_decide, real_roll, real_stall, real_budget, real_facts, real_machine, real_member)
Edit = tuple[ModuleType, str, str]


@dataclass(frozen=True, init=False)
class Mutant:
    """A name and the edits that make it; several where one rule is kept in two places."""

    name: str
    edits: tuple[Edit, ...]
    start: int  # the seed from which to look; most show at once, some need a rare coincidence

    def __init__(self, name: str, *edits: Edit, start: int = 0) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "edits", edits)
        object.__setattr__(self, "start", start)

    def build(self) -> tuple[ModuleType, ModuleType]:
        """(machine, member) with this fault."""
        real = {module.__name__: module for module in PURE}
        try:
            mutated = [self._mutate(module) for module in PURE]
        finally:
            sys.modules.update(real)
        return mutated[-2], mutated[-1]

    def _mutate(self, real: ModuleType) -> ModuleType:
        """Stays in `sys.modules`: dataclasses look their module up there, and the others import it from there."""
        path = Path(str(real.__file__))
        source = path.read_text()
        for module, old, new in self.edits:
            if module is real:
                assert source.count(old) == 1, f"{self.name}: {old!r} is not there exactly once"
                source = source.replace(old, new)
        mutated = sys.modules[real.__name__] = ModuleType(real.__name__)
        mutated.__file__ = str(path)
        exec(compile(source, f"{path}<{self.name}>", "exec"), mutated.__dict__)
        return mutated


MUTANTS = [
    Mutant(
        "nobody minds an older coordinator",
        (
            real_member,
            'if new.epoch < known.epoch or (new.epoch == known.epoch and known.leader not in ("", new.leader)):',
            "if False:",
        ),
        (real_member, "if new.age < known.age:", "if False:"),
        (real_facts, "if foreign and header.epoch >= self.epoch and", "if False and"),
    ),
    Mutant(
        "a node acknowledges before its workers have stopped",
        (
            real_member,
            "        if not self.alive:\n            return self._prepared(now)\n",
            "        if True:\n            return self._prepared(now)\n",
        ),
    ),
    Mutant(
        "a node starts a round that it has not acknowledged",
        (
            real_member,
            "if order.kind == m.RUN and self.state == m.PREPARED and self.at == (order.header.epoch, order.round):",
            "if order.kind == m.RUN and self.state != m.RUNNING:",
        ),
    ),
    Mutant("a node never sends heartbeats", (real_member, "if self.connected and now >= self.beat_at:", "if False:")),
    Mutant(
        "a silent coordinator is never left",
        (real_member, "if self.connected and now >= self.contact + self.patience:", "if False:"),
    ),
    Mutant(
        "a node exits without stopping its workers",
        (
            real_member,
            "        self.leaving = why\n        if not self.alive:",
            "        self.leaving = why\n        if True:",
        ),
    ),
    Mutant(
        "a round starts while a node still stops older workers",
        (real_machine, "busy = [n.report for n in self.nodes.values() if self._busy(n)]", "busy = []"),
    ),
    Mutant("an order on its way is forgotten", (real_facts, " or node.ran > report.place_round", ""), start=1180),
    Mutant("a round starts below min", (real_machine, "config.min_nodes, target, expected", "1, 1, set()")),
    Mutant("a round starts before its port is reserved", (real_machine, "        if not port:", "        if False:")),
    Mutant("a round starts before all have offered", (real_machine, "        if silent:", "        if False:")),
    Mutant("servers are waited for like workers", (real_machine, "len(self.done | self.serving)", "len(self.done)")),
    Mutant(
        "a server that is lost is not missed",
        (real_machine, "for name in self.gone if name not in self.done]", "for name in self.gone if name not in ends]"),
        (real_machine, "        lost = [", "        ends = self.done | self.serving\n        lost = ["),
    ),
    Mutant(
        "who has served once serves in every round",
        (
            real_member,
            "self.ended, self.serving, self.failure, self.progress = False, False, None, None",
            "self.ended, self.failure, self.progress = False, None, None",
        ),
    ),
    Mutant(
        "a node is never fenced",
        (
            real_member,
            "if self.alive and self.state in (m.RUNNING, m.FAILED) and now >= self.fence_at:",
            "if False:",
        ),
    ),
    Mutant(
        "any failure is charged at once",
        (real_machine, "if not told and now < self.held_since", "if False and self.held_since"),
    ),
    Mutant("a leave gives a failure back", (real_facts, "explains = not node.goes and", "explains =")),
    Mutant("failures are never charged", (real_budget, "        self.spent += 1\n", "")),
    Mutant(
        "falls are never charged",
        (real_budget, "            if itself or self._ranks[rank] >= FALLS:", "            if False:"),
    ),
    Mutant("exit codes are not looked at", (real_budget, "if not self.retries(failure):", "if False:")),
    Mutant("causes are not looked at", (real_budget, "failure.cause in self._retry_causes or ", ""), start=150),
    Mutant("any cause will do", (real_budget, "failure.cause in self._retry_causes", "failure.cause")),
    Mutant("what would come again is retried", (real_budget, "return failure.lasting or (", "return False and (")),
    Mutant("nobody is left out", (real_machine, "if not unfit or len(others", "if True or len(others")),
    Mutant("a verdict waits for nobody", (real_budget, " or any(answer < self.probe for answer in answers)", "")),
    Mutant("the budget is not looked at", (real_budget, "if self.spent >= self.restarts:", "if False:")),
    Mutant(
        "silent nodes are never given up",
        (real_machine, "for name in self._deadlines.passed(now):", "for name in []:"),
    ),
    Mutant(
        "heartbeats are not answered",
        (real_machine, "(node.answer or node.told != self.seq)", "node.told != self.seq"),
    ),
    Mutant(
        "a replacement takes a broken round for a running one",
        (real_machine, "if len(members) == size and not broken:", "if members:"),
    ),
    Mutant(
        "a replacement forgets the rounds before it",
        (real_machine, "self.foreign_round >= self.round", "False"),
    ),
    Mutant(
        "the recorded end is forgotten",
        (
            real_machine,
            "if event.outcome is not None:\n            self.enter(CLOSED)\n            self.outcome = event.outcome\n"
            "        elif",
            "if",
        ),
    ),
    Mutant(
        "a node never says that it is warm",
        (real_member, "self.warming = event.warming\n        return", "self.warming = True\n        return"),
    ),
    Mutant("nobody notices that a round stands still", (real_machine, "self._watch_steps(now)\n", "pass\n")),
    Mutant(
        "newcomers are never taken in",
        (real_machine, "if self.asked or (gathered and", "if False and (gathered and"),
    ),
]
