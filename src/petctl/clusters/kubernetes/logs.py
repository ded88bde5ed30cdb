"""What pods print, followed from pod to pod: a node's lines with rank and round, and the coordinator's events.

Each pod is read by a thread of its own, begun as soon as the pod has started; a watch finds the pods. What a pod
printed is gone with the pod: that is Kubernetes' way, and why results should have a store.
"""

from __future__ import annotations

import json
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from petctl.agent.stream import parse_tagged
from petctl.clusters.base import LogFilter, LogLine
from petctl.clusters.kubernetes.api import Api, path
from petctl.clusters.kubernetes.failures import Gone, KubernetesError, NoSuchObject, NotStarted

INDEX = "batch.kubernetes.io/job-completion-index"
_STEP = 5.0  # seconds of one watch, after which it is asked whether the job is over
_Item = tuple[str, bytes]  # node, line
_STARTED = ("Running", "Succeeded", "Failed")


def lines_so_far(api: Api, namespace: str, selector: str) -> Iterator[_Item]:
    """Every line that is there, pod after pod in the order in which they were made."""
    pods = api.list(path("pods", namespace), selector)
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        try:
            yield from ((node_of(pod), line) for line in _lines(api.log(namespace, pod["metadata"]["name"])))
        except (NotStarted, NoSuchObject):
            continue


def lines_as_they_come(api: Api, namespace: str, selector: str, over: Callable[[], bool]) -> Iterator[_Item]:
    """The same, and every further line, until the job is over and all of its pods have been read to their end."""
    found: queue.SimpleQueue[_Item | None] = queue.SimpleQueue()
    reading = _Reading(api, namespace, selector, over, found)
    threading.Thread(target=reading.watch, name="pods", daemon=True).start()
    while (item := found.get()) is not None:
        yield item
    if reading.failure is not None:
        raise reading.failure


class _Reading:
    """A watch of pods, and one reader for each that has started."""

    def __init__(
        self, api: Api, namespace: str, selector: str, over: Callable[[], bool], found: queue.SimpleQueue[_Item | None]
    ) -> None:
        self._api, self._namespace, self._selector, self._over, self._found = api, namespace, selector, over, found
        self._readers: dict[str, threading.Thread] = {}
        self.failure: BaseException | None = None

    def watch(self) -> None:
        try:
            while True:
                over = self._over()  # asked first: what is listed after that is complete
                pods = self._api.list(path("pods", self._namespace), self._selector)
                for pod in pods:
                    self._read(pod)
                if over:
                    break
                self._wait(pods.version)
            for reader in self._readers.values():
                reader.join()
        except BaseException as error:
            self.failure = error
        finally:
            self._found.put(None)

    def _wait(self, version: str) -> None:
        try:
            for kind, pod in self._api.watch(path("pods", self._namespace), self._selector, version, _STEP):
                if kind != "BOOKMARK":
                    self._read(pod)
        except Gone:
            pass

    def _read(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._readers or pod.get("status", {}).get("phase") not in _STARTED:
            return
        self._readers[uid] = threading.Thread(target=self._follow, args=(pod,), name="pod-log", daemon=True)
        self._readers[uid].start()

    def _follow(self, pod: dict[str, Any]) -> None:
        node = node_of(pod)
        try:
            for line in _lines(self._api.log(self._namespace, pod["metadata"]["name"], follow=True)):
                self._found.put((node, line))
        except KubernetesError:
            pass  # the pod is gone; what it printed last went with it


def node_of(pod: dict[str, Any]) -> str:
    """The node that a pod is: its index, or for one that was made by hand its own name."""
    found = pod["metadata"].get("annotations", {}).get(INDEX)
    return str(found if found is not None else pod["metadata"]["name"])


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def worker_lines(items: Iterable[_Item], wanted: LogFilter) -> Iterator[LogLine]:
    """The workers' lines among what nodes print, as far as they are wanted."""
    last: dict[tuple[int, int, str], deque[LogLine]] = {}
    for node, text in items:
        chunk = parse_tagged(text)
        if chunk is None:
            continue
        line = LogLine(chunk.name.round, chunk.name.rank, chunk.name.stream, chunk.data, node)
        if any(
            wish is not None and wish != value
            for wish, value in ((wanted.rank, line.rank), (wanted.node, node), (wanted.round, line.round))
        ):
            continue
        if wanted.tail is None:
            yield line
        else:
            last.setdefault((line.round, line.rank, line.stream), deque(maxlen=wanted.tail)).append(line)
    for lines in last.values():
        yield from lines


def event_lines(items: Iterable[_Item]) -> Iterator[dict[str, Any]]:
    """The events among what a coordinator prints."""
    for _, text in items:
        try:
            event = json.loads(text)
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            yield event
