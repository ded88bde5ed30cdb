"""How the operator is, over HTTP: /healthz (it lives), /readyz (it leads with full lists, or stands by), /metrics.

Whoever reads it must not be able to do anything else with it: only these three paths, only GET.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus

from petctl.errors import UsageError

METHODS = ("GET", "POST", "PATCH", "DELETE")
WITHIN = 10.0  # seconds that one connection may take in all
MOST = 128  # connections at once
LONGEST = 8192  # bytes of a question


class Health:
    """What is counted, and whether it is ready."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"looks_total": 0, "failures_total": 0, "leading": 0}
        self._counts |= {_calls(method): 0 for method in METHODS}
        self.ready = False
        self.lacks = ""  # rights that it needs
        self.jobs: Callable[[], str] = str  # figures of jobs; only who leads has any

    def stands_by(self) -> None:
        """Ready to take over."""
        self._set(leading=0)
        self.ready = True

    def takes_up(self) -> None:
        """Leads, and does not know yet what there is."""
        self._set(leading=1)
        self.ready = False

    def leads(self) -> None:
        """All lists are there."""
        self._set(leading=1)
        self.ready = True

    def looked(self) -> None:
        """One look began."""
        self._add("looks_total")

    def asked(self, method: str) -> None:
        """One request to the API server, watches aside."""
        self._add(_calls(method))

    def failed(self) -> None:
        """One look failed in a way that waiting does not heal."""
        self._add("failures_total")

    def text(self) -> str:
        """In the format of Prometheus."""
        with self._lock:
            counts = dict(self._counts)
        lines: list[str] = []
        for name, count in counts.items():
            family = f"petctl_operator_{name.partition('{')[0]}"
            kind = f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}"
            lines += [*([] if kind in lines else [kind]), f"petctl_operator_{name} {count}"]
        return "\n".join(lines) + "\n" + self.jobs()

    def _add(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def _set(self, **values: int) -> None:
        with self._lock:
            self._counts.update(values)


def _calls(method: str) -> str:
    return f'api_calls_total{{method="{method}"}}'


@contextmanager
def serve_health(health: Health, port: int) -> Iterator[None]:
    """Answers on that port meanwhile; with port 0 nobody is answered."""
    if not port:
        yield
        return
    try:
        listening = socket.create_server(("", port), backlog=MOST)
    except OSError as error:
        raise UsageError(f"cannot listen on port {port} for --health-port: {error.strerror}") from None
    loop = asyncio.new_event_loop()
    door = _Door(health)
    server = loop.run_until_complete(asyncio.start_server(door.answer, sock=listening, limit=LONGEST))
    thread = threading.Thread(target=loop.run_forever, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        loop.run_until_complete(door.close())
        loop.close()


class _Door:
    """Answers all who ask, in one thread. Anybody may connect, so what they can cost is bounded."""

    def __init__(self, health: Health) -> None:
        self._health = health
        self._asking: dict[asyncio.Task[None], None] = {}  # in the order of their coming, without those sent away

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Where there are too many, the oldest must go: a probe asks as soon as it has connected."""
        task = asyncio.current_task()
        assert task is not None
        self._asking[task] = None
        if len(self._asking) > MOST:
            oldest = next(iter(self._asking))
            del self._asking[oldest]  # at once: of many that come in one turn each must send away another one
            oldest.cancel()
        try:
            await asyncio.wait_for(self._converse(reader, writer), WITHIN)
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._asking.pop(task, None)
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = question.partition(b" ")
        code, text = self._page(rest.partition(b" ")[0].decode("latin-1")) if method == b"GET" else (405, "only GET\n")
        body = text.encode()
        about = f"Content-Type: text/plain; version=0.0.4\r\nContent-Length: {len(body)}\r\nConnection: close"
        writer.write(f"HTTP/1.1 {code} {HTTPStatus(code).phrase}\r\n{about}\r\n\r\n".encode() + body)
        await writer.drain()

    def _page(self, path: str) -> tuple[int, str]:
        if path == "/healthz":
            return 200, "ok\n"
        if path == "/readyz":
            if self._health.lacks:
                return 503, f"lacks the right to {self._health.lacks}\n"
            return (200, "ok\n") if self._health.ready else (503, "not yet\n")
        if path == "/metrics":
            return 200, self._health.text()
        return 404, "there are /healthz, /readyz and /metrics\n"

    async def close(self) -> None:
        """Sends those away who are connected still."""
        connected = asyncio.all_tasks() - {asyncio.current_task()}
        for task in connected:
            task.cancel()
        await asyncio.gather(*connected, return_exceptions=True)
