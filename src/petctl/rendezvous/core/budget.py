"""The failure budget of a job: what a worker's failure costs, when it is given back, and when it is the job's end.

The rule: at most one failure is charged per round (a charge ends its round, and what fails after the first is its
consequence), and it is given back if a member of that round proves lost within `silence`; one that leaves gives nothing
back. With nothing left the next
failure is a verdict, which ends the job only after every member has answered a probe: a node's silent death must not
be taken for the program's fault. A failure whose exit code and cause are both not to be retried on is a verdict at
once, and so is one that would come again as it is, unless it is named; a hang is always retried. Losses of nodes are
free, but for a node or a rank that is lost five times while the job makes no progress: the program takes its node down.

It must not know nodes, phases or orders: `machine.py` tells it who was a member and who is lost, and acts on its word.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, Iterable, Mapping, Optional, Sequence, Tuple

from petctl import causes
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.blame import origin
from petctl.rendezvous.core.messages import Failure, Outcome

Member = Tuple[str, str]  # (node, incarnation)

FALLS = 5  # losses of one node, or of one rank, without progress between them, that are not taken for chance
FALL_WITHIN = 30.0  # seconds; a round that lasts longer is progress, where no steps are reported


class Falls:
    """Counts losses without progress: a program that takes its node down would restart for ever, free of charge.

    They are counted by node and by rank. By rank because a lost node's rank moves on to another node; not for the job
    as a whole, because a pool whose machines are taken away one by one loses other nodes and other ranks each time.
    """

    def __init__(self) -> None:
        self._nodes: Dict[str, int] = {}
        self._ranks: Dict[int, int] = {}

    def note(self, lost: Mapping[str, int], progress: bool) -> Tuple[str, bool]:
        """Takes in a round's end by the loss of these nodes (name -> rank).

        Returns the name of a node that is to be charged, or an empty string, and whether that node itself was lost so
        often, not only its rank.
        """
        if progress:
            self._nodes, self._ranks = {}, {}
            return "", False
        for name, rank in lost.items():
            self._nodes[name] = self._nodes.get(name, 0) + 1
            self._ranks[rank] = self._ranks.get(rank, 0) + 1
        for name, rank in lost.items():
            itself = self._nodes[name] >= FALLS
            if itself or self._ranks[rank] >= FALLS:
                self._nodes, self._ranks = {}, {}
                return name, itself
        return "", False


class Budget:
    """The failures that a job may still have. Public attributes are for reading; `spent` is also taken over."""

    def __init__(
        self, restarts: int, silence: float, retry_on: Sequence[Sequence[int]] = (), retry_causes: Sequence[str] = ()
    ) -> None:
        self.restarts, self.silence = restarts, silence
        self._retry_on = retry_on  # (low, high) of exit codes ...
        self._retry_causes = retry_causes  # ... and names of causes; neither: all failures
        self.spent = 0
        self.verdict: Optional[Failure] = None  # final unless a member proves lost
        self.probe = 0  # the newest question to the members whether they live; they repeat its number
        self._charged: FrozenSet[Member] = frozenset()  # the members of the round that was charged last
        self._refundable_until = 0.0

    def retries(self, failure: Failure) -> bool:
        """Is this a failure to restart from, as long as there are restarts?"""
        if failure.hung:
            return True
        if not (self._retry_on or self._retry_causes):
            return not self._comes_again(failure)
        return failure.cause in self._retry_causes or any(low <= failure.code <= high for low, high in self._retry_on)

    def _comes_again(self, failure: Failure) -> bool:
        return failure.lasting or (not failure.signal and failure.cause in causes.lasting())

    def hopeless(self, failure: Failure) -> bool:
        """Could the node not even start its part, and is nobody asked to try again?"""
        return failure.lasting and not self.retries(failure)

    def charge(self, failure: Failure, members: Iterable[Member], now: float) -> bool:
        """Takes the failure of a round with these members; False: it is not restarted from, but to be condemned."""
        if not self.retries(failure):
            return False
        if not self._take():
            return False
        self._charged, self._refundable_until = frozenset(members), now + self.silence
        return True

    def _take(self) -> bool:
        if self.spent >= self.restarts:
            return False
        self.spent += 1
        return True

    def charge_fall(self) -> bool:
        """Charges a loss that came again and again; False: no restart is left."""
        if not self._take():
            return False
        self._charged = frozenset()
        return True

    def refund(self, lost: Member, now: float) -> bool:
        """Gives the newest charge back, once, if this loss explains it."""
        if lost not in self._charged or now > self._refundable_until:
            return False
        self._charged = frozenset()
        self.spent -= 1
        return True

    def late(self, seconds: float, now: float) -> None:
        """The coordinator itself was held up: losses that it learns of only now still explain the newest charge."""
        if now - seconds <= self._refundable_until:
            self._refundable_until = max(self._refundable_until + seconds, now + self.silence)

    def confirm_failure(self, failure: Failure, answers: Iterable[int] = ()) -> bool:
        """Makes this the failure that ends the job, unless there is one; True: the members are to be probed."""
        if self.verdict is not None:
            if origin(failure) < origin(self.verdict):  # the root cause was told late
                self.verdict = failure
            return False
        self.verdict = failure
        self.probe = max([self.probe, *answers]) + 1  # what an earlier coordinator was answered does not count
        return True

    def outcome(self, answers: Iterable[int]) -> Optional[Outcome]:
        """The job's end by the verdict, once every member has answered the probe."""
        if self.verdict is None or any(answer < self.probe for answer in answers):
            return None
        sentence = self.verdict.sentence()
        named = bool(self._retry_on or self._retry_causes)  # what is retried, and so is not this one
        if self.hopeless(self.verdict) or (self._comes_again(self.verdict) and not named):
            sentence += " (a restart would not help)"
        elif not self.retries(self.verdict):
            cause = f" by {self.verdict.cause}" if self.verdict.cause else ""
            sentence += f" (exit code {self.verdict.code}{cause} is not in retry_on)"
        return Outcome(m.ENDED_FAILED, self.verdict.code or 1, sentence, self.verdict)

    def clear_failure(self) -> None:
        """Drops the verdict: a new round begins, for whatever reason."""
        self.verdict = None

    def sentence(self) -> str:
        """What is used of it, for people."""
        return f"{self.spent} of {self.restarts} restarts used"
