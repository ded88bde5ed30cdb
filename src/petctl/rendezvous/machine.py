"""The coordinator's side of the rendezvous, as a pure machine.

    step(event, now)         takes in a fact and decides nothing
    settle(now) -> effects   decides, from all the facts there are; called as often as one likes
    deadline()               when to call settle again at the latest, should nothing happen

Deciding from facts, not from the order in which they came, is what makes it robust: a repeated, late or lost message
changes the facts or does not, and the next settle says the same thing again to whoever has not followed yet.

Phases: RECOVERING (a replacement learns which round runs) -> GATHERING (a round is prepared) -> RUNNING -> GATHERING
... -> CLOSING (the outcome is being recorded) -> CLOSED. DEPOSED: a newer coordinator exists; this one is silent.

What it keeps, whatever happens: a round is committed only when no connected node has workers of an older one; a deposed
coordinator opens none; after the first worker has ended well nothing planned interrupts the round; what is recorded
stays.

It must not know sockets, clocks, chance, or which cluster there is. Who is chosen, and why to wait, is in `decide.py`;
what a failure costs, in `budget.py`.
"""

from __future__ import annotations

from typing import Any, Collection, Dict, List, Optional, Set, Tuple

from petctl.rendezvous import messages as m
from petctl.rendezvous.budget import Budget
from petctl.rendezvous.decide import cheapest, choose, natural, places_for, ranks_for, wait_reason
from petctl.rendezvous.events import (
    LEFT,
    OVER,
    Config,
    Disconnected,
    End,
    Event,
    Expect,
    Late,
    Lost,
    Record,
    Recorded,
    Reported,
    Roster,
    Scale,
    Tell,
    Unexpect,
)
from petctl.rendezvous.messages import Failure, Header, Order, Outcome, Place, Report
from petctl.rendezvous.roll import Node, in_short, last_round, left_out, rows
from petctl.rendezvous.stall import StepWatch

RECOVERING, GATHERING, RUNNING, CLOSING, CLOSED, DEPOSED = (
    "recovering",
    "gathering",
    "running",
    "closing",
    "closed",
    "deposed",
)
UNDECIDED = (RECOVERING, GATHERING, RUNNING)  # the others only wait for facts


class Coordinator:
    """The rendezvous of one job. Public attributes are for reading.

    `epoch` comes from the backend by compare-and-set: higher than any before, and nobody else's. `fresh`: nobody
    coordinated this job before. `outcome`: its recorded end, if any.
    `memory`: what the backend remembers of the last coordinator, for a job none of whose nodes is left to tell.
    """

    def __init__(
        self,
        config: Config,
        now: float,
        leader: str,
        epoch: int = 1,
        fresh: bool = True,
        outcome: Optional[Outcome] = None,
        memory: Optional[Header] = None,
    ) -> None:
        self.config, self.leader, self.epoch = config, leader, epoch
        self.phase = RECOVERING
        self.round = 0
        self.ran = 0  # the newest round that was committed, by anybody
        self.seq = 0
        self.budget = Budget(config.restarts, config.silence, config.retry_on, config.retry_causes)
        self.steps = StepWatch(config.stall_after)
        self.wanted = config.wanted
        self.elastic = False  # workers of this job can wait, parked, for their place
        self.sentence = "waiting for the members of the last round to report"
        self.reason = ""
        self.planned = False
        self.nodes: Dict[str, Node] = {}
        self.places: Dict[str, Tuple[str, Place]] = {}  # committed members: name -> (incarnation, place)
        self.previous: Dict[str, Tuple[str, Place]] = {}  # the last round's members; survivors keep their ranks
        self.done: Set[str] = set()  # members whose workers all ended well; they may go
        self.serving: Set[str] = set()  # those that only serve the others by now: not waited for, but needed
        self.gone: Dict[str, str] = {}  # members lost from the running round, and why
        self.reserve = ""  # the node that is asked to reserve the port
        self.outcome = outcome
        self.ending: Optional[Outcome] = None
        self.expected: Set[str] = set()
        self.patience = 30.0
        self.expect_until = now
        self.asked = False  # the user scaled and the round for it has not started yet
        self.growth_since: Optional[float] = None
        self.enough_since: Optional[float] = None
        self.short_since = now
        self.lenient_until = now  # closed connections are forgiven until then: this loop itself was late
        self.recover_until = now + (config.recover_within or config.silence)
        self.settled = now
        self.committed = False  # has this coordinator started a round, or continued one?
        self.foreign_round = 0  # the newest round of another coordinator that anybody remembers
        self._best = Header()  # the newest header that any node remembered
        self.roster: Optional[Set[str]] = None  # the nodes that live, where the cluster knows that
        if memory is not None:
            self.foreign_round, self.ran, self.budget.spent = memory.round, memory.ran, memory.spent
        self._arrivals = 0
        self._effects: List[object] = []
        if outcome is not None:
            self.phase = CLOSED
        elif fresh:
            self._open("the job starts", False, now)

    # -- facts -------------------------------------------------------------------------------------------------------

    def step(self, event: object, now: float) -> None:
        """Takes in one fact."""
        getattr(self, "_on_" + type(event).__name__.lower())(event, now)

    def _on_reported(self, event: Reported, now: float) -> None:
        report = event.report
        node = self.nodes.get(report.node)
        if node is not None and node.report.incarnation != report.incarnation:
            if report.incarnation < node.report.incarnation:
                return  # the last words of an agent that has been started anew since
            self._lose(report.node, "its agent was started anew", now)
            node = None
        if node is None:
            node = self.nodes[report.node] = Node(report, now + self.config.silence)
            self._note("joined", f"node {report.node} joined", node=report.node, address=report.address)
            if report.node in self.expected:
                self.expected.discard(report.node)
                self.expect_until = now + self.patience
        elif report.number <= node.report.number:
            return
        node.report, node.connected = report, True
        node.deadline = max(node.deadline, now + self.config.silence)
        node.answer = node.answer or report.beat
        self._arrivals += 1
        if report.state == m.FAILED and not node.failed:
            node.failed = self._arrivals
        if report.progress is not None and self._here(report):
            self.steps.hear(report.node, self.places[report.node][1].first_rank, report.progress, now)
        if report.elastic and not self.elastic:
            self.elastic = True
            self.seq += 1
        self._learn(report.header)

    def _on_disconnected(self, event: Disconnected, now: float) -> None:
        node = self.nodes.get(event.node)
        if node is not None and node.report.incarnation == event.incarnation:
            node.connected = False
            node.deadline = max(now, self.lenient_until)

    def _on_expect(self, event: Expect, now: float) -> None:
        self.expected |= {name for name in event.nodes if name not in self.nodes}
        self.patience = event.patience
        self.expect_until = now + event.patience

    def _on_unexpect(self, event: Unexpect, now: float) -> None:
        self.expected -= set(event.nodes)

    def _on_roster(self, event: Roster, now: float) -> None:
        self.roster = set(event.nodes)

    def _on_scale(self, event: Scale, now: float) -> None:
        if event.wanted != self.wanted:
            self._note("scale", f"scale from {self.wanted} to {event.wanted} nodes", wanted=event.wanted)
        self.wanted, self.asked = event.wanted, True
        for name in event.release:
            self.expected.discard(name)
            if name in self.nodes:
                self.nodes[name].release = True
        self.seq += 1

    def _on_end(self, event: End, now: float) -> None:
        if self.ending is None:
            self.ending = event.outcome

    def _on_recorded(self, event: Recorded, now: float) -> None:
        if self.phase == CLOSING:
            self.phase, self.outcome = CLOSED, event.outcome or self.ending
            self.seq += 1

    def _on_late(self, event: Late, now: float) -> None:
        self.lenient_until = now + self.config.silence
        self.recover_until += event.seconds
        self.expect_until += event.seconds
        self.steps.late(event.seconds)
        for node in self.nodes.values():
            node.deadline += event.seconds

    def _learn(self, header: Header) -> None:
        """What a node remembers of earlier coordinators; the newest memory wins."""
        foreign = header.leader not in ("", self.leader)
        if foreign:
            self.foreign_round = max(self.foreign_round, header.round)
            self.ran = max(self.ran, header.ran)
            if header.age > self._best.age and not self.committed:
                self._best = header
                self.budget.spent, self.wanted = header.spent, header.wanted
        if foreign and header.epoch >= self.epoch and self.phase != DEPOSED:
            if self.phase != CLOSED:  # the end is on record: whoever tells it is right
                self.phase = DEPOSED
                self.sentence = f"a newer coordinator took over with epoch {header.epoch}"
                self._note("deposed", self.sentence)
            else:
                self.epoch = header.epoch + 1
                self.seq += 1

    # -- decisions ---------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> List[object]:
        """Decides, and says what is to be done."""
        self.settled = now
        if self.phase != DEPOSED:
            for name in [name for name, node in self.nodes.items() if node.deadline <= now]:
                silent = self.nodes[name].connected
                why = f"no word for {self.config.silence:g} s" if silent else "its connection closed"
                self._lose(name, why, now)
            self._decide(now)
            self._tell()
        effects, self._effects = self._effects, []
        return effects

    def _decide(self, now: float) -> None:
        """Goes from phase to phase until nothing more follows from the facts."""
        before = ""
        while self.phase in UNDECIDED and self.phase != before:  # a decision may make the next one due
            before = self.phase
            if self.ending is not None:
                self._end(self.ending)
            else:
                getattr(self, "_settle_" + self.phase)(now)

    def _settle_recovering(self, now: float) -> None:
        top, members = last_round(self.nodes)
        over = now >= self.recover_until or (self.roster is not None and self.roster <= set(self.nodes))
        if top is None:
            if over:
                self._open("no node remembers a round", False, now)
            return
        size = next(iter(members.values())).nodes
        reports = [n.report for n in self.nodes.values()]
        broken = any(r.header.round > top[1] or (r.state == m.PREPARED and r.round >= top[1]) for r in reports)
        if len(members) == size and not broken:
            self.round, self.committed = top[1], True
            self.places = {name: (self.nodes[name].report.incarnation, place) for name, place in members.items()}
            self.phase = RUNNING
            self.steps.begin()
            self.sentence = self._running_sentence()
            self.seq += 1
            self._note("continued", f"round {self.round} goes on under a new coordinator", round=self.round)
        elif over or (len(reports) >= size and broken):
            self.previous = {name: (self.nodes[name].report.incarnation, p) for name, p in members.items()}
            self._open(f"the coordinator was replaced and found {len(members)} of {size} members", False, now)
        else:
            self.sentence = f"recovering: {len(members)} of {size} members of round {top[1]} have reported"

    def _settle_gathering(self, now: float) -> None:
        if self.foreign_round >= self.round:
            self._open("a node remembers a newer round", False, now)
        config = self.config
        target = min(self.wanted, config.max_nodes)
        eligible, expected = self._candidates()
        ready = {name: r for name, r in eligible.items() if self._prepared(r)}
        busy = [n.report for n in self.nodes.values() if self._busy(n)]
        kept = self._kept_ranks(eligible)
        if eligible:
            self._ask_for_port(choose(eligible, kept)[0])
        if len(ready) < config.min_nodes:
            self.enough_since = None
            if config.join_timeout and now >= self.short_since + config.join_timeout:
                sentence = f"only {len(ready)} of at least {config.min_nodes} nodes joined in {config.join_timeout:g} s"
                words = [sentence, left_out(self.nodes), "raise join_timeout or lower the size"]
                self._end(Outcome(m.ENDED_FAILED, 124, "; ".join(filter(None, words))))
                return
        elif self.enough_since is None:
            self.enough_since = now
        if self.expected and now >= self.expect_until:
            names = ", ".join(sorted(self.expected, key=natural))
            self._note("overdue", f"not waiting any longer for {names}", nodes=sorted(self.expected))
            self.expected.clear()
        called = self.enough_since is None or now < self.enough_since + config.last_call
        why = wait_reason(eligible, ready, busy, config.min_nodes, target, expected, called)
        if why:
            self.sentence = "; ".join(filter(None, [f"waiting: {why}", left_out(self.nodes)]))
            return
        members = ranks_for(choose(ready, kept)[:target], kept)
        self._ask_for_port(members[0])
        port = ready[members[0]].port
        if not port:
            self.sentence = f"waiting: node {members[0]} reserves a port"
            return
        silent = [name for name in members if config.offers and not ready[name].port]
        if silent:
            self.sentence = f"waiting: node {silent[0]} reserves its ports"
            return
        self._commit({name: ready[name] for name in members}, port)

    def _candidates(self) -> Tuple[Dict[str, Report], Set[str]]:
        """Nodes that may take part in the next round, and those that are only expected to come."""
        eligible = {name: n.report for name, n in self.nodes.items() if n.eligible}
        survivors = self._kept_ranks(eligible)
        near = {name: report for name, report in eligible.items() if name in survivors or not report.warming}
        enough = sum(self._prepared(report) for report in near.values()) >= self.config.min_nodes
        if self.config.eager and self.ran and enough:
            return near, set()  # the others cost a cheap round later, which is less than waiting for them now
        return eligible, self.expected

    def _settle_running(self, now: float) -> None:
        for node in self.nodes.values():
            self._note_ends(node.report)
        if len(self.done | self.serving) == len(self.places):
            self._end(Outcome(m.SUCCEEDED, 0, "all workers ended well"))
            return
        unplanned = self._broken_by(now)
        if unplanned:
            self._open(unplanned, False, now)
        elif self.budget.verdict is None and not self._ended():
            planned = self._changed_by(now)
            if planned:
                self._open(planned, True, now)
            else:
                self._watch_steps(now)

    def _broken_by(self, now: float) -> str:
        """Why the running round cannot go on, or an empty string."""
        lost = [name for name in self.gone if name not in self.done]
        if lost:
            return "; ".join(f"node {name} was lost: {self.gone[name]}" for name in sorted(lost, key=natural))
        here = [n for name, n in self.nodes.items() if name in self.places and self._here(n.report)]
        for node in here:
            if node.report.state in (m.FENCED, m.IDLE) and node.report.node not in self.done:
                if node.goes:
                    return f"node {node.report.node} leaves"
                return f"node {node.report.node} had lost the coordinator and stopped its workers"
        failed = [n for n in here if n.report.state == m.FAILED and n.report.failure is not None]
        if not failed:
            return ""
        failure = min(failed, key=lambda n: n.failed).report.failure
        assert failure is not None
        return self._charge(failure, now)

    def _charge(self, failure: Failure, now: float) -> str:
        """Why this failure ends the round; an empty string where it is not restarted from: it may end the job."""
        members = [(name, incarnation) for name, (incarnation, _) in self.places.items()]
        if self.budget.charge(failure, members, now):
            sentence = f"{failure.sentence()} ({self.budget.sentence()})"
            self._note("failure", sentence, failure=m.encode(failure), spent=self.budget.spent)
            return sentence
        here = [n.report for name, n in self.nodes.items() if name in self.places and name not in self.done]
        answers = [report.probe for report in here]
        if self.budget.condemn(failure, answers):
            self.seq += 1
        outcome = self.budget.outcome(answers)
        if outcome is None:
            return ""
        without = self._without(here) if self.budget.hopeless(failure) else ""
        if not without:
            self._end(outcome)
        return without

    def _without(self, members: List[Report]) -> str:
        """Leaves out those that cannot do their part, and says so; an empty string: too few others are there."""
        unfit = {r.node: r.failure for r in members if r.failure is not None and self.budget.hopeless(r.failure)}
        others = {name for name, node in self.nodes.items() if not (node.goes or node.unfit or name in unfit)}
        if not unfit or len(others | self.expected) < self.config.min_nodes:
            return ""
        for name, failure in unfit.items():
            self.nodes[name].unfit = failure.sentence()
            self._note("failure", failure.sentence(), failure=m.encode(failure))
        return in_short([failure.sentence() for failure in unfit.values()])

    def _changed_by(self, now: float) -> str:
        """Why a healthy round should give way to another, or an empty string."""
        target = min(self.wanted, self.config.max_nodes)
        if len(self.places) > target:
            return f"scaled to {target} node(s)"
        leaving = [name for name in self.places if name in self.nodes and self.nodes[name].goes]
        if leaving:
            return "; ".join(f"node {name} leaves" for name in sorted(leaving, key=natural))
        spare = [n for name, n in self.nodes.items() if name not in self.places and n.eligible]
        coming = bool(self.expected)
        if self.config.eager:
            coming = coming or any(self._warms_up(n.report) for n in spare)
            spare = [n for n in spare if not self._warms_up(n.report)]
        room = target - len(self.places)
        if not spare or room <= 0:
            self.growth_since = None
            return ""
        if self.growth_since is None:
            self.growth_since = now
        if self.asked and coming and now < self.expect_until:
            return ""
        if self.asked or len(spare) >= room or now >= self.growth_since + self.config.resize_interval:
            return f"{min(len(spare), room)} more node(s) joined"
        return ""

    def _watch_steps(self, now: float) -> None:
        """A round that stands still is told so: the node of the rank that is furthest behind then reports a failure."""
        before = self.steps.stall
        for kind, sentence, data in self.steps.look(now):
            self._note(kind, sentence, **data)
        if self.steps.stall != before:
            self.seq += 1

    # -- changes of phase --------------------------------------------------------------------------------------------

    def _open(self, reason: str, planned: bool, now: float) -> None:
        self.previous = self.places or self.previous
        self.round = max([self.round, self.foreign_round, *(n.report.round for n in self.nodes.values())]) + 1
        self.phase, self.reason, self.planned = GATHERING, reason, planned
        self.places, self.done, self.serving, self.gone = {}, set(), set(), {}
        self.budget.pardon()
        self.reserve = ""
        self.growth_since = self.enough_since = None
        self.short_since = now
        self.seq += 1
        self._note("round", f"round {self.round}: {reason}", round=self.round, reason=reason, planned=planned)

    def _commit(self, members: Dict[str, Report], port: int) -> None:
        places = places_for(list(members.values()), port, self.config.offers, self.config.tasks)
        self.places = {name: (members[name].incarnation, places[name]) for name in members}
        self.phase, self.asked, self.committed = RUNNING, False, True
        self.ran = self.round
        self.steps.begin()
        for node in self.nodes.values():
            node.failed = 0
        self.seq += 1
        world = next(iter(places.values())).world_size
        self.sentence = self._running_sentence()
        self._note(
            "running",
            f"round {self.round} runs on {len(places)} node(s) with {world} worker(s)",
            round=self.round,
            epoch=self.epoch,
            nodes=list(members),
            world_size=world,
            spent=self.budget.spent,
        )

    def _end(self, outcome: Outcome) -> None:
        self.ending, self.phase, self.sentence = outcome, CLOSING, outcome.sentence
        self.seq += 1
        self._note("closing", f"{outcome.state}: {outcome.sentence}", outcome=m.encode(outcome))
        self._effects.append(Record(outcome))

    def _lose(self, name: str, why: str, now: float) -> None:
        node = self.nodes.pop(name)
        member = (name, node.report.incarnation)
        if node.goes or self.phase == CLOSED:
            why = LEFT if self.phase != CLOSED else OVER
        self._effects.append(Lost(name, node.report.incarnation, why))
        self._note("lost", f"node {name} is gone: {why}", node=name, why=why)
        if self.places.get(name, ("", None))[0] == node.report.incarnation:
            self._note_ends(node.report)
            self.gone[name] = why
        elif node.unfit and self.phase == RUNNING:
            self.sentence = self._running_sentence()
        if self.phase not in (CLOSING, CLOSED) and self.budget.refund(member, now):
            self.seq += 1
            self._note("refund", f"the last failure is not counted: node {name} was lost", spent=self.budget.spent)

    # -- small questions ---------------------------------------------------------------------------------------------

    def _prepared(self, report: Report) -> bool:
        return report.state == m.PREPARED and (report.epoch, report.round) == (self.epoch, self.round)

    def _busy(self, node: Node) -> bool:
        """May it still have workers of an older round, or start some on an order that is on its way?"""
        report = node.report
        if not node.connected or self._prepared(report):
            return False
        return report.state in (m.RUNNING, m.STOPPING, m.FAILED) or node.ran > report.place_round

    def _warms_up(self, report: Report) -> bool:
        """Are its workers not ready yet? Where they can be started early, it has to hear of that first."""
        return report.warming or (self.elastic and report.header.leader != self.leader)

    def _here(self, report: Report) -> bool:
        """Does it speak of the round that runs?"""
        known = self.places.get(report.node)
        return known is not None and known[0] == report.incarnation and report.round == self.round

    def _note_ends(self, report: Report) -> None:
        """What a member says of its workers' good end stays true when it is gone."""
        if report.state == m.DONE and self._here(report):
            self.done.add(report.node)
        if report.serving and self._here(report):
            self.serving.add(report.node)

    def _kept_ranks(self, eligible: Dict[str, Report]) -> Dict[str, int]:
        """The ranks of those who take part in the round that runs, or survived the last one."""
        return {
            name: place.rank
            for name, (incarnation, place) in (self.places or self.previous).items()
            if name in eligible and eligible[name].incarnation == incarnation
        }

    def _ended(self) -> bool:
        return bool(self.done) or any(n.report.ended and self._here(n.report) for n in self.nodes.values())

    def _running_sentence(self) -> str:
        world = next(place.world_size for _, place in self.places.values())
        running = f"running on {len(self.places)} node(s), {world} worker(s)"
        return "; ".join(filter(None, [running, left_out(self.nodes)]))

    def _ask_for_port(self, name: str) -> None:
        if name and name != self.reserve:
            self.reserve = name
            self.nodes[name].told = -1

    def cheapest(self, nodes: Collection[str]) -> List[str]:
        """These nodes, first the one that the job can spare best."""
        staying = {name: node.report for name, node in self.nodes.items() if node.eligible}
        return cheapest(nodes, staying, self._kept_ranks(staying), self.steps.slow_nodes())

    # -- speaking ----------------------------------------------------------------------------------------------------

    def header(self) -> Header:
        """What nodes are to remember: never less than they knew, since it replaces what they knew."""
        newest = max(self.round, self.foreign_round)
        return Header(self.epoch, self.leader, self.seq, newest, self.ran, self.budget.spent, self.wanted)

    def order_for(self, name: str, header: Header) -> Order:
        """What is wanted of a node now: the same answer however often it is asked."""
        node = self.nodes[name]
        if self.phase == CLOSED and self.outcome is not None:
            return Order(header, m.CLOSE, outcome=self.outcome, sentence=self.outcome.sentence)
        if node.release:
            return Order(header, m.RELEASE, sentence=self.sentence)
        if self.phase == GATHERING:
            reserve = self.config.offers or name == self.reserve
            return Order(header, m.PREPARE, self.round, reserve, self.planned, sentence=self.reason)
        if self.phase == RUNNING and name in self.places and self.places[name][0] == node.report.incarnation:
            place, probe = self.places[name][1], self.budget.probe
            return Order(header, m.RUN, self.round, place=place, probe=probe, stall=self.steps.stall)
        kind = m.STANDBY if self.phase == RUNNING else m.WAIT
        early = kind == m.STANDBY and self.elastic and self.config.eager
        return Order(header, kind, probe=self.budget.probe, sentence=self.sentence, early=early)

    def _tell(self) -> None:
        header = self.header()
        for name, node in self.nodes.items():
            if node.connected and (node.answer or node.told != self.seq):
                node.answer, node.told = False, self.seq
                order = self.order_for(name, header)
                node.ran = self.round if order.kind == m.RUN else node.ran
                self._effects.append(Tell(name, node.report.incarnation, order))

    def _note(self, kind: str, sentence: str, **data: Any) -> None:
        self._effects.append(Event(kind, sentence, data))

    def deadline(self) -> Optional[float]:
        """When settle is due at the latest, should nothing happen."""
        if self.phase == DEPOSED:
            return None
        times = [node.deadline for node in self.nodes.values()]
        if self.phase == RECOVERING:
            times.append(self.recover_until)
        if self.phase == GATHERING:
            if self.expected:
                times.append(self.expect_until)
            if self.enough_since is not None and self.config.last_call:
                times.append(self.enough_since + self.config.last_call)
            if self.config.join_timeout and self.enough_since is None:
                times.append(self.short_since + self.config.join_timeout)
        if self.phase == RUNNING and self.growth_since is not None:
            times.append(self.growth_since + self.config.resize_interval)
            if self.asked:
                times.append(self.expect_until)
        stalled = self.steps.deadline() if self.phase == RUNNING else None
        if stalled is not None:
            times.append(stalled)
        return min((time for time in times if time > self.settled), default=None)

    def status(self) -> Dict[str, Any]:
        """The newest facts, as plain JSON types, for `status`, the events and the dashboard."""
        return {
            "phase": self.phase,
            "sentence": self.sentence,
            "epoch": self.epoch,
            "round": self.round,
            "spent": self.budget.spent,
            "wanted": self.wanted,
            "reason": self.reason,
            "world_size": next((place.world_size for _, place in self.places.values()), 0),
            "progress": self.steps.status(),
            "nodes": rows(self.nodes, self.places, self.phase == RUNNING),
            "outcome": m.encode(self.outcome) if self.outcome is not None else None,
        }
