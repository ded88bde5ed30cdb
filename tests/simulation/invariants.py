"""What must be true in every history. Each check raises `Violation` with the sentence of the broken rule.

1. All members of a round agree on its size and ranks, and no two rounds share an (epoch, round).
2. A connected node never has workers of an older round when a newer one is committed; one that comes later stops them.
3. A node never goes back: its rounds only grow, and no two sets of workers overlap on it.
4. The budget is never overspent, and only what may be retried is. A failure ends the job only if no member of its round
   was gone before it, and if it may not be retried or no restart is left; one that would come again on that node, only
   if too few others are there.
5. A job has succeeded only when all workers of a round that end by themselves have ended well.
6. What is recorded stays recorded, and nobody opens or continues a round after reading it.
7. A node that has not heard any coordinator for `fence_after`, by its own clock, has no workers, unless its agent
   stands still or they cannot be ended.
8. Where every message arrives soon, the failure that is charged is not that of a rank that lost a peer which had
   failed by itself; a failure is given back for a loss, not for a leave; a stall blames a rank of the round, and only
   when that round has made no step for that long.
9. (at the end, by the schedule) once faults stop: no live node is outside for ever, and the job makes progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from petctl.rendezvous.core import member as real_member
from petctl.rendezvous.core.events import Event
from petctl.rendezvous.core.messages import SUCCEEDED, Failure, Outcome, Place
from petctl.rendezvous.core.transitions import CLOSED, CLOSING, RUNNING

if TYPE_CHECKING:
    from tests.simulation.fleet import Coordinator, Fleet, Node


FENCING = 1.0  # seconds for a fenced node's workers to stop, beside their grace
LAG = 1.0  # seconds for a step to be known to the coordinator


class Violation(AssertionError):
    """A rule of the rendezvous was broken."""


class Checks:
    """Watches a fleet."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.options = fleet.options
        self.started_before: set[str] = set()
        self.places: dict[tuple[int, int], dict[str, Place]] = {}
        self.newest: dict[tuple[str, str], tuple[int, int]] = {}
        self.outcome: Outcome | None = None

    def running(self, coordinator: Coordinator, continued: bool) -> None:
        """A coordinator has just decided that a round runs, or goes on (stragglers may have to be stopped then)."""
        machine = coordinator.machine
        places = {name: place for name, (_, place) in machine.places.items()}
        config = self.fleet.options.config
        ranks = sorted(place.rank for place in places.values())
        if ranks != list(range(len(places))):
            raise Violation(f"round {machine.round}: ranks {ranks} are not 0..{len(places) - 1}")
        if not config.min_nodes <= len(places) <= config.max_nodes:
            raise Violation(f"round {machine.round} has {len(places)} nodes, outside of min and max")
        expected = 0
        for name in sorted(places, key=lambda name: places[name].rank):
            if places[name].first_rank != expected:
                raise Violation(f"round {machine.round}: node {name} starts at rank {places[name].first_rank}")
            expected += places[name].procs
        if any(place.world_size != expected for place in places.values()):
            raise Violation(f"round {machine.round} has {expected} workers, and not all of its members know that")
        for name, known in machine.nodes.items():
            node = self.fleet.nodes.get(name)
            if node is None or not known.connected or node.incarnation != known.report.incarnation:
                continue
            here = node.connection is not None and node.connection.coordinator == coordinator.name
            if not continued and here and node.up and node.live is not None and node.live.round < machine.round:
                raise Violation(f"round {machine.round} is committed while node {name} runs {node.live.round}")
        spent = machine.budget.spent
        if spent > config.restarts or spent < 0:
            raise Violation(f"{spent} failures spent of {config.restarts}")
        replaced = len(self.fleet.coordinators)
        if self.fleet.charges - self.fleet.refunds > config.restarts + replaced:
            raise Violation(f"{self.fleet.charges} failures charged, {self.fleet.refunds} given back")

    def starting(self, node: Node, effect: real_member.Start) -> None:
        """A node is about to start the workers of a round."""
        now = (effect.epoch, effect.round)
        if node.live is not None:
            raise Violation(f"node {node.name} starts round {effect.round} over workers of {node.live.round}")
        key = (node.name, node.incarnation)
        before = self.newest.get(key, (0, 0))
        if now <= before or effect.round <= before[1]:
            raise Violation(f"node {node.name} goes back from {self.newest[key]} to {now}")
        self.newest[key] = now
        place = effect.place
        if (place.master_addr, place.master_port) not in self.fleet.reserved:
            raise Violation(f"{now} starts with port {place.master_port}, which {place.master_addr} did not reserve")
        group = self.places.setdefault(now, {})
        group[node.name] = effect.place
        facts = {(p.nodes, p.world_size, p.master_addr, p.master_port, p.offers) for p in group.values()}
        if len(facts) != 1:
            raise Violation(f"the members of {now} disagree on its size or master: {sorted(facts)}")
        if self.options.config.offers:
            offered = place.offers[place.rank].partition(":")
            reserved = (node.member.address, int(offered[2] or 0)) in self.fleet.reserved
            if len(place.offers) != place.nodes or offered[0] != node.name or not reserved:
                raise Violation(f"node {node.name} starts {now} at rank {place.rank} with the offers {place.offers}")
        if len({place.rank for place in group.values()}) != len(group):
            raise Violation(f"two members of {now} have the same rank")

    def has_an_end(self, place: Place) -> bool:
        """Has its node workers that end by themselves? Where there are roles, the first is a parameter server's."""
        return not self.options.config.tasks or place.procs > 1

    def exiting(self, node: Node, effect: real_member.Exit) -> None:
        """A node's agent ends by itself."""
        if effect.stuck and not node.sticks and node.slow == 1.0:
            raise Violation(f"node {node.name} gives itself up, though its workers can be ended")
        if node.live is not None and not effect.stuck:
            raise Violation(f"node {node.name} exits and leaves workers behind")

    def retried(self, failure: Failure) -> bool:
        """Is this one to restart from, as long as there are restarts?"""
        ranges = self.options.config.retry_on
        known = failure.hung or failure.cause in self.options.config.retry_causes
        free = not ranges and not failure.lasting
        return known or free or any(failure.code in range(low, high + 1) for low, high in ranges)

    def charging(self, event: Event) -> None:
        """A failure is restarted from."""
        if not self.retried(Failure(**event.data["failure"])):
            raise Violation(f"restarted although it should not be: {event.sentence}")

    def fencing(self) -> None:
        """Called at every step: nobody trains for long without a coordinator."""
        for node in self.fleet.nodes.values():
            member, now = node.member, self.fleet.world.now
            if not node.up or node.live is None or node.sticks or now < node.frozen_until + FENCING:
                continue
            silent = node.clock() - member.heard
            if silent > self.options.fence_after + (member.grace + FENCING) * node.slow:
                raise Violation(f"node {node.name} trains though it heard no coordinator for {silent:.1f} s")

    def blaming(self, coordinator: Coordinator, event: Event) -> None:
        """A failure is charged: it must not be the consequence of another one that could be known."""
        machine, failure = coordinator.machine, event.data["failure"]
        own = self.fleet.own_failures.get(machine.running)
        if own is None or "peer" not in failure.get("message", "") or not self.fleet.world.good(1.5):
            return
        name, incarnation, when = own
        known = machine.nodes.get(name)
        if known is None or known.report.incarnation != incarnation or not known.connected or known.goes:
            return
        cut = self.fleet.world.unheard.get(name, 0.0) >= when  # it may have healed since
        if cut or not self.fleet.world.connects(name, coordinator.name) or coordinator.paused_until:
            return
        frozen = self.fleet.world.now < self.fleet.nodes[name].frozen_until + 3.0
        if when <= failure.get("time", 0.0) <= when + 0.1 and not frozen:
            raise Violation(f"{event.sentence}: but node {name} had failed by itself before")

    def refunding(self, coordinator: Coordinator, event: Event) -> None:
        """A failure is given back."""
        name = event.data["node"]
        if (coordinator.name, name, coordinator.lost[name]) in self.fleet.left:
            raise Violation(f"a failure is given back because node {name} has left")

    def stalling(self, coordinator: Coordinator, event: Event) -> None:
        """A round is said to stand still."""
        machine, world = coordinator.machine, self.fleet.world
        size = next((place.world_size for _, place in machine.places.values()), 0)
        wrong = [rank for rank in event.data["ranks"] if not 0 <= rank < size]
        if wrong:
            raise Violation(f"ranks {wrong} are blamed, of a round with {size}")
        last = self.fleet.stepped.get(machine.running)
        frozen = any(world.now < node.frozen_until + 3.0 for node in self.fleet.nodes.values())
        cut = world.cuts or world.isolated or world.one_way
        if last is not None and world.good(3.0) and not frozen and not cut:
            still = world.now - last
            if still < self.options.config.stall_after - LAG:
                raise Violation(f"{event.sentence}: but it made a step {still:.1f} s ago")

    def ending(self, coordinator: Coordinator, outcome: Outcome) -> None:
        """A coordinator has just decided that the job ends."""
        machine = coordinator.machine
        if outcome.state == SUCCEEDED:
            ending = {name: life for name, (life, place) in machine.places.items() if self.has_an_end(place)}
            late = [name for name, life in ending.items() if (name, life, machine.round) not in self.fleet.ended]
            if late:
                raise Violation(f"round {machine.round} has succeeded, though workers of {late} have not ended")
        if outcome.failure is None:
            return
        if self.retried(outcome.failure) and machine.budget.spent < self.options.config.restarts:
            raise Violation(f"ends by {outcome.failure.sentence()}, though it should be restarted")
        fit = [name for name, node in machine.nodes.items() if node.eligible and name not in self.options.unfit]
        if outcome.failure.lasting and len(fit) >= self.options.config.min_nodes:
            raise Violation(f"ends by {outcome.failure.sentence()}, though nodes {sorted(fit)} can go on without it")
        for name, (incarnation, _) in machine.places.items():
            died = self.fleet.deaths.get((name, incarnation))
            if died is not None and died < outcome.failure.time and name not in machine.done:
                raise Violation(f"ends by {outcome.failure.sentence()}, though node {name} was gone before")

    def recorded(self) -> None:
        """Called now and then: the recorded outcome never changes."""
        outcome = self.fleet.backend.outcome
        if self.outcome is not None and outcome != self.outcome:
            raise Violation("the recorded outcome has changed")
        if self.outcome is not None:
            for coordinator in self.fleet.coordinators:
                fresh = coordinator.alive and coordinator.machine.outcome is None
                if fresh and coordinator.name in self.started_after:
                    raise Violation(f"{coordinator.name} started after the end and does not know it")
        elif outcome is not None:
            self.outcome = outcome
            self.started_before = {c.name for c in self.fleet.coordinators}

    @property
    def started_after(self) -> set[str]:
        return {c.name for c in self.fleet.coordinators} - self.started_before

    def settled(self, excluded: set[str], since: float) -> None:
        """Called when there has been no fault for long: everybody who can take part does, and nothing moves."""
        fleet = self.fleet
        coordinator = fleet.located()
        if coordinator is None or not coordinator.alive:
            return
        machine = coordinator.machine
        if machine.phase in (CLOSING, CLOSED):
            return
        if machine.phase != RUNNING:
            raise Violation(f"no progress: {machine.sentence}")
        if any(moment > since for moment in fleet.rounds):
            raise Violation("rounds are opened though nothing happens")
        living = {name for name, node in fleet.nodes.items() if node.up and name not in excluded}
        living -= self.options.unfit
        inside = {name for name in living if name in machine.places and fleet.nodes[name].member.at[1] == machine.round}
        if len(inside) != min(len(living), machine.wanted):
            raise Violation(f"nodes {sorted(living - inside)} stay outside: {machine.sentence}")
        for name in living:
            node = fleet.nodes[name]
            if node.live is not None and node.live.round != machine.round:
                raise Violation(f"node {name} still runs {node.live.round} in round {machine.round}")
