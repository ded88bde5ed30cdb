"""Whether a pod's coordinator still has its seat: it asks, again and again, whoever is found at the job's address.

A machine whose kubelet has died keeps its pods, and its network. Kubernetes makes another coordinator then, and leads
new connections to it; the older one keeps the nodes that are connected to it, and would train on with them for ever. It
has no right to ask the cluster, but it can knock at its own door: of two that meet, the one with the lower epoch goes,
and its nodes find the other. Where nobody answers nothing follows from it.
"""

from __future__ import annotations

import logging
import threading
from typing import Any, Callable, Dict, Mapping

from petctl.errors import PetctlError
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile

EVERY = 10.0  # seconds: a new coordinator waits longer than that for the nodes of the last round
WITHIN = 5.0  # seconds for an answer

log = logging.getLogger("petctl.coordinator")


class Seat:
    """Looks from a thread of its own. `claim`: what the other one is told; `lost`: called with the epoch that won."""

    def __init__(self, join: JoinFile, claim: Callable[[], Mapping[str, Any]], lost: Callable[[int], None]) -> None:
        self._join, self._claim, self._lost = join, claim, lost
        self._closed = threading.Event()

    def watch(self) -> None:
        """Begins; until `close`."""
        threading.Thread(target=self._run, name="seat", daemon=True).start()

    def close(self) -> None:
        """Nobody is asked any more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(EVERY):
            claim = dict(self._claim())
            try:
                with ControlLink(self._join) as link:
                    link.connect(WITHIN)
                    answer: Dict[str, Any] = link.call("contend", WITHIN, **claim)
                epoch = int(answer["epoch"])
            except (PetctlError, OSError, ValueError, TypeError, KeyError) as error:
                log.debug("cannot check the seat: %s", error)
                continue
            if epoch > claim["epoch"] and not self._closed.is_set():
                self._lost(epoch)
                return
