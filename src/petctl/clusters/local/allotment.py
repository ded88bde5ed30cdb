"""How many nodes a job should have now: what the user wants, and what the slots of this machine allow.

The user's newest wish is a file, so that it holds also when the supervisor is killed while it obeys. Nodes are named
"0", "1", ... and the highest names go first, so the names follow from the number alone, and a replaced supervisor
finds the same ones.
"""

from __future__ import annotations

import logging
from typing import Any, Dict, List

from petctl.clusters.local.jobdir import JobDirectory, in_use, write_text
from petctl.clusters.local.slots import Slots, Standing
from petctl.errors import NoRoom, PetctlError

log = logging.getLogger("petctl.supervisor")


class Allotment:
    """One job's size: `wanted` by the user, `granted` by the machine."""

    def __init__(self, directory: JobDirectory, plan: Dict[str, Any]) -> None:
        self._directory, self._plan = directory, plan
        jobs = directory.path.parent
        self._slots = Slots(directory.home, plan["slots"], lambda job, age: in_use(jobs, job, age))
        self.granted = 0
        self.wanted = self._read()

    def enter(self) -> None:
        """Takes the job's place in the queue, if its submitter has not done so."""
        self._slots.enter(self._directory.id, self._plan["priority"], self._plan["config"]["min_nodes"])

    def resume(self) -> None:
        """Keeps the slots of a job that has nodes already, whatever became of the slots' file."""
        self.granted = max(self.granted, self._running(), 1)
        try:
            self.granted = self._slots.hold(self._directory.id, self._plan["priority"], self.granted)
        except NoRoom as error:  # its nodes run; the next claim finds what it holds
            log.warning("%s", error)

    def claim(self) -> Standing:
        """Takes what the job wants, or may have of it now."""
        self.wanted = self._read()
        standing = self._slots.claim(self._directory.id, self.wanted)
        if standing.granted < self.granted:
            self.resume()  # somebody removed the slots' file: nodes that run keep what they have
        else:
            self.granted = standing.granted
        return standing

    def want(self, count: int) -> None:
        """Another number of nodes: written down first, then claimed or given back."""
        write_text(self._directory.wanted, f"{count}\n", durable=True)
        self.wanted = count
        try:
            if count < self.granted:
                self._slots.keep(self._directory.id, count)
            else:
                self.claim()
        except NoRoom as error:  # the wish holds: claimed again while it is short, given back with all others
            log.warning("%s", error)
        self.granted = min(self.granted, count)

    def release(self) -> None:
        """Gives everything back."""
        try:
            self._slots.release(self._directory.id)
        except PetctlError as error:  # whoever needs the slots next finds that nobody uses them
            log.warning("%s", error)

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

    def _running(self) -> int:
        return sum(self._directory.node_alive(name) for name in self._directory.node_names())

    def _read(self) -> int:
        try:
            return int(self._directory.wanted.read_text())
        except (FileNotFoundError, ValueError):
            return int(self._plan["config"]["wanted"])
