"""How many nodes a job in pods should have, and which: what its user or its cluster wants, in the machine's words.

    scale(wanted)            the user's word. Where the cluster numbers its nodes from 0, the highest are given up
    resize(wanted, nodes)    an operator's, with the names of all nodes that it has or is about to make; the answer says
                             which of them the job can spare best. Until it comes, nobody is given up

Nodes that joined by hand have names that no cluster gave; they are not touched. The next process of this container
goes on from what is remembered (`state_dir.py`). It starts and stops no node.
"""

from __future__ import annotations

import asyncio
from typing import Any, Callable, Dict, List, Sequence, Set, Tuple

from petctl.controller.state_dir import Memory
from petctl.errors import PetctlError, UsageError
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.events import Config, Expect, Scale, Unexpect
from petctl.rendezvous.core.machine import Coordinator
from petctl.text import scaling

START_PATIENCE = 30.0  # seconds that a round waits for nodes that should come ...
ENOUGH_PATIENCE = 10.0  # ... or, once enough are ready without them, where no operator says which will never come
LEARN_PATIENCE = 20.0  # ... and an operator for a new coordinator to find out which nodes are left


class Sizing:
    """The sizes of one job. `step` hands the machine a fact. Made inside the running loop."""

    def __init__(
        self,
        job_id: str,
        config: Config,
        numbered: bool,
        machine: Coordinator,
        memory: Memory,
        step: Callable[[object], None],
    ) -> None:
        self._id, self._config, self._numbered = job_id, config, numbered
        self._machine, self._memory, self._step = machine, memory, step
        self._wish = memory.wanted  # of the user, as far as this container heard it
        self._nodes, self._released = memory.nodes  # of an operator's last word: all, and those that it gives up
        self._announced: Set[str] = set()  # nodes that were waited for once, or came; a lost one may come again
        self._learnt = asyncio.Event()  # the machine knows which nodes are left

    def begin(self, fresh: bool, empty: bool) -> None:
        """Nodes that should be there are waited for. `empty`: a cluster that starts with none makes the first ones."""
        if fresh:
            self._learnt.set()
        if self._numbered or (empty and not self._nodes):
            self._expect(self._first())
        else:
            self._expect([name for name in self._nodes if name not in self._released])

    def learn(self) -> None:
        """The nodes have said how many are wanted; a wish that they had not heard of is newer."""
        if self._learnt.is_set():
            return
        self._learnt.set()
        machine = self._machine
        wish = machine.wanted if self._wish is None else self._wish
        if wish != machine.wanted:
            self._step(Scale(wish, self._surplus(wish)))
        elif not self._numbered and self._staying(self._released):
            self._step(Scale(wish, tuple(self._released)))
        if self._numbered and machine.wanted > self._config.wanted:
            self._expect(self._first())

    def lost(self, name: str) -> None:
        """A node is gone: should it be named again, then it is another one that is on its way."""
        self._announced.discard(name)

    def scale(self, wanted: int) -> str:
        """The user wants so many."""
        self._check(wanted)
        before = self._machine.wanted
        self._memory.wanted = self._wish = wanted
        self._step(Scale(wanted, self._surplus(wanted)))
        if self._numbered:
            self._expect(self._first())
        return scaling(before, wanted)

    async def resize(self, wanted: int, nodes: Sequence[str]) -> Dict[str, Any]:
        """The cluster has these nodes and wants so many: which to give up. The same answer until they have gone."""
        self._check(wanted)
        await self._until_learnt()
        self._check(wanted)
        machine, before = self._machine, self._machine.wanted
        nodes = sorted(set(nodes), key=natural)
        released = self._given_up(nodes, len(nodes) - wanted)
        if (self._nodes, self._released) != (nodes, released):
            self._memory.nodes = (nodes, released)
            self._nodes, self._released = nodes, released
        if self._wish != wanted:
            self._memory.wanted = self._wish = wanted
        if not machine.expected.issubset(nodes):
            self._step(Unexpect(tuple(machine.expected.difference(nodes))))
        if wanted != before or self._staying(released) or machine.expected.intersection(released):
            self._step(Scale(wanted, tuple(released)))
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
        return before + self._machine.cheapest(others)[: surplus - len(before)]

    def _check(self, wanted: int) -> None:
        least, most = self._config.min_nodes, self._config.max_nodes
        if not least <= wanted <= most:
            raise UsageError(
                f"{self._id} may have {least} to {most} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        end = self._machine.outcome or self._machine.ending
        if end is not None:
            raise UsageError(f"{self._id} is ending: {end.sentence}")

    async def _until_learnt(self) -> None:
        """A coordinator that has just begun would take nodes that have not reported yet for idle ones."""
        try:
            await asyncio.wait_for(self._learnt.wait(), LEARN_PATIENCE)
        except asyncio.TimeoutError:
            raise PetctlError(
                f"the coordinator of {self._id} does not know yet which nodes are left; try again"
            ) from None

    def _first(self) -> List[str]:
        return [str(index) for index in range(self._machine.wanted)]

    def _expect(self, names: Sequence[str]) -> None:
        """These should be there, and are waited for, unless they take too long."""
        self._announced.update(names)
        if names:
            self._step(Expect(tuple(names), START_PATIENCE, ENOUGH_PATIENCE if self._numbered else 0.0))

    def _surplus(self, wanted: int) -> Tuple[str, ...]:
        """Nodes that there should not be: those that an operator gives up, or with too high a number."""
        if not self._numbered:
            return tuple(self._released)
        known = {*self._machine.nodes, *self._machine.expected}
        return tuple(name for name in known if name.isdigit() and int(name) >= wanted)

    def _staying(self, names: Sequence[str]) -> List[str]:
        """Those that are here and do not know yet that they should go."""
        here = self._machine.nodes
        return [name for name in names if name in here and not here[name].goes]
