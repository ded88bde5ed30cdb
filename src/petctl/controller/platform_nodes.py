"""Nodes that the platform makes: how many a job should have, and which, as its user or its cluster says.

    scale(wanted)            the user's word. Where the cluster numbers its nodes from 0, the highest are given up
    resize(wanted, nodes)    an operator's, with the names of all nodes that it has or is about to make; the answer says
                             which of them the job can spare best. Until it comes, nobody is given up

Nodes that joined by hand have names that no cluster gave; they are not touched. The next process of this container
goes on from what is remembered (`state_dir.py`). It starts and stops no node.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from petctl.controller.nodes import Nodes
from petctl.controller.state_dir import Memory
from petctl.errors import PetctlError
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.events import Config, Expect, Roster, Scale, Unexpect
from petctl.rendezvous.net.calls import NAMES, WHOLE, Call
from petctl.text import scaling

START_PATIENCE = 30.0  # seconds that a round waits for nodes that should come ...
ENOUGH_PATIENCE = 10.0  # ... or, once enough are ready without them, where no operator says which will never come
LEARN_PATIENCE = 20.0  # ... and an operator for a new coordinator to find out which nodes are left


class PlatformNodes(Nodes):
    """The nodes of one job in pods. Made inside the running loop."""

    reconnect = True

    def __init__(
        self,
        job_id: str,
        config: Config,
        numbered: bool,
        memory: Memory,
        wanted: Optional[int] = None,
        empty: bool = False,
        gone: bool = False,
    ) -> None:
        """`wanted`: the last size on the cluster's record. `empty`: the cluster began with no nodes, and makes the
        first ones; `gone`: none of the nodes before runs."""
        super().__init__(job_id, config)
        self._numbered, self._memory = numbered, memory
        self._first_wanted = memory.wanted or wanted or config.wanted
        self._empty, self._gone = empty, gone
        self._wish = memory.wanted  # of the user, as far as this container heard it
        self._nodes, self._released = memory.nodes  # of an operator's last word: all, and those that it gives up
        self._announced: Set[str] = set()  # nodes that were waited for once, or came; a lost one may come again
        self._learnt = asyncio.Event()  # the machine knows which nodes are left

    def counts(self) -> Tuple[int, int]:
        return self.machine.wanted, self.machine.wanted

    def first_config(self) -> Config:
        wanted = max(self.config.min_nodes, min(self._first_wanted, self.config.max_nodes))
        return replace(self.config, wanted=wanted)

    def calls(self) -> Dict[str, Call]:
        return {"resize": Call(self.resize, {"wanted": WHOLE, "nodes": NAMES})}

    def adopt(self) -> None:
        if self._gone:
            self.step(Roster(()))

    def begin(self, fresh: bool) -> None:
        if fresh:
            self._learnt.set()
        if self._numbered or (self._empty and not self._nodes):
            self._expect(self._first())
        else:
            self._expect([name for name in self._nodes if name not in self._released])

    def learn(self) -> None:  # a wish that the nodes had not heard of is newer than what they say
        if self._learnt.is_set():
            return
        self._learnt.set()
        machine = self.machine
        wish = machine.wanted if self._wish is None else self._wish
        if wish != machine.wanted:
            self.step(Scale(wish, self._surplus(wish)))
        elif not self._numbered and self._staying(self._released):
            self.step(Scale(wish, tuple(self._released)))
        if self._numbered and machine.wanted > self.config.wanted:
            self._expect(self._first())

    def lost(self, name: str, incarnation: str) -> None:  # named again, it is another one that is on its way
        self._announced.discard(name)

    def scale(self, wanted: int) -> str:
        self.check(wanted)
        before = self.machine.wanted
        self._memory.wanted = self._wish = wanted
        self.step(Scale(wanted, self._surplus(wanted)))
        if self._numbered:
            self._expect(self._first())
        return scaling(before, wanted)

    async def resize(self, wanted: int, nodes: Sequence[str]) -> Dict[str, Any]:
        """The cluster has these nodes and wants so many: which to give up. The same answer until they have gone."""
        self.check(wanted)
        await self._until_learnt()
        self.check(wanted)
        machine, before = self.machine, self.machine.wanted
        nodes = sorted(set(nodes), key=natural)
        released = self._given_up(nodes, len(nodes) - wanted)
        if (self._nodes, self._released) != (nodes, released):
            self._memory.nodes = (nodes, released)
            self._nodes, self._released = nodes, released
        if self._wish != wanted:
            self._memory.wanted = self._wish = wanted
        if not machine.expected.issubset(nodes):
            self.step(Unexpect(tuple(machine.expected.difference(nodes))))
        if wanted != before or self._staying(released) or machine.expected.intersection(released):
            self.step(Scale(wanted, tuple(released)))
        self._announced.intersection_update(nodes)
        self._announced.difference_update(released)
        others = [name for name in nodes if name not in released]
        self._expect([name for name in others if wanted != before or name not in self._announced])
        names = sorted(released, key=natural)
        spared = f"; it can release {', '.join(names)}" if names else ""
        return {"sentence": scaling(before, wanted) + spared, "release": names}

    def _given_up(self, nodes: List[str], surplus: int) -> List[str]:
        """As many as there are too many, the cheapest first; those of the last answer go before all others."""
        before = [name for name in self._released if name in nodes]
        if len(before) >= surplus:
            return before[len(before) - max(0, surplus) :]  # the last had work to do, and cannot be called back
        others = [name for name in nodes if name not in before]
        return before + self.machine.cheapest(others)[: surplus - len(before)]

    async def _until_learnt(self) -> None:
        """A coordinator that has just begun would take nodes that have not reported yet for idle ones."""
        try:
            await asyncio.wait_for(self._learnt.wait(), LEARN_PATIENCE)
        except asyncio.TimeoutError:
            raise PetctlError(
                f"the coordinator of {self.job_id} does not know yet which nodes are left; try again"
            ) from None

    def _first(self) -> List[str]:
        return [str(index) for index in range(self.machine.wanted)]

    def _expect(self, names: Sequence[str]) -> None:
        """These should be there, and are waited for, unless they take too long."""
        self._announced.update(names)
        if names:
            self.step(Expect(tuple(names), START_PATIENCE, ENOUGH_PATIENCE if self._numbered else 0.0))

    def _surplus(self, wanted: int) -> Tuple[str, ...]:
        """Nodes that there should not be: those that an operator gives up, or with too high a number."""
        if not self._numbered:
            return tuple(self._released)
        known = {*self.machine.nodes, *self.machine.expected}
        return tuple(name for name in known if name.isdigit() and int(name) >= wanted)

    def _staying(self, names: Sequence[str]) -> List[str]:
        """Those that are here and do not know yet that they should go."""
        here = self.machine.nodes
        return [name for name in names if name in here and not here[name].goes]
