"""The failure budget of a job: what a worker's failure costs, when it is given back, and when it is the job's end.

The rule: at most one failure is charged per round (a charge ends its round, and what fails after the first is its
consequence), and it is given back if a member of that round proves lost within `silence`. With nothing left the next
failure is a verdict, which ends the job only after every member has answered a probe: a node's silent death must not
be taken for the program's fault.

It must not know nodes, phases or orders: `machine.py` tells it who was a member and who is lost, and acts on its word.
"""

from __future__ import annotations

from typing import FrozenSet, Iterable, Optional, Tuple

from petctl.rendezvous import messages as m
from petctl.rendezvous.messages import Failure, Outcome

Member = Tuple[str, str]  # (node, incarnation)


class Budget:
    """The failures that a job may still have. Public attributes are for reading; `spent` is also taken over."""

    def __init__(self, restarts: int, silence: float) -> None:
        self.restarts, self.silence = restarts, silence
        self.spent = 0
        self.verdict: Optional[Failure] = None  # final unless a member proves lost
        self.probe = 0  # the newest question to the members whether they live; they repeat its number
        self._charged: FrozenSet[Member] = frozenset()  # the members of the round that was charged last
        self._refundable_until = 0.0

    def charge(self, members: Iterable[Member], now: float) -> bool:
        """Takes one failure of a round with these members; False: none is left, and it is time to condemn."""
        if self.spent >= self.restarts:
            return False
        self.spent += 1
        self._charged, self._refundable_until = frozenset(members), now + self.silence
        return True

    def refund(self, lost: Member, now: float) -> bool:
        """Gives the newest charge back, once, if this loss explains it."""
        if lost not in self._charged or now > self._refundable_until:
            return False
        self._charged = frozenset()
        self.spent -= 1
        return True

    def condemn(self, failure: Failure, answers: Iterable[int] = ()) -> bool:
        """Makes this the failure that ends the job, unless there is one; True: the members are to be probed."""
        if self.verdict is not None:
            return False
        self.verdict = failure
        self.probe = max([self.probe, *answers]) + 1  # what an earlier coordinator was answered does not count
        return True

    def outcome(self, answers: Iterable[int]) -> Optional[Outcome]:
        """The job's end by the verdict, once every member has answered the probe."""
        if self.verdict is None or any(answer < self.probe for answer in answers):
            return None
        return Outcome(m.ENDED_FAILED, self.verdict.code or 1, self.verdict.sentence(), self.verdict)

    def pardon(self) -> None:
        """Drops the verdict: a new round begins, for whatever reason."""
        self.verdict = None

    def sentence(self) -> str:
        """What is used of it, for people."""
        return f"{self.spent} of {self.restarts} restarts used"
