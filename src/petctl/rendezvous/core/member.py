"""A node's side of the rendezvous, as a pure machine: `step(event, now) -> effects`.

Rules it keeps, whatever the network does:

- Workers start only on RUN for exactly the (epoch, round) that this node has acknowledged as PREPARED.
- It acknowledges PREPARED only when no worker of an older round is left (the driver says so with `WorkersStopped`).
- It obeys only the newest coordinator it has heard of: a lower epoch, or the same epoch of another leader, is refused.
- Losing the coordinator changes nothing for the workers until `fence_after`; then they are stopped.
- A node whose workers have not ended long after they were killed gives itself up: the others go on without it. Such a
  worker runs no line of its program any more.
- Leaving (SIGTERM, RELEASE) is not closing: the others are told, and go on.

It must not know sockets, clocks, processes or chance. The driver carries out the effects in order and feeds back
events; events of workers name their round, so that late ones of an older round are ignored.
"""

from __future__ import annotations

from typing import List, Optional, Tuple

from petctl.rendezvous.core import heartbeat
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.blame import HOLD, OWN, origin
from petctl.rendezvous.core.member_events import (
    Connected,
    Disconnected,
    Doing,
    Dump,
    Elastic,
    Exit,
    PortReserved,
    Progressed,
    Received,
    Reconnect,
    Reserve,
    Send,
    Serving,
    Start,
    StartEarly,
    Stop,
    Terminate,
    Tick,
    Warming,
    WorkerEnded,
    WorkerFailed,
    WorkersStopped,
)
from petctl.rendezvous.core.messages import Failure, Header, Order, Outcome, Place, Progress, Report, Stall

__all__ = [
    "UNKILLABLE_AFTER",
    "UNPLANNED_GRACE",
    "Connected",
    "Disconnected",
    "Doing",
    "Dump",
    "Elastic",
    "Exit",
    "Member",
    "PortReserved",
    "Progressed",
    "Received",
    "Reconnect",
    "Reserve",
    "Send",
    "Serving",
    "Start",
    "StartEarly",
    "Stop",
    "Terminate",
    "Tick",
    "Warming",
    "WorkerEnded",
    "WorkerFailed",
    "WorkersStopped",
]

UNPLANNED_GRACE = 5.0  # workers of a broken round get at most this long after SIGTERM: their peers are gone
UNKILLABLE_AFTER = 20.0  # seconds after the grace by which killed workers have ended, unless a system call holds them


class Member:
    """One node. Public attributes are for reading."""

    def __init__(
        self,
        node: str,
        incarnation: str,
        procs: int,
        address: str,
        now: float,
        grace: float = 30.0,
        silence: float = 5.0,
        fence_after: float = 60.0,
        give_up_after: float = 600.0,
    ) -> None:
        self.node, self.incarnation, self.procs, self.address = node, incarnation, procs, address
        self.grace, self.silence, self.fence_after, self.give_up_after = grace, silence, fence_after, give_up_after
        self.header = Header()
        self.state = m.IDLE
        self.at: Tuple[int, int] = (0, 0)  # (epoch, round) that `state` refers to
        self.place: Optional[Place] = None  # in the last round that it ran ...
        self.placed: Tuple[int, int] = (0, 0)  # ... which was this (epoch, round)
        self.port, self.offer = 0, ""
        self.ended = False
        self.serving = False  # have all ended well that end by themselves?
        self.failure: Optional[Failure] = None
        self.held_until: Optional[float] = None  # it may be a consequence: other local workers may tell the cause
        self.alive = False  # are there worker processes?
        self.stop_by: Optional[float] = None  # they were killed, and should have ended by then
        self.target: Optional[Tuple[int, int]] = None  # prepare for this once they have stopped
        self._stopping_since = now
        self.reserve = False
        self.leaving = ""
        self.outcome: Optional[Outcome] = None
        self.probe = 0
        self.note = ""
        self.warming = False
        self.elastic = False
        self.early = False  # have workers been started early?
        self.progress: Optional[Progress] = None  # of the workers, in the round that runs
        self.stall: Optional[Stall] = None  # of this round, once it was told of one
        self.number = 0
        self.connected = False
        self.exited = False
        self.contact = now  # last sign of life on this connection
        self.heard = now  # last word of any coordinator
        self.beat_at = now

    @property
    def beat(self) -> float:
        """Seconds between two of its heartbeats."""
        return heartbeat.interval(self.silence, self.header.wanted)

    @property
    def patience(self) -> float:
        """Seconds after which a coordinator that says nothing is left."""
        return heartbeat.lost_after(self.silence, self.header.wanted)

    @property
    def fence_at(self) -> float:
        """When its workers have been without a coordinator for too long."""
        return self.heard + max(self.fence_after, self.patience)

    # -- the door ----------------------------------------------------------------------------------------------------

    def step(self, event: object, now: float) -> List[object]:
        """Takes in one event and says what is to be done."""
        if self.exited:
            return []
        return list(getattr(self, "_on_" + type(event).__name__.lower())(event, now))

    def deadline(self) -> Optional[float]:
        """When a Tick is due at the latest; in the past, if it was due when another event came first."""
        if self.exited:
            return None
        times = [] if self.alive else [self.heard + self.give_up_after]
        if self.connected:
            times += [self.beat_at, self.contact + self.patience]
        if self.alive and self.state in (m.RUNNING, m.FAILED):
            times.append(self.fence_at)
        if self.stop_by is not None:
            times.append(self.stop_by)
        if self.held_until is not None and self.state == m.RUNNING:
            times.append(self.held_until)
        return min(times, default=None)

    # -- events ------------------------------------------------------------------------------------------------------

    def _on_connected(self, event: Connected, now: float) -> List[object]:
        self.connected, self.contact = True, now
        return self._report(now, beat=True)

    def _on_disconnected(self, event: Disconnected, now: float) -> List[object]:
        self.connected = False
        return []

    def _on_received(self, event: Received, now: float) -> List[object]:
        order = event.order
        new, known = order.header, self.header
        if new.epoch < known.epoch or (new.epoch == known.epoch and known.leader not in ("", new.leader)):
            return [Reconnect(f"refused a coordinator of epoch {new.epoch}: epoch {known.epoch} is newer")]
        self.contact = self.heard = now
        if new.age < known.age:
            return []  # overtaken on the way by a newer order
        granted = new.epoch > known.epoch
        self.header = new
        self.beat_at = min(self.beat_at, now + self.beat)  # heartbeats come more often in a smaller job
        asked = order.probe > self.probe
        self.probe = max(self.probe, order.probe)
        effects = self._obey(order, now)
        if (granted or asked) and not any(isinstance(e, (Send, Exit)) for e in effects):
            effects += self._report(now)
        return effects

    def _on_portreserved(self, event: PortReserved, now: float) -> List[object]:
        if self.state != m.PREPARED or event.round != self.at[1]:
            return []
        self.port, self.offer = event.port, event.offer
        return self._report(now)

    def _on_workerended(self, event: WorkerEnded, now: float) -> List[object]:
        if event.round != self.at[1] or self.state != m.RUNNING:
            return []
        first, self.ended = not self.ended, True
        if event.last and self.failure is not None:
            return self._fail(now)
        if event.last:
            self.state, self.alive = m.DONE, False
        return self._report(now) if first or event.last else []

    def _on_serving(self, event: Serving, now: float) -> List[object]:
        if event.round != self.at[1] or self.state != m.RUNNING:
            return []
        self.serving = True
        return self._report(now)

    def _on_workerfailed(self, event: WorkerFailed, now: float) -> List[object]:
        if event.round != self.at[1] or self.state != m.RUNNING:
            return []
        before = self.failure
        if before is None or origin(event.failure) < origin(before):
            self.failure = event.failure
        assert self.failure is not None
        if event.last or origin(self.failure) == OWN:
            return self._fail(now)
        self.held_until = now + HOLD if self.held_until is None else self.held_until
        return self._report(now) if self.failure is not before else []

    def _fail(self, now: float) -> List[object]:
        self.state, self.held_until = m.FAILED, None
        return [*self._report(now), self._stop(UNPLANNED_GRACE, "a worker of this node failed", now)]

    def _on_workersstopped(self, event: WorkersStopped, now: float) -> List[object]:
        self.alive, self.stop_by = False, None
        if self.outcome is not None or self.leaving:
            return self._exit(now)
        if self.target is not None:
            return self._prepared(now)
        if self.state == m.STOPPING:
            self.state = m.FENCED
            return self._report(now)
        return self._report(now) if self.state == m.FAILED else []

    def _on_terminate(self, event: Terminate, now: float) -> List[object]:
        return self._leave(event.why, now)

    def _on_doing(self, event: Doing, now: float) -> List[object]:
        self.note = event.note
        return self._report(now)

    def _on_warming(self, event: Warming, now: float) -> List[object]:
        if event.warming == self.warming:
            return []
        self.warming = event.warming
        return self._report(now)

    def _on_progressed(self, event: Progressed, now: float) -> List[object]:
        if event.round != self.at[1] or self.state != m.RUNNING:
            return []
        first, self.progress = self.progress is None, event.progress
        return self._report(now) if first else []  # the next heartbeat is soon enough for the others

    def _on_elastic(self, event: Elastic, now: float) -> List[object]:
        if self.elastic:
            return []
        self.elastic = True
        return self._report(now)

    def _on_tick(self, event: Tick, now: float) -> List[object]:
        if now >= self.heard + self.give_up_after and not self.alive:
            self.exited = True
            return [Exit(None, f"no coordinator for {self.give_up_after:.0f} s")]
        if self.stop_by is not None and now >= self.stop_by:
            self.exited = True
            why = f"its workers were killed but did not end within {now - self._stopping_since:.0f} s"
            return [Exit(self.outcome, why, stuck=True)]
        effects: List[object] = []
        if self.connected and now >= self.contact + self.patience:
            self.connected = False
            effects.append(Reconnect(f"no heartbeat from the coordinator for {self.patience:.0f} s"))
        if self.alive and self.state in (m.RUNNING, m.FAILED) and now >= self.fence_at:
            self.state = m.STOPPING
            effects.append(self._stop(UNPLANNED_GRACE, f"no coordinator for {now - self.heard:.0f} s", now))
        elif self.state == m.RUNNING and self.held_until is not None and now >= self.held_until:
            effects += self._fail(now)
        if self.connected and now >= self.beat_at:
            effects += self._report(now, beat=True)
        return effects

    # -- what the coordinator wants ----------------------------------------------------------------------------------

    def _obey(self, order: Order, now: float) -> List[object]:
        if order.kind == m.CLOSE:
            return self._close(order, now)
        if order.kind == m.RELEASE:
            return self._leave("released: " + order.sentence, now)
        if self.leaving or self.outcome is not None:
            return []
        if order.kind == m.PREPARE:
            return self._prepare(order, now)
        if order.kind == m.STANDBY and self.state == m.RUNNING:
            self.state = m.STOPPING
            return [self._stop(UNPLANNED_GRACE, "the round continues without this node", now), *self._report(now)]
        if order.kind == m.STANDBY and order.early and not self.alive and not self.early:
            self.early = self.warming = True
            return [StartEarly()]
        if order.stall not in (None, self.stall) and self.state == m.RUNNING and order.round == self.at[1]:
            assert order.stall is not None
            self.stall = order.stall
            return [Dump(order.round, order.stall)]
        if order.kind == m.RUN and self.state == m.PREPARED and self.at == (order.header.epoch, order.round):
            assert order.place is not None
            self.state, self.alive = m.RUNNING, True
            self.place, self.placed = order.place, self.at
            self.procs = order.place.procs or self.procs
            self.ended, self.failure, self.progress, self.stall, self.held_until = False, None, None, None, None
            start = Start(order.header.epoch, order.round, order.place, order.header.spent)
            return [start, *self._report(now)]
        return []

    def _prepare(self, order: Order, now: float) -> List[object]:
        wanted = (order.header.epoch, order.round)
        self.reserve = order.reserve
        if self.state == m.PREPARED and self.at == wanted:
            return [Reserve(order.round)] if order.reserve and not self.port else []
        if order.round <= self.at[1] and self.at[0] >= wanted[0]:
            return []  # that round is behind us
        self.target = wanted
        if not self.alive:
            return self._prepared(now)
        grace = self.grace if order.planned else UNPLANNED_GRACE
        changed, self.state = self.state != m.STOPPING, m.STOPPING
        stop = self._stop(grace, order.sentence, now, planned=order.planned)
        return [stop, *(self._report(now) if changed else [])]

    def _prepared(self, now: float) -> List[object]:
        assert self.target is not None
        self.at, self.target = self.target, None
        self.state, self.port, self.offer = m.PREPARED, 0, ""
        self.ended, self.serving, self.failure, self.progress = False, False, None, None
        return [Reserve(self.at[1])] if self.reserve else self._report(now)

    def _close(self, order: Order, now: float) -> List[object]:
        if self.outcome is not None:
            return []
        self.outcome = order.outcome
        if not self.alive:
            return self._exit(now)
        planned = order.outcome is not None and order.outcome.state != m.ENDED_FAILED
        grace = self.grace if planned else UNPLANNED_GRACE
        return [self._stop(grace, order.sentence or "the job has ended", now, planned, final=True)]

    def _leave(self, why: str, now: float) -> List[object]:
        if self.leaving:
            return []
        self.leaving = why
        if not self.alive:
            return self._exit(now)
        if self.state == m.RUNNING:
            self.state = m.STOPPING
        return [*self._report(now), self._stop(self.grace, why, now, planned=True, final=True)]

    def _stop(self, grace: float, why: str, now: float, planned: bool = False, final: bool = False) -> Stop:
        grace = min(self.grace, grace)
        if self.stop_by is None:
            self._stopping_since = now
        self.stop_by = min(self.stop_by or now + grace + UNKILLABLE_AFTER, now + grace + UNKILLABLE_AFTER)
        return Stop(grace, why, planned, final)

    def _exit(self, now: float) -> List[object]:
        self.exited = True
        if self.state == m.STOPPING:
            self.state = m.IDLE
        why = self.outcome.sentence if self.outcome is not None else self.leaving
        return [*self._report(now), Exit(self.outcome, why)]

    def _report(self, now: float, beat: bool = False) -> List[object]:
        if not self.connected:
            return []
        if beat:
            self.beat_at = now + self.beat
        self.number += 1
        report = Report(
            node=self.node,
            incarnation=self.incarnation,
            number=self.number,
            procs=self.procs,
            address=self.address,
            header=self.header,
            state=self.state,
            epoch=self.at[0],
            round=self.at[1],
            place=self.place,
            place_epoch=self.placed[0],
            place_round=self.placed[1],
            port=self.port,
            offer=self.offer,
            ended=self.ended,
            serving=self.serving,
            failure=self.failure,
            leaving=bool(self.leaving),
            beat=beat,
            probe=self.probe,
            note=self.note,
            progress=self.progress,
            warming=self.warming,
            elastic=self.elastic,
        )
        return [Send(report)]
