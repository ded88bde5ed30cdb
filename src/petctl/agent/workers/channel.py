"""The socket on which a node's workers talk to their agent: who says what there, and how much of it is believed.

One JSON object a line, one word in each: {"parked": {"round": 3}}. The words are listed in docs/design/node.md. A
worker that never connects is an ordinary one; one that has said "elastic" can be asked to park instead of being ended.

Nothing that comes in can do harm: a line is bounded, so are the lines per second, what a worker does not read, and the
connections; a connection that speaks nonsense is closed, and its worker is an ordinary one from then on. A
connection belongs to the worker whose key it knows and in whose session its process is.

It must not decide when to park whom, nor what an answer means for a round: see workers.py and agent.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple

if TYPE_CHECKING:
    from petctl.agent.workers.workers import Worker

BIND_TIMEOUT = 1.0  # seconds in which a parked worker has to open rank 0's store
_LINE = 64 << 10  # bytes
_UNREAD = 1 << 20  # bytes that a worker may leave unread
_LINES_PER_TURN, _TURN = 200, 0.1  # a worker that says more has to wait for the next turn
_CONNECTIONS = 1024
_HELLO_WITHIN = 10.0  # seconds


class Channel:
    """All connections of a node's workers. Made inside the running loop; with an empty path nobody can connect."""

    def __init__(self, path: str = "") -> None:
        self.path = path
        self.on_elastic: Callable[[Worker], None] = lambda worker: None
        self.on_parked: Callable[[Worker], None] = lambda worker: None
        self.on_aborted: Callable[[Worker], None] = lambda worker: None  # its collectives: it can park now
        self.on_lost: Callable[[Worker], None] = lambda worker: None  # an elastic worker cannot be talked to any more
        self.on_progress: Callable[[Worker, Dict[str, Any]], None] = lambda worker, data: None
        self.on_dumped: Callable[[Worker], None] = lambda worker: None  # its stacks are written
        self._loop = asyncio.get_running_loop()
        self._workers: Dict[str, Worker] = {}  # by their keys
        self._elastic: Dict[Worker, Line] = {}
        self._lines: Set[Line] = set()
        self._binding: Optional[Tuple[Worker, int, Callable[[int], None], asyncio.TimerHandle]] = None
        self._server: Optional[asyncio.Task[asyncio.AbstractServer]] = None
        if path:
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(path)
                listener.listen(128)
            except OSError:
                listener.close()
                self.path = ""
            else:
                serving = self._loop.create_unix_server(lambda: Line(self), sock=listener)
                self._server = self._loop.create_task(serving)

    def close(self) -> None:
        """Ends every connection."""
        if self._server is not None and self._server.done():
            self._server.result().close()
        for line in list(self._lines):
            line.abort()

    # -- workers -----------------------------------------------------------------------------------------------------

    def know(self, worker: Worker) -> None:
        """From now on this worker may connect, under the key of its present launch."""
        self._workers[worker.launch.env.get("PETCTL_WORKER_KEY", "")] = worker

    def forget(self, worker: Worker) -> None:
        """It has ended."""
        self._workers = {key: known for key, known in self._workers.items() if known is not worker}
        for line in [line for line in self._lines if line.worker is worker]:
            line.abort()

    def elastic(self, worker: Worker) -> bool:
        """Can it be parked?"""
        return worker in self._elastic

    def parked(self, worker: Worker) -> bool:
        """Has it parked, and can it be given a new place?"""
        line = self._elastic.get(worker)
        return line is not None and line.parked

    def aborting(self, worker: Worker) -> bool:
        """Is it in the middle of aborting its collectives?"""
        line = self._elastic.get(worker)
        return line is not None and line.aborting

    def park(self, worker: Worker, planned: bool, within: float, final: bool, why: str) -> None:
        """Asks it to leave its round."""
        wish = {"round": worker.launch.round, "planned": planned, "within": within, "final": final, "why": why}
        self._say(worker, "park", wish)

    def run(self, worker: Worker, env: Dict[str, str]) -> bool:
        """Gives a parked worker the place that its launch now names; False: it cannot be told."""
        self.know(worker)
        line, launch = self._elastic.get(worker), worker.launch
        if line is None:
            return False
        line.parked = line.aborting = False
        return self._say(worker, "run", {"round": launch.round, "env": env, "out": launch.out, "err": launch.err})

    def stacks(self, worker: Worker, path: str) -> bool:
        """Asks for the stacks of all its threads; False: it cannot be asked."""
        return self._say(worker, "stacks", {"file": path})

    def bind(self, worker: Worker, number: int, then: Callable[[int], None]) -> None:
        """Has a parked worker open the store of round `number`; then(port) once, with 0 when it does not in time."""
        self._bound(0)
        timer = self._loop.call_later(BIND_TIMEOUT, self._bound, 0)
        self._binding = (worker, number, then, timer)
        if not self._say(worker, "bind", {"round": number}):
            self._bound(0)

    def _bound(self, port: int) -> None:
        if self._binding is not None:
            _, _, then, timer = self._binding
            self._binding = None
            timer.cancel()
            then(port)

    def _say(self, worker: Worker, word: str, data: Dict[str, Any]) -> bool:
        lines = [line for line in self._lines if line.worker is worker]
        line = self._elastic.get(worker) or next(iter(lines), None)
        return line is not None and line.send({word: data})

    # -- what comes in -----------------------------------------------------------------------------------------------

    def opened(self, line: Line) -> bool:
        """Is there room for it?"""
        self._lines.add(line)
        return len(self._lines) <= _CONNECTIONS

    def closed(self, line: Line) -> None:
        """It is gone, from whichever side."""
        self._lines.discard(line)
        worker = line.worker
        if worker is None or self._elastic.get(worker) is not line:
            return
        del self._elastic[worker]
        if self._binding is not None and self._binding[0] is worker:
            self._bound(0)
        self.on_lost(worker)

    def heard(self, line: Line, word: str, data: Dict[str, Any]) -> bool:
        """Takes in one message; False: whoever says such a thing is not to be listened to."""
        if line.worker is None:
            line.worker = self._whose(line, data) if word == "hello" else None
            return line.worker is not None
        worker = line.worker
        current = data.get("round") == worker.launch.round
        if word == "elastic":
            if self._elastic.setdefault(worker, line) is line:
                self.on_elastic(worker)
        elif word == "progress":
            self.on_progress(worker, data)
        elif word == "dumped":
            self.on_dumped(worker)
        elif self._elastic.get(worker) is not line:
            pass  # another process of the same worker: it cannot stand for it
        elif word == "plain":
            del self._elastic[worker]
            line.parked = False
            self.on_lost(worker)
        elif word == "parked" and current and not line.parked:
            line.parked = True
            self.on_parked(worker)
        elif word in ("aborting", "aborted") and current:
            line.aborting = word == "aborting"
            if not line.aborting:
                self.on_aborted(worker)
        elif word == "bound" and self._binding is not None and self._binding[:2] == (worker, data.get("round")):
            port = data.get("port")
            self._bound(port if isinstance(port, int) and 0 < port < 65536 else 0)
        return True  # words of newer libraries are none of our business

    def _whose(self, line: Line, hello: Dict[str, Any]) -> Optional[Worker]:
        key = hello.get("key")
        worker = self._workers.get(key) if isinstance(key, str) and key else None
        if worker is None or worker.code is not None:
            return None
        # A worker whose number is not known yet is just being started; nobody else has its key.
        return worker if worker.pid in (0, line.session()) else None


class Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._transport: Optional[asyncio.Transport] = None
        self._pending = b""
        self._todo: List[bytes] = []
        self._turn_ends, self._left = 0.0, 0
        self._loop = asyncio.get_running_loop()
        self._hello: Optional[asyncio.TimerHandle] = None
        self.worker: Optional[Worker] = None
        self.parked = self.aborting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._hello = self._loop.call_later(_HELLO_WITHIN, self._late)
        if not self._channel.opened(self):
            self.abort()

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._transport = None
        self._todo.clear()
        if self._hello is not None:
            self._hello.cancel()
        self._channel.closed(self)

    def data_received(self, data: bytes) -> None:
        *lines, self._pending = (self._pending + data).split(b"\n")
        self._todo += lines
        if len(self._pending) > _LINE:
            self.abort()
        else:
            self._listen()

    def send(self, message: Dict[str, Any]) -> bool:
        """Never waits; a worker that reads nothing loses its connection."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(json.dumps(message).encode() + b"\n")
        if self._transport.get_write_buffer_size() > _UNREAD:
            self.abort()
            return False
        return True

    def session(self) -> int:
        """The session of the process at the other end; 0: it cannot be told."""
        assert self._transport is not None
        if not hasattr(socket, "SO_PEERCRED"):
            return 0
        peer = self._transport.get_extra_info("socket")
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        try:
            return os.getsid(pid) if pid else 0
        except OSError:
            return 0

    def abort(self) -> None:
        """Closes at once; `closed` follows."""
        self._todo.clear()
        if self._transport is not None:
            self._transport.abort()

    def _listen(self) -> None:
        """Some lines at a time: the agent's heartbeats share this loop."""
        now = self._loop.time()
        if now >= self._turn_ends:
            self._turn_ends, self._left = now + _TURN, _LINES_PER_TURN
        taken = self._left
        turn, self._todo = self._todo[:taken], self._todo[taken:]
        self._left -= len(turn)
        for text in turn:
            if self._transport is None or self._transport.is_closing():
                return
            if not self._take(text):
                self.abort()
                return
        if not self._left and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_at(self._turn_ends, self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._listen()

    def _take(self, text: bytes) -> bool:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(message, dict) or len(message) != 1:
            return False
        (word, data), *_ = message.items()
        return isinstance(data, dict) and self._channel.heard(self, word, data)

    def _late(self) -> None:
        if self.worker is None:
            self.abort()
