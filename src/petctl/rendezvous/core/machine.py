"""The coordinator's side of the rendezvous, as a pure machine.

    step(event, now)         takes in a fact and decides nothing
    settle(now) -> effects   decides, from all the facts there are; called as often as one likes
    due                      when to call settle again at the latest, should nothing happen

Deciding from facts, not from the order in which they came, is what makes it robust: a repeated, late or lost message
changes the facts or does not, and the next settle says the same thing again to whoever has not followed yet.

Which event does what in which phase, and where it may lead: the table in `transitions.py`.

What it keeps, whatever happens: a round is committed only when no connected node has workers of an older one; a deposed
coordinator opens none; after the first worker has ended well nothing planned interrupts the round; what is recorded
stays.

It must not know sockets, clocks, chance, or which cluster there is. What is known is in `facts.py`; who is chosen, and
why to wait, in `decide.py`; what a failure costs, in `budget.py`.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.blame import HOLD, OWN, origin, root_cause
from petctl.rendezvous.core.budget import FALL_WITHIN, FALLS
from petctl.rendezvous.core.decide import choose, first_choice, natural, places_for, ranks_for, wait_reason
from petctl.rendezvous.core.events import Config, Record, Tell
from petctl.rendezvous.core.facts import Facts
from petctl.rendezvous.core.messages import LEFT, Failure, Header, Order, Outcome, Report
from petctl.rendezvous.core.roll import in_short, last_round, left_out, rows
from petctl.rendezvous.core.transitions import (
    CLOSED,
    CLOSING,
    DEPOSED,
    GATHERING,
    RECOVERING,
    RUNNING,
    Begin,
    Decide,
    Finish,
)
from petctl.text import counted

SETTLES_WITHIN = 10.0  # seconds; where no steps are reported, a round that lasts longer has made some


class Coordinator(Facts):
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
        super().__init__(config, now, leader, epoch, memory)
        self._look_at: Optional[float] = None  # when a decision may be due though nothing has happened
        self.due: Optional[float] = None  # when the next settle is, should nothing happen
        self._said = -1  # seq of what all nodes were told last
        self.apply(Begin(fresh, outcome), now)

    def _on_begin(self, event: Begin, now: float) -> None:
        if event.outcome is not None:
            self.enter(CLOSED)
            self.outcome = event.outcome
        elif event.fresh:
            self._open("the job starts", False, now)
        else:
            self.enter(RECOVERING)

    # -- decisions ---------------------------------------------------------------------------------------------------

    def settle(self, now: float) -> List[object]:
        """Decides, and says what is to be done."""
        self.settled = now
        if self.phase != DEPOSED:
            for name in self._deadlines.passed(now):
                silent = self.nodes[name].connected
                why = f"no heartbeat for {self.silence:g} s" if silent else "its connection closed"
                self._lose(name, why, now)
                self._news = True
            if self._news or (self._look_at is not None and now >= self._look_at):
                self._decide(now)
                self._news = False
            self._look_at = self._next_look()
            self._tell()
        times = (self._deadlines.first(), self._look_at) if self.phase != DEPOSED else ()
        self.due = min((time for time in times if time is not None and time > now), default=None)
        effects, self._effects = self._effects, []
        return effects

    def _decide(self, now: float) -> None:
        """Goes from phase to phase until nothing more follows from the facts."""
        before = ""
        while self.phase != before:  # a decision may make the next one due
            before = self.phase
            self.apply(Decide() if self.ending is None else Finish(), now)

    def _on_finish(self, event: Finish, now: float) -> None:
        if self.ending is not None:
            self._end(self.ending)

    def _decide_recovering(self, event: Decide, now: float) -> None:
        top, members = last_round(self.nodes)
        over = now >= self.recover_until or (self.roster is not None and self.roster <= set(self.nodes))
        if top is None:
            if over:
                self._open("no node knows a round", False, now)
            return
        size = next(iter(members.values())).nodes
        reports = [n.report for n in self.nodes.values()]
        broken = any(r.header.round > top[1] or (r.state == m.PREPARED and r.round >= top[1]) for r in reports)
        if len(members) == size and not broken:
            self.round, self.running, self.committed = top[1], top, True
            self.places = {name: (self.nodes[name].report.incarnation, place) for name, place in members.items()}
            self.enter(RUNNING)
            self.began = now
            self.steps.begin()
            self.sentence = self._running_sentence()
            self.seq += 1
            self._note("continued", f"round {self.round} continues under a new coordinator", round=self.round)
        elif over or (len(reports) >= size and broken):
            self.previous = {name: (self.nodes[name].report.incarnation, p) for name, p in members.items()}
            self._open(f"the coordinator was replaced and found {len(members)} of {size} members", False, now)
        else:
            self.sentence = f"recovering: {len(members)} of {size} members of round {top[1]} have reported"

    def _decide_gathering(self, event: Decide, now: float) -> None:
        if self.foreign_round >= self.round:
            self._open("a node knows a newer round", False, now)
        config = self.config
        target = min(self.wanted, config.max_nodes)
        eligible, expected = self._candidates()
        ready = {name: r for name, r in eligible.items() if self._prepared(r)}
        busy = [n.report for n in self.nodes.values() if self._busy(n)]
        kept = self._kept_ranks(eligible)
        if eligible:
            self._ask_for_port(first_choice(eligible, kept))
        if self._too_few(len(eligible), now):
            return
        if len(ready) < config.min_nodes:
            self.enough_since = None
        elif self.enough_since is None:
            self.enough_since = now
        if self.expected and now >= self._overdue_at():
            names = ", ".join(sorted(self.expected, key=natural))
            self._note("overdue", f"no longer waiting for {names}", nodes=sorted(self.expected))
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
        self._commit({name: ready[name] for name in members}, port, now)

    def _too_few(self, nodes: int, now: float) -> bool:
        """Ends the job when there have been too few nodes for too long; workers that take long to stop do not count."""
        least, limit = self.config.min_nodes, self.config.join_timeout
        if nodes >= least:
            self.short_since = None
        elif self.short_since is None:
            self.short_since = now
        if self.short_since is None or not limit or now < self.short_since + limit:
            return False
        sentence = f"only {nodes} of at least {least} nodes joined in {limit:g} s"
        words = [sentence, left_out(self.nodes), "raise join_timeout or lower the size"]
        self._end(Outcome(m.ENDED_FAILED, 124, "; ".join(filter(None, words))))
        return True

    def _decide_running(self, event: Decide, now: float) -> None:
        for node in self.nodes.values():
            self._note_ends(node.report)
        if len(self.done | self.serving) == len(self.places):
            self._end(Outcome(m.SUCCEEDED, 0, "all workers finished successfully"))
            return
        unplanned = self._broken_by(now)
        if unplanned:
            self._open(unplanned, False, now)
        elif self.phase == RUNNING and self.budget.verdict is None and self.held_since is None and not self._ended():
            self._watch_steps(now)
            planned = self._changed_by(now)
            if planned:
                self._open(planned, True, now)

    def _broken_by(self, now: float) -> str:
        """Why the running round cannot go on, or an empty string."""
        lost = [name for name in self.gone if name not in self.done]
        if lost:
            words = "; ".join(f"node {name} was lost: {self.gone[name]}" for name in sorted(lost, key=natural))
            return self._charge_falls([name for name in lost if self.gone[name] != LEFT], words, now)
        here = [n for name, n in self.nodes.items() if name in self.places and self._here(n.report)]
        for node in here:
            if node.report.state in (m.FENCED, m.IDLE) and node.report.node not in self.done:
                if node.goes:
                    return f"node {node.report.node} leaves"
                return f"node {node.report.node} had lost the coordinator and stopped its workers"
        failed = [n for n in here if n.report.state in (m.RUNNING, m.FAILED) and n.report.failure is not None]
        if not failed:
            return ""
        failed.sort(key=lambda n: n.failed)
        failure, passed = root_cause([n.report.failure for n in failed if n.report.failure is not None])
        if origin(failure) != OWN:
            if self.held_since is None:
                self.held_since = now
            leaving = sorted((n.report.node for n in self.nodes.values() if n.goes), key=natural)
            told = sum(n.report.state in (m.FAILED, m.DONE) for n in here) == len(self.places)
            if leaving and leaving[0] in self.places:
                return f"node {leaving[0]} leaves"
            if not told and now < self.held_since + HOLD:
                self.sentence = f"{failure.sentence()}; waiting up to {HOLD:g} s for the root cause"
                return ""
        return self._charge(failure, passed, now)

    def _charge_falls(self, lost: List[str], words: str, now: float) -> str:
        """Why the round ends by these losses; where they come again and again, they are paid for, or end the job."""
        progress = self.steps.grew() if self.steps.reports else now >= self.began + FALL_WITHIN
        name, itself = self.falls.note({name: self.places[name][1].rank for name in lost}, progress)
        if not name:
            return words
        rank = self.places[name][1].first_rank
        message = f"node {name} (rank {rank}) was lost {FALLS} times without progress"
        if not itself:
            message = f"rank {rank} was lost {FALLS} times without progress, the last time with node {name}"
        message += "; the program may take its machine down"
        failure = Failure(name, rank, 0, 137, message=message, cause="node-lost")
        if self.budget.charge_fall():
            sentence = f"{message} ({self.budget.sentence()})"
            self._note("failure", sentence, failure=m.encode(failure), spent=self.budget.spent)
            return sentence
        self._end(Outcome(m.ENDED_FAILED, failure.code, message, failure))
        return ""

    def _charge(self, failure: Failure, passed: str, now: float) -> str:
        """Why this failure ends the round; an empty string where it is not restarted from: it may end the job."""
        members = [(name, incarnation) for name, (incarnation, _) in self.places.items()]
        if self.budget.charge(failure, members, now):
            sentence = f"{failure.sentence()} ({self.budget.sentence()}){passed}"
            self._note("failure", sentence, failure=m.encode(failure), spent=self.budget.spent)
            return sentence
        here = [n.report for name, n in self.nodes.items() if name in self.places and name not in self.done]
        answers = [report.probe for report in here]
        if self.budget.confirm_failure(failure, answers):
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
            return f"scaled to {counted(target, 'node')}"
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
        gathered = len(spare) >= room or now >= self.growth_since + self.config.resize_interval
        if self.asked or (gathered and self._proceeds(now)):
            return f"{counted(min(len(spare), room), 'more node')} joined"
        return ""

    def _proceeds(self, now: float) -> bool:
        """Has the running round made a step, or had the time to? To end it before would cost a start for nothing."""
        return (self.steps.reports and self.steps.moved) or now >= self._settled_at()

    def _settled_at(self) -> float:
        """When growth stops waiting for the first step of the running round."""
        interval = self.config.resize_interval
        return self.began + (interval if self.steps.reports else min(SETTLES_WITHIN, interval))

    def _watch_steps(self, now: float) -> None:
        """A round that stands still is told so: the node of the rank that is furthest behind then reports a failure."""
        before = self.steps.stall
        for kind, sentence, data in self.steps.look(now):
            self._note(kind, sentence, round=self.round, **data)
        if self.steps.stall != before:
            self.seq += 1

    # -- changes of phase --------------------------------------------------------------------------------------------

    def _open(self, reason: str, planned: bool, now: float) -> None:
        self.previous = self.places or self.previous
        self.round = max([self.round, self.foreign_round, *(n.report.round for n in self.nodes.values())]) + 1
        self.enter(GATHERING)
        self.reason, self.planned = reason, planned
        self.places, self.done, self.serving, self.gone = {}, set(), set(), {}
        self.budget.clear_failure()
        self.reserve, self.held_since = "", None
        self.growth_since = self.enough_since = None
        self.seq += 1
        self._note("round", f"round {self.round}: {reason}", round=self.round, reason=reason, planned=planned)

    def _commit(self, members: Dict[str, Report], port: int, now: float) -> None:
        places = places_for(list(members.values()), port, self.config.offers, self.config.tasks)
        self.places = {name: (members[name].incarnation, places[name]) for name in members}
        self.enter(RUNNING)
        self.asked, self.committed, self.began = False, True, now
        self.ran, self.running = self.round, (self.epoch, self.round)
        self.steps.begin()
        for node in self.nodes.values():
            node.failed = 0
        self.seq += 1
        world = next(iter(places.values())).world_size
        self.sentence = self._running_sentence()
        self._note(
            "running",
            f"round {self.round}: {counted(len(places), 'node')}, {counted(world, 'worker')}",
            round=self.round,
            epoch=self.epoch,
            nodes=list(members),
            world_size=world,
            spent=self.budget.spent,
        )

    def _end(self, outcome: Outcome) -> None:
        self.enter(CLOSING)
        self.ending, self.sentence = outcome, outcome.sentence
        self.seq += 1
        self._note("closing", f"{outcome.state}: {outcome.sentence}", outcome=m.encode(outcome))
        self._effects.append(Record(outcome))

    def _ask_for_port(self, name: str) -> None:
        if name and name != self.reserve:
            self.reserve = name
            self.nodes[name].told = -1
            self._waiting[name] = None

    # -- speaking ----------------------------------------------------------------------------------------------------

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
        names = list(self._waiting) if self._said == self.seq else list(self.nodes)
        self._said = self.seq
        self._waiting.clear()
        for name in names:
            node = self.nodes.get(name)
            if node is not None and node.connected and (node.answer or node.told != self.seq):
                node.answer, node.told = False, self.seq
                order = self.order_for(name, header)
                node.ran = self.round if order.kind == m.RUN else node.ran
                self._effects.append(Tell(name, node.report.incarnation, order))

    def _next_look(self) -> Optional[float]:
        """When a decision may be due that only waits for its time."""
        times: List[float] = []
        if self.phase == RECOVERING:
            times.append(self.recover_until)
        if self.phase == GATHERING:
            if self.expected:
                times.append(self._overdue_at())
            if self.enough_since is not None and self.config.last_call:
                times.append(self.enough_since + self.config.last_call)
            if self.config.join_timeout and self.short_since is not None:
                times.append(self.short_since + self.config.join_timeout)
        if self.phase == RUNNING and self.growth_since is not None:
            times += [self.growth_since + self.config.resize_interval, self._settled_at()]
            if self.asked:
                times.append(self.expect_until)
        if self.phase == RUNNING and self.held_since is not None:
            times.append(self.held_since + HOLD)
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
