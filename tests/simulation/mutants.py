"""Deliberate faults: one check dropped from the machines each. Every one must be caught by the histories.

A mutant is a replacement in the source of `machine.py` or `member.py`, compiled into a module of its own.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from petctl.rendezvous import machine as real_machine
from petctl.rendezvous import member as real_member


@dataclass(frozen=True)
class Mutant:
    name: str
    module: ModuleType
    old: str
    new: str

    def build(self) -> tuple[ModuleType, ModuleType]:
        """(machine, member) with this fault."""
        path = Path(str(self.module.__file__))
        source = path.read_text()
        assert source.count(self.old) == 1, f"mutant {self.name}: its text is not there exactly once"
        module = ModuleType(self.module.__name__)
        module.__file__ = str(path)
        saved = sys.modules[self.module.__name__]
        sys.modules[self.module.__name__] = module  # dataclasses look their module up
        try:
            exec(compile(source.replace(self.old, self.new), f"{path}<{self.name}>", "exec"), module.__dict__)
        finally:
            sys.modules[self.module.__name__] = saved
        return (module, real_member) if self.module is real_machine else (real_machine, module)


MUTANTS = [
    Mutant(
        "a node obeys an older coordinator",
        real_member,
        'if new.epoch < known.epoch or (new.epoch == known.epoch and known.leader not in ("", new.leader)):',
        "if False:",
    ),
    Mutant(
        "a node acknowledges before its workers have stopped",
        real_member,
        "        if not self.alive:\n            return self._prepared(now)\n",
        "        if True:\n            return self._prepared(now)\n",
    ),
    Mutant(
        "a node starts a round that it has not acknowledged",
        real_member,
        "if order.kind == m.RUN and self.state == m.PREPARED and self.at == (order.header.epoch, order.round):",
        "if order.kind == m.RUN and self.state != m.RUNNING:",
    ),
    Mutant("a node never sends heartbeats", real_member, "if self.connected and now >= self.beat_at:", "if False:"),
    Mutant(
        "a silent coordinator is never left",
        real_member,
        "if self.connected and now >= self.contact + self.silence:",
        "if False:",
    ),
    Mutant(
        "a node exits without stopping its workers",
        real_member,
        "        self.leaving = why\n        if not self.alive:",
        "        self.leaving = why\n        if True:",
    ),
    Mutant(
        "a node that is not part of the round keeps its workers",
        real_member,
        "if order.kind == m.STANDBY and self.state == m.RUNNING:",
        "if False:",
    ),
    Mutant(
        "a round starts while a node still stops older workers",
        real_machine,
        "busy = [n.report for n in self.nodes.values() if self._busy(n)]",
        "busy = []",
    ),
    Mutant("a round starts below min", real_machine, "config.min_nodes, target, self.expected", "1, 1, set()"),
    Mutant("failures are never charged", real_machine, "            self.spent += 1\n", ""),
    Mutant("the budget is not looked at", real_machine, "if self.spent < self.config.restarts:", "if True:"),
    Mutant(
        "silent nodes are never given up",
        real_machine,
        "for name in [name for name, node in self.nodes.items() if node.deadline <= now]:",
        "for name in []:",
    ),
    Mutant(
        "heartbeats are not answered",
        real_machine,
        "(node.answer or node.told != self.seq)",
        "node.told != self.seq",
    ),
    Mutant(
        "a replacement takes a broken round for a running one",
        real_machine,
        "if len(members) == size and not broken:",
        "if members:",
    ),
    Mutant("a replacement forgets the rounds before it", real_machine, "self.foreign_round >= self.round", "False"),
    Mutant(
        "the recorded end is forgotten",
        real_machine,
        "if outcome is not None:\n            self.phase = CLOSED\n        elif",
        "if",
    ),
    Mutant(
        "an epoch is owned without a majority",
        real_machine,
        "self.owned = self.epoch > 0 and newest and len(granted) * 2 > size",
        "self.owned = True",
    ),
    Mutant("late reports count as news", real_machine, "elif report.number <= node.report.number:", "elif False:"),
    Mutant(
        "a restarted node is taken for the old one",
        real_machine,
        "if node is not None and node.report.incarnation != report.incarnation:",
        "if False:",
    ),
    Mutant("newcomers are never taken in", real_machine, "if self.asked or len(spare) >= room or", "if False and"),
    Mutant("two members may share a port holder", real_machine, "port = ready[members[0]].port", "port = 1 + self.seq"),
]
