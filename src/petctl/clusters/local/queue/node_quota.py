"""How many nodes a job should have now: what the user wants, and what the slots of this machine allow.

The user's newest wish is a file, so that it holds also when the supervisor is killed while it obeys. Nodes are named
"0", "1", ... and the highest names go first, so the names follow from the number alone, and a replaced supervisor
finds the same ones.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, List, Optional

from petctl.clusters.local.job_directory import JobDirectory, write_text
from petctl.clusters.local.queue.queue import Turn, queue_of, slots_of
from petctl.clusters.local.queue.queue_claims import LOCAL, claim_of, running_nodes, wanted_nodes
from petctl.errors import NoRoom, PetctlError
from petctl.job.record import JobRecord

if TYPE_CHECKING:
    from petctl.clusters.local.pools.model import GiveBack

log = logging.getLogger(__name__)


class NodeQuota:
    """One job's size: `wanted` by the user, `granted` by the machine."""

    def __init__(self, directory: JobDirectory, record: JobRecord) -> None:
        self._directory, self._record = directory, record
        self.line = queue_of(directory.home, record.cluster)
        self._slots = slots_of(directory.home, record.cluster)
        self.granted = 0
        self.wanted = self._read()

    def turn(self) -> Turn:
        """Where the job stands in line, with slots if it is its turn; whoever else is due is started, too."""
        turn = self.line.look().turn(self._directory.id)
        if turn is None:  # the claim was taken for abandoned: the place is lost, not the job
            self._slots.enter(claim_of(self._directory, self._record))
            turn = self.line.look().turn(self._directory.id) or Turn(0, first=True)
        self.wanted, self.granted = self._read(), turn.granted
        if self.granted > self.wanted:  # the user wants fewer since it got them
            self.give_back_to(self.wanted)
        return turn

    def arrived(self) -> None:
        """The supervisor is there, and waits."""
        self._slots.arrived(self._directory.id)

    def resume(self) -> None:
        """Keeps the slots of a job that has nodes already, whatever became of the slots' file."""
        self.granted = max(self.granted, running_nodes(self._directory), 1)
        try:
            self.granted = self._slots.hold(claim_of(self._directory, self._record, self.granted))
        except NoRoom as error:  # its nodes run; the next claim finds what it holds
            log.warning("%s", error)

    def claim(self) -> None:
        """Takes more of what the job wants, if there is more."""
        self.wanted = self._read()
        granted = self._slots.grow(self._directory.id, self.wanted)
        if granted < self.granted:
            self.resume()  # somebody removed the slots' file: nodes that run keep what they have
        else:
            self.granted = granted

    def want(self, count: int) -> None:
        """Another number of nodes: written down first, then claimed or given back."""
        write_text(self._directory.wanted, f"{count}\n", durable=True)
        self.wanted = count
        try:
            if count < self.granted:
                self._slots.keep(self._directory.id, count, count)
                self.line.look()
            else:
                self.claim()
        except NoRoom as error:  # the wish holds: claimed again while it is short, given back with all others
            log.warning("%s", error)
        self.granted = min(self.granted, count)

    def wish(self) -> Optional[GiveBack]:
        """What a cluster that gets smaller asks of this job."""
        if self.line.name == LOCAL:
            return None
        from petctl.clusters.local.pools.nodes import wish_of  # only clusters that were made get smaller

        return wish_of(self._directory.home, self.line.name, self._directory.id)

    def give_back_to(self, count: int) -> None:
        """Gives back all but `count` slots, and would still like to have them."""
        self._slots.keep(self._directory.id, count, self.wanted)
        self.granted = min(self.granted, count)
        self.line.look()

    def requeue(self) -> None:
        """Gives everything back, and waits again at the old place."""
        self._slots.requeue(self._directory.id)
        self.granted = 0

    def place(self, name: str) -> int:
        """Which of the cluster's nodes a node of the job is."""
        if self.line.name == LOCAL:
            return int(name)
        from petctl.clusters.local.pools.nodes import place_of

        return place_of(self._directory.home, self.line.name, self._directory.id, int(name))

    def leave(self) -> List[str]:
        """Gives everything back; says which jobs' supervisors are to be started now."""
        try:
            return self.line.leave(self._directory.id)
        except PetctlError as error:  # whoever needs the slots next finds that nobody uses them
            log.warning("%s", error)
            return []

    @property
    def short(self) -> bool:
        return self.granted < self.wanted

    def names(self) -> List[str]:
        """The nodes that there should be."""
        return [str(index) for index in range(min(self.wanted, self.granted))]

    def surplus(self) -> tuple[str, ...]:
        """Nodes that there may be and should not."""
        names = set(self.names())
        return tuple(name for name in self._directory.node_names() if name not in names)

    def _read(self) -> int:
        return wanted_nodes(self._directory, self._record)
