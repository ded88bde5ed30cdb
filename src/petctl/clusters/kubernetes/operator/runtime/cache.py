"""What the server has of one kind, near at hand: listed, then watched, listed again when the watch cannot go on.

It tells that something has changed, never what to do about it; it knows no kinds, and writes nothing. `put` lets those
who write see what they wrote before the watch tells it. Of two states of an object the newer one wins: its versions are
numbers that rise (Kubernetes promises so); where they are none, what came last wins.

    the watch ended, or was cut        watched again from the version reached
    ... twice in a row, or Gone        listed anew; what differs is told
    the server is away, or fails       again for ever, after pauses that grow to LONGEST; said once, and when it is back
    these credentials may not do it    again every REFUSED seconds
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from petctl.kube.api import Api, Items
from petctl.kube.failures import Forbidden, Gone, KubernetesError, ServerUnreachable, Unauthorised

FIRST, LONGEST = 0.2, 10.0  # seconds between two attempts, at first and at most
REFUSED = 30.0  # seconds, where somebody has to grant a right first
WATCH = 300.0  # seconds of one watch
ENDS_WITHIN = 5.0  # seconds that `stop` waits for a thread that is in the middle of a request

Object = dict[str, Any]
_Key = tuple[str, str]

log = logging.getLogger(__name__)


def without_managed_fields(thing: Object) -> Object:
    """An object without the record of who set which field: nobody here reads it, and it is half of a small object."""
    about = {name: value for name, value in thing["metadata"].items() if name != "managedFields"}
    return {**thing, "metadata": about}


class Cache:
    """All objects of one kind, as the server has them. Whoever gets an object from it must not change it.

    `changed` is called from the cache's thread for every object that came, changed or went, once each after a list
    for those that differ; and again for what `put` brought, when the watch tells it. `slim` makes objects smaller.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        selector: str,
        changed: Callable[[Object], None],
        slim: Callable[[Object], Object] = without_managed_fields,
    ) -> None:
        self._api, self._path, self._selector = api, path, selector
        self._changed, self._slim = changed, slim
        self._lock = threading.Lock()
        self._objects: dict[_Key, Object] = {}
        self._owned: dict[str, set[_Key]] = {}
        self._reached = ""  # all that happened up to this version has been told; empty: list first
        self._put_meanwhile: set[_Key] | None = None  # since a list was begun that has not ended
        self._listed, self._stopping = threading.Event(), threading.Event()
        self._cut: Callable[[], None] | None = None
        self._absence = _Absence(path)
        self._thread = threading.Thread(target=self._run, name=f"cache {path}", daemon=True)

    def start(self) -> None:
        """Begins to list and watch; `synced` tells when the first list is there."""
        self._thread.start()

    def stop(self) -> None:
        """Ends a running watch; nothing is told afterwards."""
        self._stopping.set()
        with self._lock:
            cut = self._cut
        if cut is not None:
            cut()
        if self._thread.is_alive():
            self._thread.join(ENDS_WITHIN)

    def synced(self, timeout: float) -> bool:
        """Whether all that was there at first is known, and told; waits for it."""
        return self._listed.wait(timeout)

    def get(self, namespace: str, name: str) -> Object | None:
        """The object of that name, if there is one; what belongs to no namespace has an empty one."""
        with self._lock:
            return self._objects.get((namespace, name))

    def all(self) -> list[Object]:
        """Every object."""
        with self._lock:
            return list(self._objects.values())

    def of(self, owner_uid: str) -> list[Object]:
        """Those that this owner controls, by namespace and name."""
        with self._lock:
            return [self._objects[key] for key in sorted(self._owned.get(owner_uid, ()))]

    def put(self, thing: Object) -> None:
        """What a write of our own returned. It must be one that this cache lists: the watch has to tell its end."""
        thing = self._slim(thing)
        key, version = _key(thing), _version(thing)
        with self._lock:
            known = self._objects.get(key)
            if known is not None and _is_older(version, _version(known)):
                return
            if known is None and (version == self._reached or _is_older(version, self._reached)):
                return  # the watch has told all about it, and it is not here: it has gone meanwhile
            if self._put_meanwhile is not None:
                self._put_meanwhile.add(key)
            self._store(key, thing)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                if not self._reached:
                    self._list()
                self._watch()
            except Exception as error:
                if self._stopping.is_set():
                    return
                pause = self._absence.pause(error)
                if isinstance(error, Gone) or self._absence.failures > 1:
                    with self._lock:
                        self._reached = ""
                self._stopping.wait(pause)

    def _list(self) -> None:
        with self._lock:
            self._put_meanwhile = set()
        try:
            found = self._api.list(self._path, self._selector)
            with self._lock:
                differing = self._take_over(found, self._put_meanwhile or set())
        finally:
            with self._lock:
                self._put_meanwhile = None
        self._tell(differing)
        self._listed.set()

    def _take_over(self, found: Items, put_meanwhile: set[_Key]) -> list[Object]:
        """The list is the truth, but for what was put while it was made and is newer; all that differs from before."""
        listed = {_key(thing): self._slim(thing) for thing in found}
        differing = []
        for key, known in list(self._objects.items()):
            thing = listed.get(key)
            if key in put_meanwhile and _is_older(_version(thing) if thing else found.version, _version(known)):
                listed.pop(key, None)
            elif thing is None or _uid(thing) != _uid(known):
                self._remove(key)
                differing.append(known)
        for key, thing in listed.items():
            if key not in self._objects or _version(self._objects[key]) != _version(thing):
                differing.append(thing)
            self._store(key, thing)
        self._reached = found.version
        return differing

    def _watch(self) -> None:
        begun, heard = time.monotonic(), False
        try:
            for kind, thing in self._api.watch(self._path, self._selector, self._reached, WATCH, self._begun):
                if self._stopping.is_set():
                    return
                heard = True
                self._tell(self._take_in(kind, thing))
        finally:
            with self._lock:
                self._cut = None
            lasted = time.monotonic() - begun
            if heard or lasted > LONGEST:
                self._absence.failures = 0
        if not heard and lasted < 1.0:  # a healthy server keeps it for minutes
            raise ServerUnreachable(f"the server ends every watch of {self._path} at once")

    def _begun(self, cut: Callable[[], None]) -> None:
        self._absence.ended()
        with self._lock:
            self._cut = cut
        if self._stopping.is_set():
            cut()

    def _take_in(self, kind: str, thing: Object) -> list[Object]:
        """One event of the watch; what is to be told."""
        version = _version(thing)
        if kind == "BOOKMARK":
            with self._lock:
                self._reached = version
            return []
        thing = self._slim(thing)
        key = _key(thing)
        with self._lock:
            self._reached = version
            known = self._objects.get(key)
            newer = known is None or not _is_older(version, _version(known))
            if kind == "DELETED":
                if known is not None and newer and _uid(known) == _uid(thing):
                    self._remove(key)
                return [thing]
            if not newer:
                return []
            self._store(key, thing)
            return [thing]

    def _tell(self, things: Iterable[Object]) -> None:
        for thing in things:
            if self._stopping.is_set():
                return
            try:
                self._changed(thing)
            except Exception:  # it must not end the watch
                log.exception("cannot handle a change of %s", "/".join(filter(None, _key(thing))))

    def _store(self, key: _Key, thing: Object) -> None:
        self._remove(key)
        self._objects[key] = thing
        for owner in _owners(thing):
            self._owned.setdefault(owner, set()).add(key)

    def _remove(self, key: _Key) -> None:
        known = self._objects.pop(key, None)
        for owner in _owners(known) if known is not None else ():
            keys = self._owned[owner]
            keys.discard(key)
            if not keys:
                del self._owned[owner]


class _Absence:
    """What keeps a cache from the server: said once, borne with pauses that grow."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._said: type[Exception] | None = None
        self.failures = 0  # in a row

    def pause(self, error: Exception) -> float:
        """How long to wait now. A single cut is no absence: connections end all the time."""
        self.failures += 1
        passing = isinstance(error, (ServerUnreachable, Gone))
        if type(error) is not self._said and not (passing and self.failures == 1):
            self._said = type(error)
            if isinstance(error, KubernetesError):
                told = error.status.get("message") if isinstance(error, Forbidden) else None
                log.warning("cannot watch %s, retrying: %s", self._path, told or error)
            else:
                log.exception("cannot watch %s, retrying", self._path)
        if isinstance(error, (Forbidden, Unauthorised)):
            return REFUSED
        return min(FIRST * 2.0 ** min(self.failures - 1, 30), LONGEST) * random.uniform(0.5, 1.0)

    def ended(self) -> None:
        """The server has accepted a watch."""
        if self._said is not None:
            log.warning("watches %s again", self._path)
            self._said = None


def _key(thing: Object) -> _Key:
    return str(thing["metadata"].get("namespace") or ""), str(thing["metadata"]["name"])


def _uid(thing: Object) -> str:
    return str(thing["metadata"].get("uid") or "")


def _version(thing: Object) -> str:
    return str(thing["metadata"].get("resourceVersion") or "")


def _is_older(version: str, other: str) -> bool:
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _owners(thing: Object) -> list[str]:
    """Those that control it: one, as the API has it."""
    return [owner["uid"] for owner in thing["metadata"].get("ownerReferences") or () if owner.get("controller")]
