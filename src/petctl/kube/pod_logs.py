"""What a container prints in pods: all that is there, and what comes, from pod to pod. Each line once.

A pod is followed by a thread of its own, begun as soon as the pod has started; a watch finds the pods. A stream that
ends before its pod does (the API server or the pod's kubelet was started anew) is taken up again where it ended. All
wait for whoever takes the lines, and end when there is something for one who has gone. What a pod printed is gone with
the pod.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from petctl.kube.api import Api, path
from petctl.kube.failures import (
    Forbidden,
    Gone,
    KubernetesError,
    NoSuchObject,
    NotStarted,
    ServerUnreachable,
    Unauthorised,
)
from petctl.kube.objects import Object, by_age, has_ended, labels_of, phase
from petctl.retry import Backoff

Line = tuple[Object, bytes]  # of which pod
_FIRST, _LONGEST = 0.5, 5.0  # pauses between two attempts
_AWAY = 300.0  # seconds for which a server that does not answer is waited for
_STEP = 5.0  # seconds of one watch, after which it is asked whether all is over
_LAST = 20.0  # seconds without a line, when all is over, for which a log that does not end is waited for
_WAITING = 64  # texts of one read each, so a few MiB
_STARTED = ("Running", "Succeeded", "Failed")
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


class PodLogs:
    """What a container prints in pods of `selector` that bear `label`, for one reader."""

    def __init__(self, api: Api, namespace: str, container: str, selector: str, label: tuple[str, str]) -> None:
        self._api, self._pods, self._namespace = api, path("pods", namespace), namespace
        self._container, self._selector, self._label = container, selector, label
        self._positions: dict[str, LogPosition] = {}  # by the pods' uids

    def so_far(self, then_follow: bool = False) -> Iterator[Line]:
        """Every line that is there, pod after pod in the order in which they were made.

        One that cannot be read does not hide the others: its failure comes last. `then_follow`: what is unfinished or
        failed is left to `follow`, which goes on from there.
        """
        failure: KubernetesError | None = None
        for pod in by_age(self._api.list(self._pods, ",".join([self._selector, "=".join(self._label)]))):
            position = LogPosition()
            if then_follow:
                self._positions[pod["metadata"]["uid"]] = position
            try:
                for lines in position.new_lines(self._stream(pod)):
                    yield from ((pod, line) for line in lines)
                if not then_follow and position.torn:
                    yield pod, position.torn
            except (NotStarted, NoSuchObject):
                continue
            except (Forbidden, Unauthorised):
                raise
            except KubernetesError as error:
                failure = failure or error
        if failure is not None and not then_follow:
            raise failure

    def follow(self, over: Callable[[], bool], ends: str) -> Iterator[Line]:
        """Every further line until all is over and every log has been read to its end. `over` is asked now and then,
        and at once when a pod whose label says `ends` has ended."""
        box, done, readers = _Box(), threading.Event(), dict[str, threading.Thread]()

        def read(pod: Object) -> str:
            """Begins to read a pod of those that are wanted; what its label says."""
            uid, said = pod["metadata"]["uid"], str(labels_of(pod).get(self._label[0], ""))
            if said == self._label[1] and uid not in readers and phase(pod) in _STARTED:
                words = (pod, box, done)
                readers[uid] = threading.Thread(target=self._read, args=words, name="pod-log", daemon=True)
                readers[uid].start()
            return said

        def look() -> None:
            last = over()  # asked first: what is listed after that is complete
            pods = self._api.list(self._pods, self._selector)
            for pod in pods:
                read(pod)
            if last:
                done.set()
                return
            try:
                for kind, pod in self._api.watch(self._pods, self._selector, pods.version, _STEP):
                    if kind != "BOOKMARK" and read(pod) == ends and (kind == "DELETED" or has_ended(pod)):
                        return
            except Gone:
                pass

        def watch() -> None:
            backoff = Backoff(_FIRST, _LONGEST, _AWAY)
            try:
                while not done.is_set() and not box.closed:
                    try:
                        look()
                        backoff.restart()
                    except ServerUnreachable as failure:
                        backoff.wait(failure)
                _wait_for_readers(list(readers.values()), box)
                box.close()
            except BaseException as failure:
                box.close(failure)
            finally:
                done.set()

        threading.Thread(target=watch, name="pods", daemon=True).start()
        try:
            while (found := box.take()) is not None:
                pod, lines = found
                yield from ((pod, line) for line in lines)
        finally:
            box.close()

    def _stream(self, pod: Object, **how: Any) -> Iterator[bytes]:
        return self._api.log(self._namespace, pod["metadata"]["name"], self._container, timestamps=True, **how)

    def _read(self, pod: Object, box: _Box, done: threading.Event) -> None:
        try:
            self._read_to_its_end(pod, box, done)
        except BaseException as failure:
            box.close(failure)

    def _read_to_its_end(self, pod: Object, box: _Box, done: threading.Event) -> None:
        position = self._positions.setdefault(pod["metadata"]["uid"], LogPosition())
        backoff = Backoff(_FIRST, _LONGEST)
        while not box.closed:
            last = done.is_set()
            try:
                for lines in position.new_lines(self._stream(pod, follow=True, since_time=position.since)):
                    backoff.restart()
                    if not box.put(pod, lines):
                        return
                if last or self._has_gone(pod):
                    if position.torn:
                        box.put(pod, [position.torn])
                    return
            except NoSuchObject:
                return  # what it printed last went with it
            except (Forbidden, Unauthorised):
                raise
            except KubernetesError:
                if last:
                    return
            done.wait(backoff.pause())

    def _has_gone(self, pod: Object) -> bool:
        try:
            return has_ended(self._api.get(f"{self._pods}/{pod['metadata']['name']}"))
        except NoSuchObject:
            return True


def last_lines(api: Api, namespace: str, pods: Iterable[Object], container: str, count: int) -> Iterator[list[bytes]]:
    """The last lines of each pod, the oldest first; nothing of one whose log is gone or cannot be read."""
    for pod in by_age(pods):
        try:
            yield b"".join(api.log(namespace, pod["metadata"]["name"], container, tail=count)).splitlines()
        except KubernetesError:
            continue


def _wait_for_readers(readers: Iterable[threading.Thread], box: _Box) -> None:
    """To their end; but a pod on a machine that nobody reaches may have a log without one."""
    for reader in readers:
        while reader.is_alive() and not box.closed:
            count = box.count
            reader.join(_LAST)
            if reader.is_alive() and box.empty and box.count == count:
                return


class LogPosition:
    """How far a pod's log has been read. A further stream goes on there, however much of it is told again.

    The server can begin at a second, not at a line; the time that it puts before each line says which were there.
    """

    def __init__(self) -> None:
        self._last = b""  # time of the last whole line
        self._same = 0  # whole lines of that time
        self.torn = b""  # what a stream ended with that is no whole line

    @property
    def since(self) -> str | None:
        """Where a further stream should begin."""
        return self._last.decode() or None

    def new_lines(self, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """The whole lines of a stream that were in none before; as many at once as came at once."""
        last, same, again = self._last, self._same, bool(self._last)
        rest = self.torn = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            found = []
            for line in lines:
                time, text = _timed(line)
                if again and (not time or time < last):  # without a time: the end of a line that began before
                    continue
                if again and time == last and same:
                    same -= 1
                    continue
                if time:
                    again = False
                    self._same = self._same + 1 if time == self._last else 1
                    self._last = time
                found.append(text + b"\n")
            if found:
                yield found
        if not again:
            self.torn = _timed(rest)[1]


def _timed(line: bytes) -> tuple[bytes, bytes]:
    time, _, text = line.partition(b" ")
    return (time, text) if _TIME.fullmatch(time) else (b"", line)


class _Box:
    """Where readers put lines, and wait while there are many that nobody has taken."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._items: deque[tuple[Object, list[bytes]]] = deque()
        self._failure: BaseException | None = None
        self.closed = False
        self.count = 0  # of all that was ever put

    @property
    def empty(self) -> bool:
        """Whether all has been taken."""
        return not self._items

    def put(self, pod: Object, lines: list[bytes]) -> bool:
        """Whether anybody still wants them."""
        with self._turn:
            self._turn.wait_for(lambda: self.closed or len(self._items) < _WAITING)
            if not self.closed:
                self.count += 1
                self._items.append((pod, lines))
                self._turn.notify_all()
            return not self.closed

    def take(self) -> tuple[Object, list[bytes]] | None:
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
