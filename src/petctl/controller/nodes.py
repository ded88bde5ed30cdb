"""The seam between a job's controller and its nodes: kept by petctl itself, or made by the platform.

On this machine `clusters/local/controller` starts and replaces them; in a cluster the platform does, and the controller
only says how many there should be (`platform_nodes.py`).
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Coroutine, Dict, Mapping, Sequence, Tuple

from petctl.errors import UsageError
from petctl.rendezvous.core.events import Config
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.net.calls import Call

LAST_WAIT = 10.0  # seconds beyond the grace for nodes to end


class Nodes:
    """The nodes of one job. The machine decides who takes part in a round; this tells it whom to expect."""

    machine: Coordinator
    reconnect = False  # after a controller's end on record they may need a moment to connect to the next
    kill_wait = LAST_WAIT  # seconds that a killed job waits for nodes that it cannot kill itself

    def __init__(self, job_id: str, config: Config) -> None:
        self.job_id, self.config = job_id, config

    def attach(self, machine: Coordinator, step: Callable[[object], None], stop: Callable[[int], object]) -> None:
        """Before all else: the job's machine, how to hand it a fact, and how to leave the job to another process."""
        self.machine, self.step, self.stop = machine, step, stop

    def counts(self) -> Tuple[int, int]:
        """How many there should be, and how many of these there may be now."""
        raise NotImplementedError

    def first_config(self) -> Config:
        """What the machine begins with."""
        raise NotImplementedError

    def adopt(self) -> None:
        """Takes over nodes of a controller before this one, and says which there are, where that is known."""

    def begin(self, fresh: bool) -> None:
        """The nodes that there should be are started, or waited for. `fresh`: no controller before had any."""
        raise NotImplementedError

    def joined(self, name: str, incarnation: str) -> None:
        """An agent has reported."""

    def lost(self, name: str, incarnation: str) -> None:
        """The machine has lost a node."""

    def learn(self) -> None:
        """A round was opened, or goes on: the machine knows how many nodes were wanted before."""

    def scale(self, wanted: int) -> str:
        """The user wants so many; what follows from it, in a sentence."""
        raise NotImplementedError

    def check(self, wanted: int) -> None:
        """UsageError where the job cannot have so many."""
        least, most = self.config.min_nodes, self.config.max_nodes
        if not least <= wanted <= most:
            raise UsageError(
                f"{self.job_id} may have {least} to {most} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        end = self.machine.outcome or self.machine.ending
        if end is not None:
            raise UsageError(f"{self.job_id} is ending: {end.sentence}")

    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """What the status shows of each node beside what its agent reports."""
        return {}

    def calls(self) -> Dict[str, Call]:
        """Control calls of this kind of nodes."""
        return {}

    def tasks(self) -> Sequence[Coroutine[Any, Any, None]]:
        """What runs beside the controller until the job's end."""
        return ()

    def close(self) -> None:
        """The job is over: no node is started any more."""

    def kill(self) -> None:
        """Ends every node at once, where that is possible."""

    async def until_ended(self, within: float, uploading: Callable[[], bool]) -> None:
        """Returns when none of the processes runs that were started here; kills those that take longer."""

    def ended(self) -> Collection[str]:
        """Nodes that need not say goodbye: it is known that they are gone."""
        return ()
