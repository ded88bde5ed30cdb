"""A whole job in one thread: coordinators, nodes and their workers, over the real machines and a simulated world.

Workers are a model: the ranks of a round step together while all of them run and can reach each other; when the goal is
reached they end, all but parameter servers; when a peer is gone they may fail. The backend is a counter for epochs and
one slot for the outcome.
`check` (invariants.py) is called at every start of workers and every commit; it raises `Violation`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from types import ModuleType

from petctl.rendezvous.core import events
from petctl.rendezvous.core import machine as real_machine
from petctl.rendezvous.core import member as real_member
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.transitions import DEPOSED, RECOVERING, RUNNING
from tests.simulation.invariants import Checks, Violation
from tests.simulation.world import Connection, Inbox, World

STEP = 0.5  # seconds of one training step
TICK = 0.01  # seconds until a node looks again at something that is overdue


@dataclass
class Backend:
    """What survives everything: the epoch counter, the newest header and the outcome."""

    epoch: int = 0
    memory: m.Header | None = None
    outcome: m.Outcome | None = None

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def remember(self, header: m.Header) -> None:
        """The newest epoch's word counts."""
        if self.memory is None or header.epoch >= self.memory.epoch:
            self.memory = header

    def record(self, outcome: m.Outcome) -> m.Outcome:
        """First come, first kept."""
        self.outcome = self.outcome or outcome
        return self.outcome


@dataclass
class Workers:
    """The worker processes of one node."""

    epoch: int
    round: int
    place: m.Place
    ended: bool = False  # all local ranks ended well
    failed: bool = False
    steps: int = 0  # that it has made, and reported where workers report
    dying: bool = False  # it has failed by itself, and its process is about to end
    hung: bool = False  # some rank of it makes no step any more, and all others wait for it
    endless: bool = False  # with a parameter server, which runs on when the others have ended

    @property
    def id(self) -> tuple[int, int]:
        return (self.epoch, self.round)


@dataclass
class Options:
    config: events.Config
    nodes: int = 3
    grace: float = 2.0
    fence_after: float = 8.0
    memory: bool = False  # the backend remembers the newest header, for a job none of whose nodes is left to tell
    warm_up: float = 0.0  # seconds in which a new node warms up, at the most
    reports: bool = False  # workers report their steps
    elastic: bool = False  # workers say that they can wait, parked, for their place
    goal: int = 0  # steps until the workers end; 0: never
    odd: float = 0.0  # chance of an odd fault beside each usual one
    gentle: bool = False  # messages that arrive do so soon
    drift: bool = False  # the nodes' clocks run at paces of their own
    slow_starts: bool = False  # some nodes take seconds to start
    takes_down: int | None = None  # the rank that `deadly` will be
    deadly: int | None = None  # workers of this rank take their node down, in every round
    unfit: set[str] = field(default_factory=set)  # nodes that can start no worker, whatever the round
    consequence: float = 0.8  # chance that a broken peer group fails within a step
    wire: bool = True  # messages travel as JSON would carry them; twice the work
    machines: tuple[ModuleType, ModuleType] = field(default=(real_machine, real_member))


class Coordinator:
    """A coordinator process."""

    def __init__(self, fleet: Fleet, name: str, fresh: bool) -> None:
        self.fleet, self.name, self.alive = fleet, name, True
        self.inbox = Inbox(fleet.world, self.handle)
        options, world = fleet.options, fleet.world
        outcome = fleet.backend.outcome
        epoch = fleet.backend.next_epoch()
        memory = fleet.backend.memory if options.memory and not fresh else None
        self.machine = fleet.machine.Coordinator(
            options.config, world.now, leader=name, epoch=epoch, fresh=fresh, outcome=outcome, memory=memory
        )
        self.connections: dict[tuple[str, str], Connection] = {}
        self.lost: dict[str, str] = {}  # node -> the incarnation that it gave up last
        self.wake_at: float | None = None
        self.crash_after_tells: int | None = None
        self.settle()

    def accept(self, connection: Connection) -> None:
        key: list[tuple[str, str]] = []

        def receive(message: object) -> None:
            if not self.alive:
                return
            if message is None:
                if key and self.connections.get(key[0]) is connection:
                    del self.connections[key[0]]
                    self.step(events.Disconnected(*key[0]))
                return
            report = m.decode_report(message) if isinstance(message, dict) else message
            assert isinstance(report, m.Report)
            key[:] = [(report.node, report.incarnation)]
            self.connections[key[0]] = connection
            self.step(events.Reported(report))

        connection.coordinator_end = receive

    def step(self, event: object) -> None:
        self.inbox.put(event)

    @property
    def paused_until(self) -> float:
        """Until when its process is starved; 0 where it never was."""
        return self.inbox.still_until

    def handle(self, event: object) -> None:
        if self.alive:
            if isinstance(event, events.Reported) and event.report.leaving:
                self.fleet.left.add((self.name, event.report.node, event.report.incarnation))
            self.machine.step(event, self.fleet.world.now)
            self.settle()

    def settle(self) -> None:
        world = self.fleet.world
        if not self.alive or world.now < self.paused_until:
            return
        before = self.machine.phase
        for effect in self.machine.settle(world.now):
            if not self.alive:
                return
            self.fleet.trace(self, effect)
            if isinstance(effect, events.Tell):
                self.tell(effect)
            elif isinstance(effect, events.Record):
                outcome = effect.outcome
                self.fleet.checks.ending(self, outcome)
                world.at(world.latency(), lambda o=outcome: self.record(o))  # type: ignore[misc]
            elif isinstance(effect, events.Lost):
                name = effect.node
                self.lost[name] = effect.incarnation
                if name in self.fleet.replaced:
                    self.machine.step(events.Expect((name,), self.fleet.replaced.pop(name)), world.now)
                    world.at(0.2, lambda n=name: self.fleet.start_node(n))  # type: ignore[misc]
        if self.machine.phase == RUNNING and before != RUNNING:
            self.fleet.checks.running(self, continued=before == RECOVERING)
            self.fleet.backend.remember(self.machine.header())
        if self.machine.phase == DEPOSED:
            self.crash()
            return
        due = self.machine.due
        if due is not None and (self.wake_at is None or due < self.wake_at or self.wake_at <= world.now):
            self.wake_at = due
            world.at_time(due, self.wake)

    def wake(self) -> None:
        if self.wake_at is not None and self.wake_at <= self.fleet.world.now:
            self.wake_at = None
            self.settle()

    def tell(self, effect: events.Tell) -> None:
        connection = self.connections.get((effect.node, effect.incarnation))
        if connection is not None:
            self.fleet.messages += 1
            connection.to_node(self.fleet.sent(effect.order))
        if self.crash_after_tells is not None:
            self.crash_after_tells -= 1
            if self.crash_after_tells < 0:
                self.crash()

    def record(self, outcome: m.Outcome) -> None:
        if self.alive:
            recorded = self.fleet.backend.record(outcome)
            if self.fleet.crash_on_record:
                self.fleet.crash_on_record = False
                self.crash()
            self.step(events.Recorded(recorded))

    def pause(self, seconds: float) -> None:
        """The process is starved for so long; then its driver says that it was late."""
        late = self.inbox.stand_still(seconds)
        if late:
            self.inbox.put_first(events.Late(late))

    def crash(self) -> None:
        self.alive = False
        for connection in self.connections.values():
            connection.close("coordinator_end")


class Node:
    """A node: its agent's machine and its workers."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name, self.up = fleet, name, True
        self.slow = 1.0
        self.sticks = False  # its workers cannot be ended, not even killed
        self.inbox = Inbox(fleet.world, self.handle)
        self.pace = fleet.drift()  # of its clock
        fleet.incarnations += 1
        self.incarnation = f"i{fleet.incarnations:06d}"
        options = fleet.options
        self.member = fleet.member.Member(
            name,
            self.incarnation,
            procs=1 + fleet.world.random.randrange(2) if fleet.chaotic else 2,
            address=f"host-{name}",
            now=self.clock(),
            grace=options.grace,
            silence=options.config.silence,
            fence_after=options.fence_after,
        )
        self.workers: Workers | None = None
        self.connection: Connection | None = None
        self.connecting = False
        self.wake_at: float | None = None
        self.stop_number = 0
        if options.warm_up:
            self.warm_up()
        fleet.world.at(fleet.world.latency() + fleet.slowness(), self.connect)

    def clock(self) -> float:
        """Its own time, which may run faster or slower than that of others."""
        return self.fleet.world.now * self.pace

    def freeze(self, seconds: float) -> None:
        """Its agent stands still for so long (a stopped process, a starved machine), while its workers keep running."""
        self.inbox.stand_still(seconds)

    @property
    def frozen_until(self) -> float:
        """Until when its agent stands still."""
        return self.inbox.still_until

    @property
    def live(self) -> Workers | None:
        """Its workers, as long as there are processes of them."""
        return self.workers if self.workers is not None and not self.workers.ended else None

    def warm_up(self) -> None:
        """The node imports what its workers will need; for the coordinator it is a node all the while."""
        longest, fleet = self.fleet.options.warm_up, self.fleet
        self.step(fleet.member.Warming(True))
        took = fleet.warmth.uniform(0, longest) if fleet.chaotic else longest
        fleet.world.at(took, lambda: self.step(fleet.member.Warming(False)))

    # -- the agent's driver -------------------------------------------------------------------------------------------

    def step(self, event: object) -> None:
        if self.up:
            self.inbox.put(event)

    def handle(self, event: object) -> None:
        if not self.up:
            return
        world = self.fleet.world
        for effect in self.member.step(event, self.clock()):
            getattr(self, "_do_" + type(effect).__name__.lower())(effect)
            if not self.up:
                return
        due = self.member.deadline()
        due = due / self.pace if due is not None else None
        if due is not None and (self.wake_at is None or due < self.wake_at):
            self.wake_at = due if due > world.now else world.now + TICK
            world.at_time(self.wake_at, self.wake)

    def wake(self) -> None:
        if self.up and self.fleet.world.now < self.frozen_until:
            self.fleet.world.at_time(self.frozen_until, self.wake)
        elif self.up and self.wake_at is not None and self.wake_at <= self.fleet.world.now:
            self.wake_at = None
            self.step(self.fleet.member.Tick())

    def connect(self) -> None:
        self.connecting = False
        if not self.up or self.connection is not None:
            return
        world, coordinator = self.fleet.world, self.fleet.looked_up()
        if coordinator is None or not coordinator.alive or not world.connects(self.name, coordinator.name):
            self.retry(0.2)
            return
        connection = self.connection = Connection(world, self.name, coordinator.name)

        def receive(message: object) -> None:
            if not self.up or self.connection is not connection:
                return
            if message is None:
                self.connection = None
                self.step(self.fleet.member.Disconnected())
                self.retry(0.05)
            else:
                order = m.decode_order(message) if isinstance(message, dict) else message
                self.step(self.fleet.member.Received(order))

        connection.node_end = receive
        coordinator.accept(connection)
        self.step(self.fleet.member.Connected())

    def retry(self, delay: float) -> None:
        if not self.connecting:
            self.connecting = True
            self.fleet.world.at(delay, self.connect)

    # -- effects ------------------------------------------------------------------------------------------------------

    def _do_send(self, effect: real_member.Send) -> None:
        if self.connection is not None:
            self.fleet.messages += 1
            self.connection.to_coordinator(self.fleet.sent(effect.report))

    def _do_start(self, effect: real_member.Start) -> None:
        self.fleet.checks.starting(self, effect)
        self.workers = Workers(effect.epoch, effect.round, effect.place, endless=bool(self.fleet.options.config.tasks))
        if self.workers.endless and self.member.procs == 1:  # nothing but the parameter server
            self.step(self.fleet.member.Serving(effect.round))
        if self.fleet.options.elastic:
            self.step(self.fleet.member.Elastic())
        if self.fleet.options.warm_up and self.fleet.chaotic and self.fleet.warmth.random() < 0.2:
            self.warm_up()  # what it has imported was of no use, or is lost
        if self.name in self.fleet.options.unfit:
            workers = self.workers
            self.fleet.world.at(self.fleet.world.latency(), lambda: self.cannot_start(workers))
        if effect.place.rank == self.fleet.options.deadly:
            taken = self.workers
            self.fleet.world.at(0.25, lambda: self.taken_down(taken))

    def taken_down(self, workers: Workers) -> None:
        """The program takes its whole node down; the cluster replaces the node."""
        if self.up and self.workers is workers and self.fleet.options.deadly is not None:
            self.fleet.replaced[self.name] = 1.0
            self.die()

    def cannot_start(self, workers: Workers) -> None:
        if self.workers is workers:
            self.fail_worker("there is no such program", code=127, lasting=True)

    def _do_startearly(self, effect: real_member.StartEarly) -> None:
        if self.live is not None:
            raise Violation(f"node {self.name} starts workers early over those of round {self.live.round}")
        self.warm_up()

    def _do_stop(self, effect: real_member.Stop) -> None:
        self.stop_number += 1
        number, world = self.stop_number, self.fleet.world
        took = world.random.uniform(0, effect.grace) * self.slow / 4 if self.fleet.chaotic else 0.01

        def stopped() -> None:
            if self.up and number == self.stop_number and not self.sticks:
                self.workers = None
                self.step(self.fleet.member.WorkersStopped())

        world.at(took, stopped)

    def _do_dump(self, effect: real_member.Dump) -> None:
        workers = self.workers
        if workers is not None and 0 <= effect.stall.rank - workers.place.first_rank < self.member.procs:
            self.fleet.world.at(self.fleet.world.latency(), lambda: self.hangs(workers))

    def hangs(self, workers: Workers) -> None:
        if self.workers is workers:
            self.fail_worker("no step any more", hung=True)

    def _do_reserve(self, effect: real_member.Reserve) -> None:
        self.fleet.ports += 1
        port = 20000 + self.fleet.ports % 40000
        self.fleet.reserved.add((self.member.address, port))
        reserved = self.fleet.member.PortReserved(effect.round, port, f"{self.name}:{port}")
        self.fleet.world.at(self.fleet.world.latency(), lambda: self.step(reserved))

    def _do_reconnect(self, effect: real_member.Reconnect) -> None:
        if self.connection is not None:
            self.connection.close("node_end")
            self.connection = None
        self.fleet.world.at(0.0, self.disconnected)
        self.retry(0.05)

    def disconnected(self) -> None:
        if self.connection is None:
            self.step(self.fleet.member.Disconnected())

    def _do_exit(self, effect: real_member.Exit) -> None:
        self.fleet.exits.append((self.name, effect))
        self.fleet.checks.exiting(self, effect)
        self.die()

    # -- what happens to it -------------------------------------------------------------------------------------------

    def die(self) -> None:
        """The whole node is gone, workers included."""
        if self.up:
            self.fleet.deaths[self.name, self.incarnation] = self.fleet.world.now
        self.up, self.workers = False, None
        if self.connection is not None:
            self.connection.close("node_end")
            self.connection = None

    def fail_worker(
        self, message: str, hung: bool = False, code: int = 1, cause: str = "", lasting: bool = False
    ) -> None:
        workers = self.workers
        if self.up and workers is not None and not workers.ended and not workers.failed:
            workers.failed = True
            if not lasting:
                self.fleet.failures.add(workers.id)
            rank, now = workers.place.first_rank, self.fleet.world.now
            failure = m.Failure(
                self.name, rank, 0, code, message=message, time=now, hung=hung, cause=cause, lasting=lasting
            )
            self.step(self.fleet.member.WorkerFailed(workers.round, failure))

    def lose_peer(self) -> None:
        """A worker fails because another one is gone; one that is about to end anyway says why it does."""
        if self.workers is not None and not self.workers.dying:
            self.fail_worker("a peer is gone")

    def crash_slowly(self, takes: float) -> None:
        """A worker fails by itself; its peers lose their connections to it before its process has ended."""
        workers, fleet = self.workers, self.fleet
        if not self.up or workers is None or workers.ended or workers.failed:
            return
        workers.dying = True
        fleet.own_failures[workers.id] = (self.name, self.incarnation, fleet.world.now)
        for node in fleet.nodes.values():
            if node is not self and node.workers is not None and node.workers.id == workers.id:
                fleet.world.at(fleet.world.latency(), node.lose_peer)

        def ends() -> None:
            if self.workers is workers:
                self.fail_worker("an error of its own")

        fleet.world.at(takes, ends)

    def hang(self) -> None:
        """One of its workers stops in the middle of a step; before the first step nobody could know."""
        if self.workers is not None and self.workers.steps and not self.workers.ended:
            self.workers.hung = True

    def made_step(self) -> None:
        workers = self.workers
        if workers is not None and not workers.ended and self.up:
            workers.steps += 1
            ranks = self.member.procs
            told = m.Progress(
                workers.steps, (workers.steps,) * ranks, (1 / STEP,) * ranks, (STEP,) * ranks, (0.0,) * ranks
            )
            self.step(self.fleet.member.Progressed(workers.round, told))

    def end_workers(self) -> None:
        workers = self.workers
        if not self.up or workers is None or workers.ended or workers.failed or workers.dying:
            return
        random, world = self.fleet.world.random, self.fleet.world

        def ended(last: bool) -> None:
            if self.up and self.workers is workers and not workers.failed and not workers.dying:
                workers.ended = last and not workers.endless
                if last:
                    self.fleet.ended.add((self.name, self.incarnation, workers.round))
                self.step(self.fleet.member.WorkerEnded(workers.round, workers.ended))
                if last and workers.endless:
                    self.step(self.fleet.member.Serving(workers.round))

        if workers.endless and self.member.procs == 1:
            return
        first, last = sorted((random.uniform(0, 0.5), random.uniform(0, 0.5))) if self.fleet.chaotic else (0.0, 0.01)
        world.at(first, lambda: ended(False))
        world.at(last, lambda: ended(True))


class Fleet:
    """All of it."""

    def __init__(self, seed: int, options: Options, chaotic: bool = False) -> None:
        self.world, self.options, self.chaotic = World(seed), options, chaotic
        self.warmth = Random(f"{seed} warm-up")  # of its own, so that other histories are as if there were none
        self.machine, self.member = options.machines
        self.backend = Backend()
        self.checks = Checks(self)
        self.coordinators: list[Coordinator] = []
        self.nodes: dict[str, Node] = {}
        self.exits: list[tuple[str, real_member.Exit]] = []
        self.failures: set[tuple[int, int]] = set()
        self.ended: set[tuple[str, str, int]] = set()  # (node, incarnation, round) whose workers all ended well
        self.deaths: dict[tuple[str, str], float] = {}  # (node, incarnation): when it was gone
        self.incarnations = self.ports = self.messages = 0
        self.progress = 0
        self.replaced: dict[str, float] = {}  # nodes that the cluster replaces when lost, with its patience
        self.charges = self.refunds = 0
        self.lines: list[str] = []
        self.rounds: list[float] = []  # when each round was opened
        self.reserved: set[tuple[str, int]] = set()  # (address, port)
        self.own_failures: dict[tuple[int, int], tuple[str, str, float]] = {}  # round -> who failed by itself, and when
        self.left: set[tuple[str, str, str]] = set()  # (coordinator, node, incarnation): it has said that it leaves
        self.stepped: dict[tuple[int, int], float] = {}  # round -> when it made its last step
        self.oddities = Random(f"{seed} oddities")
        self.crash_on_record = False
        self.stale_locators = 0.2 if chaotic else 0.0
        self.world.at(STEP, self.train)

    def drift(self) -> float:
        """How fast the clock of a new node runs."""
        return self.oddities.uniform(0.95, 1.05) if self.options.drift else 1.0

    def slowness(self) -> float:
        """How long a new node takes to start."""
        return self.oddities.choice([0.0, 0.0, 1.0, 4.0]) if self.options.slow_starts else 0.0

    # -- coordinators -------------------------------------------------------------------------------------------------

    def located(self) -> Coordinator | None:
        """Where the locator points: the newest."""
        return self.coordinators[-1] if self.coordinators else None

    def looked_up(self) -> Coordinator | None:
        """Where a node thinks that the locator points: now and then an old answer is still in some cache."""
        living = [coordinator for coordinator in self.coordinators if coordinator.alive]
        if self.stale_locators and len(living) > 1 and self.world.random.random() < self.stale_locators:
            return self.world.random.choice(living)
        return self.located()

    def start_coordinator(self) -> Coordinator:
        coordinator = Coordinator(self, f"c{len(self.coordinators) + 1}", fresh=not self.coordinators)
        self.coordinators.append(coordinator)
        return coordinator

    def start_node(self, name: str) -> None:
        if name not in self.nodes or not self.nodes[name].up:
            self.nodes[name] = Node(self, name)

    def sent(self, message: object) -> object:
        return m.encode(message) if self.options.wire else message

    def trace(self, coordinator: Coordinator, effect: object) -> None:
        if not isinstance(effect, events.Event):
            return
        if effect.kind == "round":
            self.rounds.append(self.world.now)
        if effect.kind == "failure" and "spent" in effect.data:  # without: its node is left out, and nothing charged
            if effect.data["failure"].get("cause") == "node-lost":
                self.failures.add((coordinator.machine.epoch, coordinator.machine.round))
            else:
                self.checks.charging(effect)
                self.checks.blaming(coordinator, effect)
            self.charges += 1
        if effect.kind == "refund":
            self.refunds += 1
            self.checks.refunding(coordinator, effect)
        if effect.kind == "stall":
            self.checks.stalling(coordinator, effect)
        self.lines.append(f"{self.world.now:8.3f}  {coordinator.name}  {effect.sentence}")

    # -- the model of training ----------------------------------------------------------------------------------------

    def train(self) -> None:
        """One step of every round whose ranks all run; the others may notice that a peer is missing."""
        self.world.good(0.0)
        self.checks.fencing()
        groups: dict[tuple[int, int], list[Node]] = {}
        for node in self.nodes.values():
            if node.up and node.workers is not None:
                groups.setdefault(node.workers.id, []).append(node)
        for nodes in groups.values():
            alive = [n for n in nodes if n.workers and not n.workers.failed and not n.workers.dying]
            running = [n for n in alive if n.name not in self.world.isolated]
            size = nodes[0].workers.place.nodes if nodes[0].workers else 0
            if len(running) == size and any(n.workers and n.workers.hung for n in running):
                continue
            names = [n.name for n in running]
            if len(running) == size and not any(pair <= set(names) for pair in self.world.peers):
                self.progress += 1
                self.stepped[nodes[0].workers.id if nodes[0].workers else (0, 0)] = self.world.now
                for node in running if self.options.reports else ():
                    node.made_step()
                if self.options.goal and self.progress >= self.options.goal:
                    for node in running:
                        node.end_workers()
            else:
                for node in nodes:
                    if node.workers is not None and node.workers.dying:
                        continue
                    if self.world.random.random() < self.options.consequence:
                        node.fail_worker("a peer is gone")
        self.world.at(STEP, self.train)
