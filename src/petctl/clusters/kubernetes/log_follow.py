"""What pods print, as they print it, from pod to pod until the job is over.

Each pod is read by a thread of its own, begun as soon as the pod has started; a watch finds the pods. A stream that
ends before its pod does (the API server or the pod's kubelet was started anew) is taken up again where it ended. All
wait for whoever takes the lines, and end when there is something for one who has gone.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from petctl.clusters.kubernetes.logs import LogPosition
from petctl.clusters.kubernetes.names import CONTAINER, COORDINATOR, ROLE, node_of
from petctl.clusters.patience import FIRST, LONGEST, Patience
from petctl.clusters.printed import Item
from petctl.kube.api import Api, path
from petctl.kube.failures import (
    Forbidden,
    Gone,
    KubernetesError,
    NoSuchObject,
    ServerUnreachable,
    Unauthorised,
)
from petctl.retry import Backoff

_STEP = 5.0  # seconds of one watch, after which it is asked whether the job is over
_LAST = 20.0  # seconds without a line, after the job's end, for which a log that does not end is waited for
_WAITING = 64  # texts of one read each, so a few MiB
_STARTED = ("Running", "Succeeded", "Failed")


def lines_as_they_come(
    api: Api,
    namespace: str,
    job: str,
    role: str,
    over: Callable[[], bool],
    places: dict[str, LogPosition] | None = None,
) -> Iterator[Item]:
    """Every line of a job's pods of one role until the job is over and all of them have been read to their end.

    `job` selects all pods of the job; `places`: how far some have been read already.
    """
    box = _Box()
    reading = _Reading(api, namespace, job, role, over, box, dict(places or {}))
    threading.Thread(target=reading.watch, name="pods", daemon=True).start()
    try:
        while (found := box.take()) is not None:
            node, lines = found
            yield from ((node, line) for line in lines)
    finally:
        box.close()


class _Box:
    """Where readers put lines, and wait while there are many that nobody has taken."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._items: deque[tuple[str, list[bytes]]] = deque()
        self._failure: BaseException | None = None
        self.closed = False
        self.count = 0  # of all that was ever put

    @property
    def empty(self) -> bool:
        """Whether all has been taken."""
        return not self._items

    def put(self, node: str, lines: list[bytes]) -> bool:
        """Whether anybody still wants them."""
        with self._turn:
            self._turn.wait_for(lambda: self.closed or len(self._items) < _WAITING)
            if not self.closed:
                self.count += 1
                self._items.append((node, lines))
                self._turn.notify_all()
            return not self.closed

    def take(self) -> tuple[str, list[bytes]] | None:
        """The next ones; None when it was closed and all are taken. Raises what it was closed with."""
        with self._turn:
            self._turn.wait_for(lambda: self.closed or self._items)
            if self._items:
                self._turn.notify_all()
                return self._items.popleft()
            if self._failure is not None:
                raise self._failure
            return None

    def close(self, failure: BaseException | None = None) -> None:
        """No more is put; the first who closes it says why."""
        with self._turn:
            if not self.closed:
                self.closed, self._failure = True, failure
            self._turn.notify_all()


class _Reading:
    """A watch of pods, and one reader for each that has started."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        job: str,
        role: str,
        over: Callable[[], bool],
        box: _Box,
        places: dict[str, LogPosition],
    ) -> None:
        self._api, self._namespace, self._job, self._role = api, namespace, job, role
        self._ask_whether_over, self._box, self._places = over, box, places
        self._readers: dict[str, threading.Thread] = {}
        self._over = threading.Event()

    def watch(self) -> None:
        """Finds pods until the job is over, then waits for their readers."""
        patience = Patience()
        try:
            while not self._over.is_set() and not self._box.closed:
                try:
                    self._look()
                    patience.restored()
                except ServerUnreachable as failure:
                    patience.wait_and_retry(failure)
            self._wait_for_readers()
            self._box.close()
        except BaseException as failure:
            self._box.close(failure)
        finally:
            self._over.set()

    def _look(self) -> None:
        over = self._ask_whether_over()  # asked first: what is listed after that is complete
        pods = self._api.list(path("pods", self._namespace), self._job)
        for pod in pods:
            self._read(pod)
        if over:
            self._over.set()
            return
        try:
            for kind, pod in self._api.watch(path("pods", self._namespace), self._job, pods.version, _STEP):
                if kind == "BOOKMARK":
                    continue
                self._read(pod)
                if _role(pod) == COORDINATOR and (kind == "DELETED" or _has_ended(pod)):
                    return  # the job may be over
        except Gone:
            pass

    def _read(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if _role(pod) != self._role or uid in self._readers or pod.get("status", {}).get("phase") not in _STARTED:
            return
        self._readers[uid] = threading.Thread(target=self._follow, args=(pod,), name="pod-log", daemon=True)
        self._readers[uid].start()

    def _wait_for_readers(self) -> None:
        """To their end; but a pod on a machine that nobody reaches may have a log without one."""
        for reader in self._readers.values():
            while reader.is_alive() and not self._box.closed:
                count = self._box.count
                reader.join(_LAST)
                if reader.is_alive() and self._box.empty and self._box.count == count:
                    return

    def _follow(self, pod: dict[str, Any]) -> None:
        try:
            self._follow_to_its_end(node_of(pod), pod["metadata"]["name"], pod["metadata"]["uid"])
        except BaseException as failure:
            self._box.close(failure)

    def _follow_to_its_end(self, node: str, name: str, uid: str) -> None:
        place, backoff = self._places.setdefault(uid, LogPosition()), Backoff(FIRST, LONGEST)
        while not self._box.closed:
            over = self._over.is_set()
            try:
                chunks = self._api.log(
                    self._namespace, name, CONTAINER, follow=True, since_time=place.since, timestamps=True
                )
                for lines in place.new_lines(chunks):
                    backoff.restart()
                    if not self._box.put(node, lines):
                        return
                if over or self._has_gone(name):
                    if place.torn:
                        self._box.put(node, [place.torn])
                    return
            except NoSuchObject:
                return  # what it printed last went with it
            except (Forbidden, Unauthorised):
                raise
            except KubernetesError:
                if over:
                    return
            self._over.wait(backoff.pause())

    def _has_gone(self, name: str) -> bool:
        try:
            return _has_ended(self._api.get(path("pods", self._namespace, name)))
        except NoSuchObject:
            return True


def _role(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("labels", {}).get(ROLE, ""))


def _has_ended(pod: dict[str, Any]) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
