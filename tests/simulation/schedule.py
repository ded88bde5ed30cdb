"""Random histories from a seed: 3 to 16 nodes, 200 faults of every kind, then calm, in which the job must end.

python -m tests.simulation.schedule 42            replays seed 42 and prints its history
python -m tests.simulation.schedule --count 1000  runs seeds 0..999
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from random import Random
from types import ModuleType

from petctl.rendezvous.core import machine as real_machine
from petctl.rendezvous.core import member as real_member
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, Expect, Roster, Scale
from petctl.rendezvous.core.transitions import GATHERING, RECOVERING, RUNNING
from tests.simulation.fleet import Fleet, Node, Options
from tests.simulation.invariants import Violation

FAULTS = 200
SETTLED = 25.0  # virtual seconds after the last fault by which nothing moves any more ...
QUIET = 20.0  # ... for so long, until the workers may end
CALM = 120.0  # and by then the job must have ended
CODES = (1, 7, 7, 7, 9)  # of the programs' own failures; 1 is also what a program exits with that misses its peers
CAUSES = ("", "network", "no-space")  # as their agents name them
FATAL = 9
UNAWARE = (RECOVERING, GATHERING, RUNNING)  # phases of a coordinator that has not heard of the end


def options_for(random: Random, machines: tuple[ModuleType, ModuleType]) -> Options:
    """The job of a history."""
    nodes = random.randint(3, 16)
    least = random.choice([1, 2, max(1, nodes // 2), nodes])
    config = Config(
        min_nodes=least,
        max_nodes=nodes,
        wanted=random.randint(least, nodes),
        restarts=random.choice([0, 1, 3, 1000, 1000, 1000]),
        silence=2.0,
        join_timeout=0,
        last_call=random.choice([0.0, 0.0, 0.3]),
        resize_interval=random.choice([0.0, 1.0, 5.0]),
    )
    return Options(
        config,
        nodes=nodes,
        grace=random.choice([0.2, 2.0]),
        fence_after=random.choice([3.0, 8.0]),
        memory=random.random() < 0.4,
        consequence=random.choice([0.0, 0.5, 1.0]),
        goal=random.choice([0, 0, 0, 30]),
        machines=machines,
    )


def warmed(options: Options, random: Random) -> Options:
    """In some histories restarts are cheap, and nodes are warm only after a while."""
    if random.random() < 0.3:
        options.config = dataclasses.replace(options.config, eager=True)
        options.warm_up = random.choice([0.0, 1.0, 4.0])
        options.elastic = random.random() < 0.5
    return options


def reporting(options: Options, random: Random) -> Options:
    """In some histories workers report their steps, and now and then one hangs."""
    options.reports = random.random() < 0.3
    if options.reports:
        options.config = dataclasses.replace(options.config, stall_after=random.choice([1.0, 8.0]))
    return options


def choosy(options: Options, random: Random) -> Options:
    """In some histories only some exit codes are restarted from."""
    if random.random() < 0.3:
        ranges = random.choice([((1, 8),), ((1, 1), (7, 7)), ((7, 8),)])
        options.config = dataclasses.replace(options.config, retry_on=ranges)
    return options


def knowing(options: Options, random: Random) -> Options:
    """... and beside them some known causes."""
    if options.config.retry_on and random.random() < 0.5:
        options.config = dataclasses.replace(options.config, retry_causes=("network",))
    return options


def acquainted(options: Options, random: Random) -> Options:
    """In some histories all members have to know each other."""
    options.config = dataclasses.replace(options.config, offers=random.random() < 0.25)
    return options


def serving(options: Options, random: Random) -> Options:
    """In some histories every node has a parameter server, which never ends, and only some nodes have workers too."""
    if random.random() < 0.25:
        options.config = dataclasses.replace(options.config, tasks=(0, random.randint(1, options.config.min_nodes)))
    return options


def lacking(options: Options, random: Random) -> Options:
    """In some histories some nodes can start no worker; one more may fall silent, and still enough are left."""
    spare = options.nodes - options.config.min_nodes - 1
    if spare > 0 and random.random() < 0.25:
        options.unfit = set(map(str, random.sample(range(options.nodes), random.randint(1, spare))))
    return options


def odd(options: Options, random: Random) -> Options:
    """In some histories clocks drift, nodes start slowly, and odd things happen beside the usual ones."""
    options.odd = random.choice([0.0, 0.0, 0.2, 0.5])
    options.drift = bool(options.odd) and random.random() < 0.5
    options.slow_starts = bool(options.odd) and random.random() < 0.5
    options.gentle = bool(options.odd) and random.random() < 0.5
    return options


def deadly(options: Options, random: Random) -> Options:
    """In some histories with few restarts the program of one rank takes its node down from some moment on."""
    few = options.config.restarts <= 3 and not options.config.retry_on and not options.unfit
    if few and random.random() < 0.25:
        options.takes_down = random.randrange(options.config.min_nodes)
    return options


class Schedule:
    """One history."""

    def __init__(self, seed: int, machines: tuple[ModuleType, ModuleType] = (real_machine, real_member)) -> None:
        self.random = Random(seed)
        self.options = warmed(options_for(self.random, machines), Random(f"{seed} warm"))
        self.hangs = Random(f"{seed} steps")
        self.options = reporting(self.options, self.hangs)
        self.codes = Random(f"{seed} codes")
        self.options = choosy(self.options, self.codes)
        self.causes = Random(f"{seed} causes")
        self.options = knowing(self.options, self.causes)
        self.options = acquainted(self.options, Random(f"{seed} offers"))
        self.options = serving(self.options, Random(f"{seed} roles"))
        self.options = lacking(self.options, Random(f"{seed} unfit"))
        self.oddities = Random(f"{seed} odd")
        self.options = odd(self.options, self.oddities)
        self.options = deadly(self.options, Random(f"{seed} deadly"))
        self.options.wire = seed % 8 == 0
        self.fleet = Fleet(seed, self.options, chaotic=True)
        self.world = self.fleet.world
        self.world.delay = (0.001, 0.01)
        self.calm = 0.0
        self.excluded: set[str] = set()  # nodes that stay cut off for good
        self.doomed = False  # there was a failure that is not to be retried, and that nobody's loss explains

    def run(self) -> None:
        """Raises Violation when a rule is broken."""
        self.fleet.start_coordinator()
        for number in range(self.options.nodes):
            self.fleet.start_node(str(number))
        for _ in range(FAULTS):
            self.world.run_until(self.world.now + self.random.expovariate(1 / 0.2))
            getattr(self, self.random.choice(KINDS))()
            if self.options.reports and self.hangs.random() < 0.05:
                self.fleet.nodes[self.hangs.choice(list(self.fleet.nodes))].hang()
            if self.oddities.random() < self.options.odd:
                getattr(self, self.oddities.choice(ODD_KINDS))()
            self.fleet.checks.recorded()
        self.heal()
        self.must_end()

    # -- faults --------------------------------------------------------------------------------------------------------

    def pick(self) -> str:
        return self.random.choice(list(self.fleet.nodes))

    def crash_node(self) -> None:
        self.fleet.nodes[self.pick()].die()

    def restart_node(self) -> None:
        name = self.pick()
        self.fleet.start_node(name)
        self.expect(name)

    def expect(self, name: str) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and self.random.random() < 0.5:
            coordinator.step(Expect((name,), self.random.choice([0.3, 2.0])))

    def fail_worker(self) -> None:
        code, cause = self.codes.choice(CODES), self.causes.choice(CAUSES)
        self.fleet.nodes[self.pick()].fail_worker("an error of its own", code=code, cause=cause)

    def preempt(self) -> None:
        node = self.fleet.nodes[self.pick()]
        if node.up:
            node.step(self.fleet.member.Terminate("preempted"))

    def slow_node(self) -> None:
        self.fleet.nodes[self.pick()].slow = self.random.choice([1.0, 4.0])

    def isolate(self) -> None:
        self.world.isolated.add(self.pick())

    def cut(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None:
            self.world.cuts.add((self.pick(), coordinator.name))

    def roll_call(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and coordinator.alive:
            living = tuple(name for name, node in self.fleet.nodes.items() if node.up)
            coordinator.step(Roster(living))

    def heal_one(self) -> None:
        if self.world.isolated:
            self.world.isolated.discard(self.random.choice(sorted(self.world.isolated)))
        if self.world.cuts:
            self.world.cuts.discard(self.random.choice(sorted(self.world.cuts)))

    def bad_network(self) -> None:
        if self.options.gentle:
            return
        self.world.delay = self.random.choice([(0.001, 0.01), (0.001, 0.5), (0.2, 1.0)])
        self.world.loss = self.random.choice([0.0, 0.0, 0.1, 0.3])

    def crash_coordinator(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and coordinator.alive:
            coordinator.crash()

    def crash_coordinator_while_telling(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None:
            coordinator.crash_after_tells = self.random.randrange(2 * self.options.nodes)

    def replace_coordinator(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is None or not coordinator.alive:
            self.fleet.start_coordinator()

    def second_coordinator(self) -> None:
        if len(self.fleet.coordinators) < 40:
            self.fleet.start_coordinator()

    def starve_coordinator(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and coordinator.alive:
            coordinator.pause(self.random.choice([0.5, 3.0]))

    def scale(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and coordinator.alive:
            wanted = self.random.randint(self.options.config.min_nodes, self.options.config.max_nodes)
            coordinator.step(Scale(wanted))

    def release(self) -> None:
        coordinator = self.fleet.located()
        if coordinator is not None and coordinator.alive:
            wanted = coordinator.machine.wanted
            coordinator.step(Scale(wanted, release=(self.pick(),)))

    # -- odd faults ----------------------------------------------------------------------------------------------------

    def some(self) -> Node:
        return self.fleet.nodes[self.oddities.choice(list(self.fleet.nodes))]

    def cut_one_way(self) -> None:
        coordinator, node = self.fleet.located(), self.some()
        if coordinator is not None:
            ends = (node.name, coordinator.name)
            self.world.one_way.add(self.oddities.choice([ends, ends[::-1]]))

    def part_peers(self) -> None:
        pair = frozenset((self.some().name, self.some().name))
        if len(pair) == 2:
            self.world.peers.add(pair)

    def heal_odd(self) -> None:
        for cuts in (self.world.one_way, self.world.peers):
            if cuts:
                cuts.discard(self.oddities.choice(sorted(cuts, key=sorted)))

    def repeat_messages(self) -> None:
        self.world.duplicates = self.oddities.choice([0.0, 0.1, 0.5])

    def freeze_agent(self) -> None:
        self.some().freeze(self.oddities.choice([0.5, 3.0, 6.0]))

    def stick_workers(self) -> None:
        node = self.some()
        if self.oddities.random() < 0.2 and node.live is not None:
            node.sticks = True

    def crash_slowly(self) -> None:
        self.some().crash_slowly(self.oddities.uniform(0.0, 0.5))

    def fail_then_leave(self) -> None:
        """A worker fails, and a moment later a node of its round is asked to go."""
        first, second = self.some(), self.some()
        first.fail_worker("an error of its own")
        self.world.at(self.oddities.uniform(0.0, 0.3), lambda: second.step(self.fleet.member.Terminate("preempted")))

    # -- the end -------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Faults stop: the network is good, one coordinator lives, every node that died is started again."""
        world, fleet = self.world, self.fleet
        fleet.stale_locators = 0.0
        world.isolated.clear()
        world.cuts.clear()
        world.delay, world.loss = (0.001, 0.01), 0.0
        world.one_way.clear()
        world.peers.clear()
        world.duplicates = 0.0
        for node in fleet.nodes.values():
            if node.sticks:
                node.die()  # its machine is started again
        newest = fleet.located()
        for coordinator in fleet.coordinators:
            coordinator.crash_after_tells = None
            if coordinator.alive and coordinator is not newest:
                coordinator.crash()
        if newest is None or not newest.alive:
            fleet.start_coordinator()
        if self.random.random() < 0.5 and self.options.config.min_nodes < self.options.nodes:
            world.at(10.0, self.exclude)
        world.at(5.0, self.reboot)
        if self.options.reports:
            world.at(13.0, self.stand_still)
        if self.options.config.retry_on and self.codes.random() < 0.7:
            world.at(SETTLED + 5.0, self.doom)
        if self.options.takes_down is not None:
            world.at(SETTLED, self.take_down)
        for name in sorted(fleet.nodes):
            fleet.nodes[name].slow = 1.0
        fleet.options.goal = 0
        fleet.crash_on_record = self.random.random() < 0.5
        self.calm = world.now
        self.keep()

    def exclude(self) -> None:
        """One last node falls silent for good."""
        self.excluded = {self.pick()}
        self.world.isolated |= self.excluded

    def reboot(self) -> None:
        """One last node is started anew before anybody could notice that it was gone."""
        name = self.pick()
        self.world.isolated.add(name)
        self.fleet.nodes[name].die()
        self.world.at(0.5, lambda: self.world.isolated.discard(name))
        self.world.at(0.5, lambda: self.fleet.start_node(name))

    def stand_still(self) -> None:
        """One last round stops making steps, and nobody dies of it."""
        for name in sorted(set(self.fleet.nodes) - self.excluded):
            self.fleet.nodes[name].hang()

    def doom(self) -> None:
        """One last failure, of a kind that is not restarted from."""
        coordinator = self.fleet.located()
        if self.fleet.backend.outcome is None and coordinator is not None and coordinator.machine.phase == RUNNING:
            self.doomed = True
            self.fleet.options.consequence = 0.0  # the word of a peer that fails too could be quicker
            self.fleet.nodes[min(coordinator.machine.places)].fail_worker("an error to end with", code=FATAL)

    def take_down(self) -> None:
        """One rank's program takes its node down, in this round and all that follow."""
        coordinator = self.fleet.located()
        if self.fleet.backend.outcome is None and coordinator is not None and coordinator.machine.phase == RUNNING:
            self.options.deadly = self.options.takes_down
            self.options.consequence = 0.0  # peers that fail too, by mistake, would use up the restarts
            ranks = {place.rank: name for name, (_, place) in coordinator.machine.places.items()}
            self.fleet.nodes[ranks[self.options.takes_down or 0]].die()

    def keep(self) -> None:
        """What a cluster does in calm: one living coordinator, and every node that is wanted."""
        fleet, coordinator = self.fleet, self.fleet.located()
        if coordinator is None or not coordinator.alive:
            fleet.start_coordinator()
        elif coordinator.name in fleet.checks.started_before and coordinator.machine.phase in UNAWARE:
            # An older coordinator has recorded the end while this one was taking over: the cluster tears it down.
            coordinator.crash()
        if fleet.backend.outcome is None:
            for name in sorted(set(fleet.nodes) - self.excluded - self.world.isolated):
                fleet.start_node(name)

    def must_end(self) -> None:
        fleet, config = self.fleet, self.options.config
        while self.world.now < self.calm + CALM:
            self.keep()
            self.world.run_until(self.world.now + 1.0)
            fleet.checks.recorded()
            going_down = self.options.deadly is not None
            if fleet.backend.outcome is None and self.world.now > self.calm + SETTLED and not going_down:
                fleet.checks.settled(self.excluded, since=self.calm + SETTLED)
                if self.world.now > self.calm + SETTLED + QUIET:
                    fleet.options.goal = 1
            if fleet.backend.outcome is not None and not any(n.up for n in fleet.nodes.values()):
                break
        outcome = fleet.backend.outcome
        if outcome is None:
            located = fleet.located()
            why = located.machine.sentence if located is not None else "no coordinator"
            raise Violation(f"no progress in {CALM:.0f} s of calm: {why}")
        fell = outcome.failure is not None and outcome.failure.cause == "node-lost"
        if self.options.deadly is not None and not fell:
            raise Violation(
                f"{outcome.state}: {outcome.sentence}, though rank {self.options.deadly} took its node down"
            )
        retried = outcome.failure is None or fleet.checks.retried(outcome.failure)
        if self.doomed and (outcome.state, outcome.code) != (m.ENDED_FAILED, FATAL):
            raise Violation(f"{outcome.state}: {outcome.sentence}, after a failure that is not to be retried")
        if outcome.state == m.ENDED_FAILED and retried and len(fleet.failures) + fell <= config.restarts:
            raise Violation(f"failed with {len(fleet.failures)} failed rounds of {config.restarts} allowed")
        for _ in range(15):
            self.keep()
            self.world.run_until(self.world.now + 1.0)
        up = [name for name, node in fleet.nodes.items() if node.up and name not in self.excluded]
        if up:
            raise Violation(f"nodes {up} are still up after the end")


ODD_KINDS = [
    "cut_one_way",
    "part_peers",
    "heal_odd",
    "heal_odd",
    "repeat_messages",
    "freeze_agent",
    "stick_workers",
    "crash_slowly",
    "crash_slowly",
    "fail_then_leave",
]
KINDS = [
    "crash_node",
    "restart_node",
    "restart_node",
    "restart_node",
    "fail_worker",
    "preempt",
    "slow_node",
    "isolate",
    "cut",
    "heal_one",
    "heal_one",
    "heal_one",
    "bad_network",
    "crash_coordinator",
    "crash_coordinator_while_telling",
    "replace_coordinator",
    "replace_coordinator",
    "replace_coordinator",
    "second_coordinator",
    "starve_coordinator",
    "scale",
    "release",
    "roll_call",
]


def main() -> int:
    """Replays one seed, or runs many."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", type=int, nargs="?")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else range(args.start, args.start + args.count)
    broken = 0
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Violation as violation:
            broken += 1
            print(f"seed {seed}: {violation}", flush=True)
        if args.seed is not None:
            print("\n".join(schedule.fleet.lines))
        elif seed and seed % 1000 == 0:
            print(f"{seed} histories, {broken} broken", file=sys.stderr, flush=True)
    print(f"{len(seeds)} histories, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
