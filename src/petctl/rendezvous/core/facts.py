"""What the coordinator knows: takes in the facts and answers small questions about them. It decides nothing.

`machine.py` decides from these facts. Pure: no sockets, no clock, no chance.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import Any, Collection, Dict, List, Optional, Set, Tuple

from petctl.rendezvous.core import heartbeat
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.budget import Budget, Falls
from petctl.rendezvous.core.deadlines import Deadlines
from petctl.rendezvous.core.decide import cheapest
from petctl.rendezvous.core.events import (
    Config,
    Disconnected,
    End,
    Event,
    Expect,
    Late,
    Lost,
    Recorded,
    Reported,
    Roster,
    Scale,
    Tell,
    Unexpect,
)
from petctl.rendezvous.core.messages import LEFT, OVER, Header, Order, Outcome, Place, Report
from petctl.rendezvous.core.roll import Node, left_out
from petctl.rendezvous.core.stall import StepWatch
from petctl.rendezvous.core.transitions import CLOSED, CLOSING, DEPOSED, RUNNING, Transitions
from petctl.text import counted

_NO_NEWS = ("number", "beat", "progress")  # what heartbeats change all the time, and nothing but `steps` depends on
_news_of = attrgetter(*(field.name for field in dataclasses.fields(Report) if field.name not in _NO_NEWS))


class Facts(Transitions):
    """Everything that one coordinator knows of its job. Public attributes are for reading."""

    def __init__(
        self,
        config: Config,
        now: float,
        leader: str,
        epoch: int = 1,
        memory: Optional[Header] = None,
    ) -> None:
        super().__init__()
        self.config, self.leader, self.epoch = config, leader, epoch
        self.round = 0
        self.ran = 0  # the newest round that was committed, by anybody
        self.running: Tuple[int, int] = (0, 0)  # (epoch, round) that the members of `places` run
        self.seq = 0
        self.budget = Budget(config.restarts, config.silence, config.retry_on, config.retry_causes)
        self._want(config.wanted)
        self.falls = Falls()
        self.began = now  # when the running round was committed, or taken over
        self.steps = StepWatch(config.stall_after)
        self.elastic = False  # workers of this job can wait, parked, for their place
        self.sentence = "waiting for nodes of the last round to report"
        self.reason = ""
        self.planned = False
        self.nodes: Dict[str, Node] = {}
        self.places: Dict[str, Tuple[str, Place]] = {}  # committed members: name -> (incarnation, place)
        self.previous: Dict[str, Tuple[str, Place]] = {}  # the last round's members; survivors keep their ranks
        self.done: Set[str] = set()  # members whose workers all ended well; they may go
        self.serving: Set[str] = set()  # those that only serve the others by now: not waited for, but needed
        self.gone: Dict[str, str] = {}  # members lost from the running round, and why
        self.held_since: Optional[float] = None  # a failure is known, and may be the consequence of another
        self.reserve = ""  # the node that is asked to reserve the port
        self.outcome: Optional[Outcome] = None
        self.ending: Optional[Outcome] = None
        self.expected: Set[str] = set()
        self.released: Dict[str, str] = {}  # given up by the cluster: name -> incarnation; empty: the next that joins
        self.patience = 30.0
        self.expect_until = now
        self.once_enough = 0.0  # seconds to wait for expected nodes when there are enough without them; 0: as long
        self.came = now  # when an expected node has come last, or was announced
        self.asked = False  # the user scaled and the round for it has not started yet
        self.growth_since: Optional[float] = None
        self.enough_since: Optional[float] = None
        self.short_since: Optional[float] = now  # since when there are too few nodes for a round
        self.lenient_until = now  # closed connections are forgiven until then: this loop itself was late
        self.recover_until = now + (config.recover_within or config.silence) + self.silence - config.silence
        self.settled = now
        self.committed = False  # has this coordinator started a round, or continued one?
        self.foreign_round = 0  # the newest round of another coordinator that anybody remembers
        self._best = Header()  # the newest header that any node remembered
        self.roster: Optional[Set[str]] = None  # the nodes that live, where the cluster knows that
        if memory is not None:
            self.foreign_round, self.ran, self.budget.spent = memory.round, memory.ran, memory.spent
        self._arrivals = 0
        self._deadlines = Deadlines()  # a node is lost when its own passes without a word
        self._news = True  # facts have come that a decision may depend on
        self._waiting: Dict[str, None] = {}  # nodes that are to be told their order, whether it is a new one or not
        self._effects: List[object] = []

    # -- facts -------------------------------------------------------------------------------------------------------

    def step(self, event: object, now: float) -> None:
        """Takes in one fact."""
        self._news = self.apply(event, now) or self._news

    def _on_reported(self, event: Reported, now: float) -> bool:
        """Answers whether a decision may depend on it: most heartbeats tell nothing new."""
        report = event.report
        node = self.nodes.get(report.node)
        if node is not None and node.report.incarnation != report.incarnation:
            if report.incarnation < node.report.incarnation:
                self._refuse(report)
                return False  # an agent that has been started anew since
            self._lose(report.node, "its agent was restarted", now)
            node = None
        news = node is None or not node.connected or _news_of(report) != _news_of(node.report)
        if node is None:
            node = self.nodes[report.node] = Node(report)
            self._note("joined", f"node {report.node} joined", node=report.node, address=report.address)
            if report.node in self.expected:
                self.expected.discard(report.node)
                self.expect_until, self.came = now + self.patience, now
            if self.released.get(report.node) in ("", report.incarnation):
                node.release, self.released[report.node] = True, report.incarnation
        elif report.number <= node.report.number:
            return False
        node.report, node.connected = report, True
        node.answer = node.answer or report.beat
        if node.answer or node.told != self.seq:
            self._waiting[report.node] = None
        self._arrivals += 1
        if report.failure is not None and not node.failed:
            node.failed = self._arrivals
        if report.progress is not None and report.state != m.PREPARED and self._here(report):
            place = self.places[report.node][1]
            if len(report.progress.steps) == (place.procs or report.procs):  # ranks of an older place do not exist
                self.steps.hear(report.node, place.first_rank, report.progress, now)
                news = news or self.steps.due(now)
        if report.elastic and not self.elastic:
            self.elastic = True
            self.seq += 1
        self._learn(report.header)
        self._deadlines.extend(report.node, now + self.silence)
        return news

    def _refuse(self, report: Report) -> None:
        """An agent whose node has a newer one is told to go, however it came to live on."""
        if self.phase not in (CLOSED, DEPOSED):
            sentence = f"a newer agent of node {report.node} joined"
            self._effects.append(
                Tell(report.node, report.incarnation, Order(self.header(), m.RELEASE, sentence=sentence))
            )
        elif self.phase == CLOSED and self.outcome is not None:
            order = Order(self.header(), m.CLOSE, outcome=self.outcome, sentence=self.outcome.sentence)
            self._effects.append(Tell(report.node, report.incarnation, order))

    def _on_disconnected(self, event: Disconnected, now: float) -> None:
        node = self.nodes.get(event.node)
        if node is not None and node.report.incarnation == event.incarnation:
            node.connected = False
            self._deadlines.set(event.node, max(now, self.lenient_until))

    def _on_expect(self, event: Expect, now: float) -> None:
        self.expected |= {name for name in event.nodes if name not in self.nodes}
        for name in event.nodes:
            self.released.pop(name, None)
        self.patience, self.once_enough = event.patience, event.once_enough
        self.expect_until, self.came = now + event.patience, now

    def _on_unexpect(self, event: Unexpect, now: float) -> None:
        self.expected -= set(event.nodes)

    def _on_roster(self, event: Roster, now: float) -> None:
        self.roster = set(event.nodes)

    def _on_scale(self, event: Scale, now: float) -> None:
        if event.wanted != self.wanted:
            self.released.clear()
            self._note("scale", f"scale from {self.wanted} to {event.wanted} nodes", wanted=event.wanted)
        self._want(event.wanted)
        self.asked = True
        for name in event.release:
            self.expected.discard(name)
            self.released[name] = ""
            if name in self.nodes:
                self.nodes[name].release, self.released[name] = True, self.nodes[name].report.incarnation
        self.seq += 1

    def _on_end(self, event: End, now: float) -> None:
        if self.ending is None:
            self.ending = event.outcome

    def _on_recorded(self, event: Recorded, now: float) -> None:
        self.enter(CLOSED)
        self.outcome = event.outcome or self.ending
        self.seq += 1

    def _on_late(self, event: Late, now: float) -> None:
        beat = heartbeat.interval(self.config.silence, self.wanted)
        # A node closes its connection when it has heard nothing for `silence`, and it heard something at most a beat
        # before; the driver tells a little less than it was late. A shorter lateness has closed no connection.
        if event.seconds >= self.silence - 2 * beat:
            self.lenient_until = now + self.silence
        self.budget.late(event.seconds, now)
        self.recover_until += event.seconds
        self.expect_until += event.seconds
        self.came += event.seconds
        if self.enough_since is not None:
            self.enough_since += event.seconds
        if self.held_since is not None:
            self.held_since += event.seconds
        if self.short_since is not None:
            self.short_since += event.seconds
        self.steps.late(event.seconds)
        self._deadlines.extend_all(event.seconds)

    def _want(self, wanted: int) -> None:
        """The size that is wanted, which says how often nodes are heard of."""
        self.wanted = wanted
        self.silence = self.budget.silence = heartbeat.lost_after(self.config.silence, wanted)

    def _learn(self, header: Header) -> None:
        """What a node remembers of earlier coordinators; the newest memory wins."""
        foreign = header.leader not in ("", self.leader)
        if foreign:
            self.foreign_round = max(self.foreign_round, header.round)
            self.ran = max(self.ran, header.ran)
            if header.age > self._best.age and not self.committed:
                self._best = header
                self.budget.spent = header.spent
                self._want(header.wanted)
        if foreign and header.epoch >= self.epoch and self.phase != DEPOSED:
            if self.phase != CLOSED:  # the end is on record: whoever tells it is right
                self.enter(DEPOSED)
                self.sentence = f"a newer coordinator took over with epoch {header.epoch}"
                self._note("deposed", self.sentence)
            else:
                self.epoch = header.epoch + 1
                self.seq += 1

    def _lose(self, name: str, why: str, now: float) -> None:
        node = self.nodes.pop(name)
        self._deadlines.drop(name)
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
        explains = not node.goes and self.phase not in (CLOSING, CLOSED)  # who leaves after a failure is not its cause
        if explains and self.budget.refund(member, now):
            self.seq += 1
            self._note(
                "refund", f"the last failure does not count: node {name} was lost", node=name, spent=self.budget.spent
            )

    def header(self) -> Header:
        """What nodes are to remember: never less than they knew, since it replaces what they knew."""
        newest = max(self.round, self.foreign_round)
        return Header(self.epoch, self.leader, self.seq, newest, self.ran, self.budget.spent, self.wanted)

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
        return known is not None and known[0] == report.incarnation and (report.epoch, report.round) == self.running

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

    def _candidates(self) -> Tuple[Dict[str, Report], Set[str]]:
        """Nodes that may take part in the next round, and those that are only expected to come."""
        eligible = {name: n.report for name, n in self.nodes.items() if n.eligible}
        if self.config.eager and self.ran:
            survivors = self._kept_ranks(eligible)
            near = {name: report for name, report in eligible.items() if name in survivors or not report.warming}
            if sum(self._prepared(report) for report in near.values()) >= self.config.min_nodes:
                return near, set()  # the others cost a cheap round later, which is less than waiting for them now
        return eligible, self.expected

    def _overdue_at(self) -> float:
        """When a round that is prepared stops waiting for expected nodes."""
        if self.enough_since is None or not self.once_enough:
            return self.expect_until
        return min(self.expect_until, max(self.enough_since, self.came) + self.once_enough)

    def _ended(self) -> bool:
        return bool(self.done) or any(n.report.ended and self._here(n.report) for n in self.nodes.values())

    def _running_sentence(self) -> str:
        world = next(place.world_size for _, place in self.places.values())
        running = f"running on {counted(len(self.places), 'node')}, {counted(world, 'worker')}"
        return "; ".join(filter(None, [running, left_out(self.nodes)]))

    def cheapest(self, nodes: Collection[str]) -> List[str]:
        """These nodes, first the one that the job can spare best."""
        staying = {name: node.report for name, node in self.nodes.items() if node.eligible}
        return cheapest(nodes, staying, self._kept_ranks(staying), self.steps.slow_nodes())

    def _note(self, kind: str, sentence: str, **data: Any) -> None:
        self._effects.append(Event(kind, sentence, data))
