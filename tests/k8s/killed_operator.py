"""An operator that writes down each of its writes, and kills itself before or after one of them.

    python -m tests.k8s.killed_operator RECORD MOMENT OPERATOR-WORDS...

MOMENT: 2 n is before its n-th write, 2 n + 1 after it; -1 is never. Leases and events do not count: a Lease is not a
job's, and events may be lost.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

from petctl.clusters.kubernetes.operator.run import main
from petctl.kube.requests import Requests

RECORD, MOMENT = sys.argv[1], int(sys.argv[2])
_lock = threading.Lock()
_answer = Requests.answer
_moment = 0


def answer(self: Requests, method: str, path: str, *rest: Any) -> dict[str, Any]:
    """Like the real one."""
    if method == "GET" or "/leases" in path or "/events" in path:
        return _answer(self, method, path, *rest)
    with _lock:  # one write at a time: so it is known which was made
        die_at(f"{method} {path}")
        try:
            return _answer(self, method, path, *rest)
        finally:
            die_at("")


def die_at(said: str) -> None:
    """Counts, and dies at the moment that was given."""
    global _moment
    if said:
        with open(RECORD, "a") as file:
            file.write(f"{said}\n")
    if _moment == MOMENT:
        os.kill(os.getpid(), signal.SIGKILL)
    _moment += 1


Requests.answer = answer  # type: ignore[assignment,method-assign]
sys.exit(main(sys.argv[3:]))
