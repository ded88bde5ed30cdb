"""The rendezvous machine over TCP: `CoordinatorServer` feeds it what nodes report and carries out what it decides.

The driver keeps three promises to the machine:

- Drained before decided. Between the fact that asks for a decision and the decision, every socket is read once more: a
  node whose report lies unread is not silent.
- Its own lateness is no node's fault. A loop that was held up says so (`Late`) before it asks for a decision.
- One connection per node: a newer one of the same incarnation replaces the older without anybody being lost.

An outcome is recorded, and synced, before anybody is told. What a round is, who is lost, what a node should do: all
that is `machine.py`. Who may connect is `listener.py`.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Set, Tuple, Union

from petctl.errors import AuthError, PetctlError, ProtocolError
from petctl.rendezvous.core.decide import natural
from petctl.rendezvous.core.events import Disconnected, Event, Late, Record, Recorded, Reported, Tell
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.messages import UNSAVED, Order, Outcome, decode_report, encode
from petctl.rendezvous.net.calls import Calls, calls_of
from petctl.rendezvous.net.frames import AGENT, COORDINATOR_LIMIT, NODE, PLAIN, encode_payload
from petctl.rendezvous.net.listener import Connection, Listener

if TYPE_CHECKING:
    import ssl

PULSE = 0.5  # seconds between two looks at whether the loop still turns
LATE = 0.25  # seconds of lateness that are worth telling
CALLS_AT_ONCE = 64  # of one control connection
REMARKS = 100  # in a job; the rest is only in the nodes' own logs
REMARK_LIMIT = 1000  # characters
KEEPERS = 3  # nodes that keep the history of the job for the next coordinator

_FIRST_RETRY, _LAST_RETRY = 0.1, 5.0  # seconds between attempts to record the outcome
_SAME = encode_payload({"changed": {}})
_LONG = 0.002  # seconds; a decision over very many nodes takes longer ...
_REST = 4  # ... and is followed by a pause of so many times that, in which more facts are gathered for the next
_AFTER_A_FAULT = 1.0  # seconds until a machine that raised is asked again

log = logging.getLogger(__name__)

Welcome = Union[Mapping[str, Any], Callable[[], Mapping[str, Any]]]


class CoordinatorServer:
    """Runs one machine in the running event loop.

    `record(outcome)` makes it durable before it returns; should another end be on record already, it returns that one.
    `on_effect` gets what is not for a node (Lost, Event) and may call `step`. `control` are the calls of the command
    line by name, plain or async; "status" is built in. `decided` is called after every decision.
    """

    def __init__(
        self,
        machine: Coordinator,
        token: str,
        welcome: Welcome,
        record: Callable[[Outcome], Optional[Outcome]],
        on_effect: Callable[[object], None],
        control: Optional[Calls] = None,
        tls: Optional[ssl.SSLContext] = None,
        binding: str = PLAIN,
        decided: Callable[[], object] = lambda: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._decided = decided
        self._machine, self._record, self._on_effect, self._welcome = machine, record, on_effect, welcome
        self._control = calls_of({"status": machine.status, **(control or {})})
        self._listener = Listener(token, binding, tls, self._greet, self._received, self._closed)
        self._current: Dict[Tuple[str, str], Connection] = {}
        self._calls: Dict[Connection, Set[asyncio.Future[Any]]] = {}
        self._left: Optional[asyncio.Future[None]] = None  # a connection has ended, for who waits for that
        self._remarks: Set[str] = set()  # that were passed on
        self._heard = (-1, -1)  # (epoch, round) of the newest history before this coordinator that a node has told
        self._scheduled = False
        self._rested = 0.0  # not before this is the next decision made
        self._awake = 0.0  # when the loop was last known to turn
        self._timer: Optional[asyncio.TimerHandle] = None
        self._pulse: Optional[asyncio.TimerHandle] = None
        self._retry: Optional[asyncio.TimerHandle] = None
        self._recording: Optional[Outcome] = None
        self._open = False

    @property
    def dropped(self) -> int:
        """Connections ended because of what came over them."""
        return self._listener.dropped

    async def listen(self, host: str, port: int) -> Tuple[str, int]:
        """Opens the port (0: any) and says where it is."""
        self._awake = self._loop.time()
        bound = await self._listener.listen(host, port)
        self._open = True
        self._pulse = self._loop.call_later(PULSE, self._beat)
        self._schedule()
        return bound

    def step(self, event: object) -> None:
        """Hands the machine a fact; it decides once per turn of the loop, over all the facts of that turn."""
        self._machine.step(event, self._loop.time())
        self._schedule()

    def close(self) -> None:
        """Stops deciding and listening; what was said to the nodes is still sent."""
        self._open = False
        for timer in (self._timer, self._pulse, self._retry):
            if timer is not None:
                timer.cancel()
        for calls in self._calls.values():
            for call in list(calls):
                call.cancel()
        self._listener.close()

    async def until_callers_left(self, within: float) -> None:
        """Lets those who were asking hear the last word, also one who is between two questions; at most for so long."""
        deadline = self._loop.time() + within
        while self._calls and self._loop.time() < deadline:
            self._left = self._loop.create_future()
            await asyncio.wait({self._left}, timeout=deadline - self._loop.time())

    # -- deciding ------------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not self._scheduled and self._open:
            self._scheduled = True
            if self._rested > self._loop.time():
                self._loop.call_at(self._rested, self._drain)
            else:
                self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        # The loop looks at the sockets between two turns, and runs what call_soon asked for before what it found there.
        # So it takes one turn more until everything that had arrived when the decision was asked for has been read.
        self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._scheduled = False
        if not self._open:
            return
        self._own_lateness()
        now = self._loop.time()
        try:
            effects = self._machine.settle(now)
        except Exception:
            log.exception("internal error: the rendezvous could not decide")
            self._arm(now + _AFTER_A_FAULT)
            return
        self._decided()
        took = self._loop.time() - now
        self._rested = self._loop.time() + (_REST * took if took > _LONG else 0.0)
        self._carry_out(effects)
        self._arm(self._machine.due)

    def _arm(self, deadline: Optional[float]) -> None:
        if self._timer is not None:
            if self._timer.when() == deadline and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if deadline is not None and self._open:
            self._timer = self._loop.call_at(deadline, self._due)

    def _due(self) -> None:
        self._timer = None
        self._schedule()

    def _beat(self) -> None:
        self._own_lateness()
        self._awake = self._loop.time()
        self._pulse = self._loop.call_later(PULSE, self._beat)

    def _own_lateness(self) -> None:
        """Measured against the pulse: however the loop was held up, it was not the nodes that were silent."""
        now = self._loop.time()
        late = now - self._awake - PULSE
        if late > LATE:
            self._awake = now
            log.warning("this machine was stalled for %.1f s; not counting that time for nodes", late)
            self.step(Late(late))

    # -- what the machine wants ----------------------------------------------------------------------------------------

    def _carry_out(self, effects: List[object]) -> None:
        shared: Dict[Order, bytes] = {}  # an order that many nodes get is encoded once
        for effect in effects:
            if isinstance(effect, Tell):
                connection = self._current.get((effect.node, effect.incarnation))
                if connection is not None:
                    connection.send(_order_payload(effect.order, connection.order, shared))
                    connection.order = effect.order
            elif isinstance(effect, Record):
                if self._recording is None:
                    self._recording = effect.outcome
                    self._attempt(effect.outcome, _FIRST_RETRY)
            else:
                try:
                    self._on_effect(effect)
                except Exception:
                    log.exception("internal error: %s was not carried out", effect)

    def _attempt(self, outcome: Outcome, pause: float) -> None:
        """Records the outcome, however often it takes: nobody is told before it is durable."""
        try:
            recorded = self._record(outcome)
        except Exception as error:
            log.error("cannot record how the job ended (%s); trying again in %.1f s", error, pause)
            self._retry = self._loop.call_later(pause, self._attempt, outcome, min(2 * pause, _LAST_RETRY))
            return
        self._recording = None
        self.step(Recorded(recorded))

    # -- what the peers want -------------------------------------------------------------------------------------------

    def _greet(self, connection: Connection) -> Dict[str, Any]:
        if connection.role != AGENT:
            return {}
        return dict(self._welcome() if callable(self._welcome) else self._welcome)

    def _received(self, connection: Connection, message: Dict[str, Any]) -> None:
        if connection.role != AGENT:
            self._called(connection, message)
        elif "remark" in message:
            self._remarked(connection, message["remark"], UNSAVED if message.get("about") == UNSAVED else "remark")
        elif "letter" in message:
            self._pass_on(connection, message["letter"])
        elif "history" in message:
            self._hear_of_the_past(connection, message)
        else:
            if "changed" in message and connection.report is not None:
                report = decode_report(message["changed"], connection.report)
            else:
                report = decode_report(message.get("report"))
            connection.report = report
            key = (report.node, report.incarnation)
            if connection.key != key:
                self._introduced(connection, key)
            self._machine.step(Reported(report), self._loop.time())
            self._schedule()

    def _remarked(self, connection: Connection, text: object, kind: str) -> None:
        """Something that people should read; nothing is decided by it."""
        if connection.key is None or not isinstance(text, str):
            raise ProtocolError("a remark without a sender or text")
        if text not in self._remarks and len(self._remarks) < REMARKS:
            self._remarks.add(text)  # other nodes may well say the same
            node = connection.key[0]
            self._on_effect(Event(kind, f"node {node}: {text[:REMARK_LIMIT]}", {"node": node}))

    def entrust(self, history: Mapping[str, Any]) -> None:
        """Has a few nodes keep this for a coordinator that replaces this one and has no journal to read.

        A node that kept an earlier history and is none of them any more may tell it too: the newest counts.
        """
        payload = encode_payload({"history": {**history, "at": [self._machine.epoch, self._machine.ran]}})
        for key in sorted(self._current, key=lambda key: (natural(key[0]), key[1]))[:KEEPERS]:
            self._current[key].send(payload)

    def _hear_of_the_past(self, connection: Connection, message: Dict[str, Any]) -> None:
        """Passes on what an earlier coordinator has entrusted to a node, if it is newer than what others told."""
        past, age = message["history"], message.get("age")
        if connection.key is None or not isinstance(age, (int, float)) or not _is_history(past):
            raise ProtocolError("a history without a sender or content")
        epoch, number = past.get("at", (0, 0))
        if (epoch, number) > self._heard and epoch < self._machine.epoch:
            self._heard = (epoch, number)
            sentence = f"node {connection.key[0]} kept earlier rounds: {len(past['rounds'])}"
            since = time.time() - max(0.0, age)
            self._on_effect(Event("history", sentence, {**past, "since": since}))

    def _pass_on(self, connection: Connection, letter: object) -> None:
        """What one member's agent tells another's in the round that runs. One that cannot be delivered is dropped:
        whoever wrote it repeats it until it is answered."""
        if connection.key is None or not isinstance(letter, dict):
            raise ProtocolError("a letter without a sender, or not an object")
        places = self._machine.places.items()
        ranks = {(name, incarnation): place.rank for name, (incarnation, place) in places}
        reader = next((key for key, rank in ranks.items() if rank == letter.get("to")), None)
        if connection.key in ranks and reader in self._current and letter.get("round") == self._machine.round:
            self._current[reader].send(encode_payload({"letter": {**letter, "from": ranks[connection.key]}}))

    def _introduced(self, connection: Connection, key: Tuple[str, str]) -> None:
        """A first report names its node; a newer connection of it replaces the older."""
        if connection.key is not None:
            raise ProtocolError("a node reported under two names")
        connection.key = key
        older = self._current.get(key)
        self._current[key] = connection
        if older is not None:
            older.abort()

    def _closed(self, connection: Connection) -> None:
        for call in list(self._calls.pop(connection, ())):
            call.cancel()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)
        if connection.key is not None and self._current.get(connection.key) is connection:
            del self._current[connection.key]
            if self._open:
                self.step(Disconnected(*connection.key))

    def _called(self, connection: Connection, message: Dict[str, Any]) -> None:
        number, name = message.pop("id", None), message.pop("call", None)
        if not isinstance(number, int) or not isinstance(name, str):
            raise ProtocolError("a call without a number and a name")
        calls = self._calls.setdefault(connection, set())
        if len(calls) >= CALLS_AT_ONCE:
            raise ProtocolError(f"more than {CALLS_AT_ONCE} calls at once")
        try:
            result = self._call(connection.role, name, message)
            if inspect.isawaitable(result):
                call = asyncio.ensure_future(result)
                calls.add(call)
                call.add_done_callback(calls.discard)
                call.add_done_callback(lambda done: self._finished(connection, number, done))
                return
        except Exception as error:
            connection.send(_refusal(number, error))
            return
        connection.send(_reply(number, result))

    def _call(self, role: str, name: str, params: Dict[str, Any]) -> object:
        call = self._control.get(name)
        if call is None:
            raise PetctlError(
                f"the coordinator does not know the call {name[:40]!r}: is it an older version of petctl?"
            )
        if role == NODE and not call.nodes:
            raise AuthError(
                f"{name!r} is not allowed for nodes: with this join file a node can take part, but not control the job"
            )
        return call.act(**call.checked(name, params))

    def _finished(self, connection: Connection, number: int, call: asyncio.Future[Any]) -> None:
        if call.cancelled():
            connection.send(_refusal(number, PetctlError("the call was cancelled: the coordinator is shutting down")))
            return
        error = call.exception()
        if isinstance(error, Exception):
            connection.send(_refusal(number, error))
        elif error is None:
            connection.send(_reply(number, call.result()))


def _order_payload(order: Order, before: Optional[Order], shared: Dict[Order, bytes]) -> bytes:
    """An order to a node, without what it was told before: its place alone may hold as much as there are nodes."""
    if order == before:
        return _SAME
    if order.place is not None:
        message = {"order": encode(order)} if before is None else {"changed": encode(order, before)}
        return encode_payload(message)
    if order not in shared:
        shared[order] = encode_payload({"order": encode(order)})
    return shared[order]


def _is_history(past: object) -> bool:
    """Whether it is one, as far as anybody relies on it."""
    kinds = {"number": int, "reason": str, "world_size": int}
    totals = ("ran", "nodes_lost", "seconds_lost")
    if not isinstance(past, dict) or set(past) - {"rounds", "started", "last_failure", "at", *totals}:
        return False
    rounds, started, at = past.get("rounds"), past.get("started"), past.get("at", [0, 0])
    return (
        isinstance(rounds, list)
        and isinstance(at, list)
        and [type(part) for part in at] == [int, int]
        and (started is None or type(started) in (int, float))
        and all(type(past.get(name, 0)) in (int, float) for name in totals)
        and (past.get("last_failure") is None or isinstance(past["last_failure"], dict))
        and all(
            isinstance(entry, dict)
            and all(type(entry.get(name)) is kind for name, kind in kinds.items())
            and isinstance(entry.get("blocks"), list)
            and all(type(entry.get(name)) in (int, float) for name in ("started", "seconds_lost"))
            for entry in rounds
        )
    )


def _reply(number: int, result: object) -> bytes:
    try:
        payload = encode_payload({"id": number, "ok": result})
    except (TypeError, ValueError, RecursionError) as error:
        return _refusal(number, error)
    if len(payload) > COORDINATOR_LIMIT:
        return _refusal(number, PetctlError(f"the answer is too long: {len(payload)} bytes"))
    return payload


def _refusal(number: int, error: Exception) -> bytes:
    if isinstance(error, PetctlError):
        return encode_payload({"id": number, "error": str(error), "code": error.code})
    log.error("internal error in a call from the command line", exc_info=error)
    return encode_payload({"id": number, "error": f"internal error: {type(error).__name__}: {error}", "code": 70})
