"""The coordinator's state machine as a table: phase -> event -> handler and the phases that it may lead to.

The table runs the machine: `Transitions.apply` finds the handler of an event in the row of the phase and refuses a
phase that the handler does not list. An event without an entry does nothing in that phase. `python -m
tests.golden.state_diagram` draws it in docs/design/rendezvous.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, NamedTuple, Optional, Tuple

from petctl.rendezvous.core import events
from petctl.rendezvous.core.messages import Outcome

START = "start"  # nothing is known yet, not even whether there was a coordinator before
RECOVERING = "recovering"  # a replacement learns which round runs
GATHERING = "gathering"  # a round is prepared
RUNNING = "running"
CLOSING = "closing"  # the outcome is being recorded
CLOSED = "closed"
DEPOSED = "deposed"  # a newer coordinator exists; this one is silent


@dataclass(frozen=True)
class Begin:
    """The coordinator begins. `fresh`: no other was before it. `outcome`: the job's recorded end, if any."""

    fresh: bool
    outcome: Optional[Outcome]


@dataclass(frozen=True)
class Decide:
    """Facts have come, or a decision is due."""


@dataclass(frozen=True)
class Finish:
    """The same, and the job is to end."""


class Rule(NamedTuple):
    """What is done with an event: a method `(event, now)` of the coordinator, and the phases it may lead to."""

    handler: str
    next: Tuple[str, ...] = ()


_FACTS: Dict[type, Rule] = {  # taken in whatever the phase is, without leaving it
    events.Disconnected: Rule("_on_disconnected"),
    events.Expect: Rule("_on_expect"),
    events.Unexpect: Rule("_on_unexpect"),
    events.Roster: Rule("_on_roster"),
    events.Scale: Rule("_on_scale"),
    events.End: Rule("_on_end"),
    events.Late: Rule("_on_late"),
}
_DEPOSABLE = {**_FACTS, events.Reported: Rule("_on_reported", (DEPOSED,))}  # a node may know a newer coordinator
_FINAL = {**_FACTS, events.Reported: Rule("_on_reported")}
_FINISH: Dict[type, Rule] = {Finish: Rule("_on_finish", (CLOSING,))}

TRANSITIONS: Dict[str, Dict[type, Rule]] = {
    START: {Begin: Rule("_on_begin", (RECOVERING, GATHERING, CLOSED))},
    RECOVERING: {**_DEPOSABLE, **_FINISH, Decide: Rule("_decide_recovering", (GATHERING, RUNNING))},
    GATHERING: {**_DEPOSABLE, **_FINISH, Decide: Rule("_decide_gathering", (GATHERING, RUNNING, CLOSING))},
    RUNNING: {**_DEPOSABLE, **_FINISH, Decide: Rule("_decide_running", (GATHERING, CLOSING))},
    CLOSING: {**_DEPOSABLE, events.Recorded: Rule("_on_recorded", (CLOSED,))},
    CLOSED: _FINAL,
    DEPOSED: _FINAL,
}


class Transitions:
    """Applies events by the table. Its subclasses have the handlers."""

    def __init__(self) -> None:
        self.phase = START
        self._next: Tuple[str, ...] = ()  # what the handler that runs may lead to

    def apply(self, event: object, now: float) -> bool:
        """Calls the event's handler in this phase, if it has one; False: nothing has come of it."""
        rule = TRANSITIONS[self.phase].get(type(event))
        if rule is None:
            return False
        self._next = rule.next
        return getattr(self, rule.handler)(event, now) is not False

    def enter(self, phase: str) -> None:
        """Changes the phase, within the table."""
        if phase not in self._next:
            raise RuntimeError(f"the table of transitions has no way from {self.phase} to {phase} here")
        self.phase = phase
