"""Pods that a test makes, prints with and deletes, behind the methods of `Api` that read them. No server, no waiting:
what a reader would wait for is an event that the test sets off."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from petctl.clusters.kubernetes.names import COMPLETION_INDEX as INDEX
from petctl.clusters.kubernetes.names import NODE, ROLE
from petctl.kube.api import Api, Items
from petctl.kube.failures import Gone, KubernetesError, NoSuchObject

NAMESPACE = "team"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class Pod:
    """One of them: what it printed, each entry with its time, and where its stream was cut."""

    def __init__(self, name: str, node: int | None, role: str = NODE, phase: str = "Running", born: int = 0) -> None:
        annotations = {INDEX: str(node)} if node is not None else {}
        self.object: dict[str, Any] = {
            "metadata": {
                "name": name,
                "uid": f"uid-{name}",
                "labels": {ROLE: role},
                "annotations": annotations,
                "creationTimestamp": f"2026-01-02T03:04:{born:02d}Z",
            },
            "status": {"phase": phase},
        }
        self.printed: list[tuple[str, bytes]] = []
        self.cuts: list[KubernetesError | None] = []  # how streams end before the pod does, one after the other
        self.failure: KubernetesError | None = None  # of every attempt to read it

    def name(self) -> str:
        return str(self.object["metadata"]["name"])


class Pods:
    """All pods of a job. Times are whole hundredths of a second, so several lines share one."""

    def __init__(self, *pods: Pod) -> None:
        self._changed = threading.Condition()
        self._pods = {pod.name(): pod for pod in pods}
        self._changes: list[tuple[str, dict[str, Any]]] = []
        self._clock = 0
        self.gone = 0  # how many watches are to end with 410
        self.asked: list[tuple[str, str | None]] = []  # pod, since: every stream that was begun
        self.over = False
        self.away: list[KubernetesError] = []  # what the next lists meet

    @property
    def api(self) -> Api:
        return cast(Api, self)

    # -- what happens --------------------------------------------------------------------------------------------------

    def add(self, pod: Pod) -> None:
        with self._changed:
            self._pods[pod.name()] = pod
            self._tell("ADDED", pod)

    def print(self, name: str, *entries: bytes, at: int | None = None) -> None:
        """Entries of the log, each a line or a piece of one."""
        with self._changed:
            for entry in entries:
                self._clock = self._clock + 1 if at is None else at
                second, part = divmod(self._clock, 100)
                self._pods[name].printed.append((f"2026-01-02T03:05:{second:02d}.{part:02d}0000000Z", entry))
            self._changed.notify_all()

    def cut(self, name: str, how: KubernetesError | None) -> None:
        """The pod's stream ends, with an error or without a word; the pod goes on."""
        with self._changed:
            self._pods[name].cuts.append(how)
            self._changed.notify_all()

    def phase(self, name: str, phase: str) -> None:
        with self._changed:
            self._pods[name].object["status"] = {"phase": phase}
            self._tell("MODIFIED", self._pods[name])

    def delete(self, name: str) -> None:
        with self._changed:
            self._tell("DELETED", self._pods.pop(name))

    def finish(self) -> None:
        """The job is over."""
        with self._changed:
            self.over = True
            self._changed.notify_all()

    def _tell(self, kind: str, pod: Pod) -> None:
        self._changes.append((kind, dict(pod.object)))
        self._changed.notify_all()

    # -- as Api --------------------------------------------------------------------------------------------------------

    def list(self, path: str, selector: str = "") -> Items:
        assert path == _PODS
        with self._changed:
            if self.away:
                raise self.away.pop(0)
            wanted = dict(term.split("=") for term in selector.split(",") if term.startswith(ROLE))
            found = [dict(pod.object) for pod in self._pods.values()]
            items = Items(pod for pod in found if wanted.items() <= pod["metadata"]["labels"].items())
            items.version = str(len(self._changes))
            return items

    def get(self, path: str) -> dict[str, Any]:
        with self._changed:
            name = path.removeprefix(f"{_PODS}/")
            if name not in self._pods:
                raise NoSuchObject(f'pods "{name}" not found')
            return dict(self._pods[name].object)

    def watch(self, path: str, selector: str, version: str, timeout: float) -> Iterator[tuple[str, dict[str, Any]]]:
        seen = int(version)
        yield "BOOKMARK", {"metadata": {"resourceVersion": version}}
        with self._changed:
            if self.gone:
                self.gone -= 1
                raise Gone("too old resource version")
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._has_news, seen), timeout)
                news = self._changes[seen:]
            if not news:
                return
            seen += len(news)
            yield from news

    def log(
        self,
        namespace: str,
        pod: str,
        container: str = "",
        follow: bool = False,
        since_time: str | None = None,
        timestamps: bool = False,
    ) -> Iterator[bytes]:
        assert (namespace, container, timestamps) == (NAMESPACE, "petctl", True)
        self.asked.append((pod, since_time))
        with self._changed:
            found = self._pods.get(pod)
            if found is None:
                raise NoSuchObject(f'pods "{pod}" not found')
            if found.failure is not None:
                raise found.failure
        sent, whole, least = 0, True, (since_time or "")[:19]  # whole seconds only
        while True:
            with self._changed:
                self._changed.wait_for(partial(self._can_go_on, found, sent, follow))
                entries = found.printed[sent:]
                cut = found.cuts.pop(0) if not entries and found.cuts else "no"
            sent += len(entries)
            for time, text in entries:
                began, whole = whole, text.endswith(b"\n")
                if time >= least:
                    yield (time.encode() + b" " if began else b"") + text
            if isinstance(cut, KubernetesError):
                raise cut
            if not entries and (cut is None or not follow or self._has_ended(found)):
                return

    def _has_news(self, seen: int) -> bool:
        return len(self._changes) > seen or self.over

    def _can_go_on(self, pod: Pod, sent: int, follow: bool) -> bool:
        return len(pod.printed) > sent or bool(pod.cuts) or not follow or self._has_ended(pod)

    def _has_ended(self, pod: Pod) -> bool:
        return pod.name() not in self._pods or pod.object["status"]["phase"] in ("Succeeded", "Failed")
