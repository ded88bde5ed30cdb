"""Of several operators, the one that acts: it holds a Lease, which it renews while it acts and gives back at its end.

    Claim     what is known of the Lease, and until when it is ours; one attempt at a time, no threads
    Leader    makes attempts in a thread of their own: a server that does not answer cannot keep anybody in office

Nobody compares clocks of machines: a holder counts from before it asked for a renewal, the others count from when they
saw the Lease change, which is later. Every write is made against the version that was read, so of two that reach for
the Lease one gets it. What a leader does is not known here.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

from petctl.kube.api import Api, path
from petctl.kube.failures import Conflict, Forbidden, KubernetesError, NoSuchObject, ObjectExists

ENDS_WITHIN = 5.0  # seconds that the end waits for a server which does not answer

Object = dict[str, Any]

log = logging.getLogger(__name__)


class Claim:
    """One candidate's. `held_until` is a moment of the clock: before it the Lease is ours for certain."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float,
        renew_within: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._all, self._one = api, path("leases", namespace), path("leases", namespace, name)
        self._name, self._identity = name, identity
        self._lease_seconds, self._renew_within, self._clock = lease_seconds, renew_within, clock
        self._ours: Object | None = None  # the Lease as our last write left it
        self._seen: Object = {}  # its spec
        self._expires = -math.inf  # when that may be taken, if it does not change
        self.held_until = -math.inf

    def attempt(self) -> float:
        """Renews the Lease, or takes it if it is free; returns the moment at which it may be free otherwise."""
        for _ in range(2):  # where somebody else was faster: who is it?
            try:
                lease = self._ours or self._look()
                if lease is None:
                    self._create()
                elif self._is_free(lease):
                    self._take(lease)
                break
            except (Conflict, ObjectExists, NoSuchObject):
                self._ours = None
        return self._expires

    def release(self) -> None:
        """Gives the Lease back, if it is ours: nobody has to wait until it has run out."""
        self.held_until = -math.inf
        for _ in range(2):  # a renewal that was not answered may have been made: the first write meets it
            try:
                lease = self._ours or self._look()
                if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                    self._write(lease, {"holderIdentity": "", "renewTime": _now()})
                return
            except (Conflict, NoSuchObject):
                self._ours = None

    def _look(self) -> Object | None:
        """The Lease, if there is one. What has not changed since it was first seen goes on running out."""
        try:
            lease = {"spec": {}, **self._api.get(self._one)}
        except NoSuchObject:
            self.held_until = self._expires = -math.inf
            return None
        spec = lease["spec"]
        if spec != self._seen:
            promised = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
            self._seen, self._expires = spec, self._clock() + promised
        if spec.get("holderIdentity") != self._identity:
            self.held_until = -math.inf
        return lease

    def _is_free(self, lease: Object) -> bool:
        holder = lease["spec"].get("holderIdentity") or ""
        return holder in ("", self._identity) or self._clock() >= self._expires

    def _create(self) -> None:
        asked = self._clock()
        body = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": self._name}}
        self._won(self._api.create(self._all, {**body, "spec": {**self._renewed(), **_acquired(0)}}), asked)

    def _take(self, lease: Object) -> None:
        asked, spec = self._clock(), self._renewed()
        if lease["spec"].get("holderIdentity") != self._identity:
            spec |= _acquired(int(lease["spec"].get("leaseTransitions") or 0) + 1)
        self._won(self._write(lease, spec), asked)

    def _won(self, lease: Object, asked: float) -> None:
        self._ours, self.held_until = lease, asked + self._renew_within
        self._seen, self._expires = {}, math.inf

    def _renewed(self) -> Object:
        seconds = math.ceil(self._lease_seconds)
        return {"holderIdentity": self._identity, "leaseDurationSeconds": seconds, "renewTime": _now()}

    def _write(self, lease: Object, spec: Object) -> Object:
        version = lease["metadata"]["resourceVersion"]
        return self._api.patch(self._one, {"metadata": {"resourceVersion": version}, "spec": spec})


class Leader:
    """Of several operators, the one that holds a Lease (coordination.k8s.io/v1).

    `identity` must be no other process's. Two never lead at once as long as a process is not paused for longer than
    lease_seconds - renew_within, and its `lead` returns that soon after `lost` was set.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        identity: str,
        lead: Callable[[threading.Event], None],
        lease_seconds: float = 15,
        renew_within: float = 10,
        retry_every: float = 2,
    ) -> None:
        if not lease_seconds > renew_within > retry_every > 0:
            raise ValueError("a lease must last longer than its renewal timeout, and that longer than one attempt")
        self._what, self._identity, self._lead, self._retry_every = f"{namespace}/{name}", identity, lead, retry_every
        self._claim = Claim(api, namespace, name, identity, lease_seconds, renew_within)
        self._turn = threading.Condition()
        self._leading = False  # whether `lead` has not returned
        self._failure: BaseException | None = None  # what it raised
        self._may_ask, self._over = True, False
        self._complained = False

    def run(self, stop: threading.Event) -> None:
        """Leads whenever it can, until it is to stop or `lead` returns by itself; raises what that raised.

        Call it once. While `lead` ends because of `stop` the Lease is still renewed; then it is given back.
        """
        asking = threading.Thread(target=self._ask, name="lease", daemon=True)
        asking.start()
        threading.Thread(target=self._relay, args=(stop,), name="lease-stop", daemon=True).start()
        try:
            while self._await_lease(stop) and self._lead_while_held(stop):
                pass
        finally:
            with self._turn:
                self._over = True
                self._turn.notify_all()
            asking.join(ENDS_WITHIN)
        if self._failure is not None:
            raise self._failure

    def _await_lease(self, stop: threading.Event) -> bool:
        with self._turn:
            self._turn.wait_for(lambda: stop.is_set() or self._left() > 0)
        return not stop.is_set()

    def _lead_while_held(self, stop: threading.Event) -> bool:
        """Whether it ended only because the Lease was lost."""
        lost = threading.Event()
        self._leading = True
        leading = threading.Thread(target=self._lead_in, args=(lost,), name="leading", daemon=True)
        log.info("%s is the leader: it holds the lease %s", self._identity, self._what)
        leading.start()
        was_lost = False
        try:
            with self._turn:
                while self._leading and not stop.is_set() and not was_lost:
                    self._turn.wait(max(0.0, self._left()))
                    was_lost = self._left() <= 0
                was_lost = was_lost and self._leading and not stop.is_set()
                self._may_ask = not was_lost  # until all has ended here, others shall have it
        finally:
            lost.set()
        if was_lost:
            log.warning("%s is no longer the leader: it lost the lease %s", self._identity, self._what)
        leading.join()
        with self._turn:
            self._may_ask = True
            self._turn.notify_all()
        return was_lost and self._failure is None

    def _lead_in(self, lost: threading.Event) -> None:
        try:
            self._lead(lost)
        except BaseException as error:
            self._failure = error
        finally:
            with self._turn:
                self._leading = False
                self._turn.notify_all()

    def _left(self) -> float:
        return self._claim.held_until - time.monotonic()

    def _relay(self, stop: threading.Event) -> None:
        stop.wait()
        with self._turn:
            self._turn.notify_all()

    def _ask(self) -> None:
        """All requests are made here, one after the other."""
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._may_ask or self._over)
                if self._over:
                    break
            left = self._attempt() - time.monotonic()
            with self._turn:
                self._turn.notify_all()
                self._turn.wait_for(lambda: self._over, left if 0 < left < self._retry_every else self._retry_every)
        try:
            self._claim.release()
        except KubernetesError as error:
            log.warning("cannot release the lease %s, it will expire: %s", self._what, error)

    def _attempt(self) -> float:
        """One; what goes wrong is said once, and another follows whatever it was."""
        try:
            free = self._claim.attempt()
        except Exception as error:
            if not self._complained:
                told = error.status.get("message") if isinstance(error, Forbidden) else None
                trace = None if isinstance(error, KubernetesError) else error
                log.warning("cannot reach the lease %s, retrying: %s", self._what, told or error, exc_info=trace)
            self._complained = True
            return math.inf
        if self._complained:
            log.warning("can reach the lease %s again", self._what)
        self._complained = False
        return free


def _acquired(transitions: int) -> Object:
    return {"acquireTime": _now(), "leaseTransitions": transitions}


def _now() -> str:
    """For people who look at the Lease; nobody here reads it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
