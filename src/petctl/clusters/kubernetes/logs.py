"""What pods have printed, from whichever place on.

Going on as more is printed is `log_follow.py`. What a pod printed is gone with the pod: that is Kubernetes' way, and
why results should have a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from petctl.clusters.kubernetes.names import CONTAINER, by_age, node_of
from petctl.clusters.printed import Item, printed_status
from petctl.job.status import JobStatus
from petctl.kube.api import Api, path
from petctl.kube.failures import Forbidden, KubernetesError, NoSuchObject, NotStarted, Unauthorised

_LAST_LINES = 5  # of its log: its process may have said something behind it
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


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


def lines_so_far(
    api: Api, namespace: str, selector: str, places: dict[str, LogPosition] | None = None
) -> Iterator[Item]:
    """Every line that is there, pod after pod in the order in which they were made.

    One that cannot be read does not hide the others: its failure comes last. `places`: for whoever wants to go on from
    there, filled by the pods' uids; what is unfinished or failed is left to them.
    """
    failure: KubernetesError | None = None
    for pod in by_age(api.list(path("pods", namespace), selector)):
        node, name, place = node_of(pod), pod["metadata"]["name"], LogPosition()
        if places is not None:
            places[pod["metadata"]["uid"]] = place
        try:
            for lines in place.new_lines(api.log(namespace, name, CONTAINER, timestamps=True)):
                yield from ((node, line) for line in lines)
            if places is None and place.torn:
                yield node, place.torn
        except (NotStarted, NoSuchObject):
            continue
        except (Forbidden, Unauthorised):
            raise
        except KubernetesError as error:
            failure = failure or error
    if failure is not None and places is None:
        raise failure


def last_status(api: Api, namespace: str, pods: Iterable[dict[str, Any]]) -> JobStatus | None:
    """The status that a coordinator printed as it ended; None where its log is gone or cannot be read."""
    for pod in by_age(pods):
        try:
            printed = b"".join(api.log(namespace, pod["metadata"]["name"], CONTAINER, tail=_LAST_LINES))
        except KubernetesError:
            continue
        status = printed_status(printed.splitlines())
        if status is not None:
            return status
    return None
