"""How the operator is, over HTTP: /healthz (it lives), /readyz (it leads with full lists, or stands by), /metrics.

Whoever reads it must not be able to do anything else with it: only these three paths, only GET.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from petctl.errors import UsageError

METHODS = ("GET", "POST", "PATCH", "DELETE")
WITHIN = 10.0  # seconds that somebody may take to ask: who never does must not keep a thread


class Health:
    """What is counted, and whether it is ready."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = {"looks_total": 0, "failures_total": 0, "leading": 0}
        self._counts |= {_calls(method): 0 for method in METHODS}
        self.ready = False

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
        return "\n".join(lines) + "\n"

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

    class Handler(BaseHTTPRequestHandler):
        timeout = WITHIN

        def do_GET(self) -> None:
            answers = {
                "/healthz": (200, "ok\n"),
                "/readyz": (200, "ok\n") if health.ready else (503, "not yet\n"),
                "/metrics": (200, health.text()),
            }
            code, text = answers.get(self.path, (404, "there are /healthz, /readyz and /metrics\n"))
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            """Probes come every few seconds."""

    try:
        server = ThreadingHTTPServer(("", port), Handler)
    except OSError as error:
        raise UsageError(f"cannot listen on port {port} for --health-port: {error.strerror}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
