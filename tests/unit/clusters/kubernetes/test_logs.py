"""What pods have printed: whole lines, once each, and what they mean."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.clusters.base import LogFilter, LogLine
from petctl.clusters.kubernetes.backend import PodOutput
from petctl.clusters.kubernetes.names import node_of
from petctl.clusters.printed import Item, event_lines, printed_status, worker_lines
from petctl.controller.journals.records import first_status
from petctl.kube.api import Api, Items
from petctl.kube.failures import Forbidden, KubernetesError, NoSuchObject, NotStarted
from petctl.kube.pod_logs import LogPosition, last_lines
from tests.unit.clusters.kubernetes.pods import NAMESPACE, Pod, Pods
from tests.unit.records import job_record


def reading(pods: Pods, then_follow: bool = False) -> Iterator[Item]:
    return PodOutput((pods.api, NAMESPACE), "x", "node").so_far(then_follow)


def so_far(pods: Pods, then_follow: bool = False) -> list[Item]:
    return list(reading(pods, then_follow))


# -- one log -----------------------------------------------------------------------------------------------------------


def stream(*lines: tuple[int, bytes]) -> bytes:
    return b"".join(b"2026-01-02T03:04:%02d.000000000Z %s\n" % line for line in lines)


def read(place: LogPosition, *chunks: bytes) -> list[bytes]:
    return [line for lines in place.new_lines(chunks) for line in lines]


@settings(deadline=None)
@given(st.data())
def test_a_stream_is_the_same_however_it_is_cut(data: st.DataObject) -> None:
    whole = stream((1, b"one"), (1, b""), (2, b"two 2026-01-02T03:04:05Z"), (3, b"\xff\r"))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)])]
    assert read(LogPosition(), *chunks) == [b"one\n", b"\n", b"two 2026-01-02T03:04:05Z\n", b"\xff\r\n"]


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data())
def test_a_second_stream_tells_only_what_the_first_did_not(times: list[int], data: st.DataObject) -> None:
    entries = [(time, b"%d" % number) for number, time in enumerate(sorted(times))]
    first = data.draw(st.integers(0, len(entries)))
    place = LogPosition()
    found = read(place, stream(*entries[:first]))
    since = int(place.since[17:19]) if place.since else 0
    found += read(place, stream(*(entry for entry in entries if entry[0] >= since)))
    assert found == [b"%d\n" % number for number in range(len(entries))]


def test_the_end_of_a_line_that_began_before_the_stream_is_not_a_line() -> None:
    place = LogPosition()
    assert read(place, stream((1, b"one"), (2, b"two"))) == [b"one\n", b"two\n"]
    assert read(place, b"rest of one\n", stream((2, b"two"), (3, b"three"))) == [b"three\n"]


def test_a_torn_line_is_kept_apart_and_told_again() -> None:
    place = LogPosition()
    assert read(place, stream((1, b"one")), b"2026-01-02T03:04:02.000000000Z tw") == [b"one\n"]
    assert place.torn == b"tw"
    assert read(place, stream((1, b"one"), (2, b"two"))) == [b"two\n"]
    assert place.torn == b""


def test_words_of_the_kubelet_have_no_time_and_are_lines_too() -> None:
    assert read(LogPosition(), b"unable to retrieve container logs\n") == [b"unable to retrieve container logs\n"]


# -- all that is there -------------------------------------------------------------------------------------------------


def test_pods_are_read_in_the_order_in_which_they_were_made() -> None:
    pods = Pods(Pod("n-0-b", 0, born=5), Pod("n-0-a", 0, phase="Failed", born=1), Pod("by-hand", None, born=9))
    for name in ("n-0-b", "by-hand", "n-0-a"):
        pods.print(name, f"of {name}\n".encode())
    assert so_far(pods) == [("0", b"of n-0-a\n"), ("0", b"of n-0-b\n"), ("by-hand", b"of by-hand\n")]


def test_pods_of_the_coordinator_are_not_nodes() -> None:
    pods = Pods(Pod("c-0-a", 0, role="coordinator"), Pod("n-0-a", 0))
    pods.print("c-0-a", b"{}\n")
    assert so_far(pods) == []


def test_a_torn_last_line_is_shown() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"[0.1] whole\n", b"[0.1] to")
    assert so_far(pods) == [("0", b"[0.1] whole\n"), ("0", b"[0.1] to")]
    assert so_far(pods, then_follow=True) == [("0", b"[0.1] whole\n")]  # whoever goes on from there will see all of it


def test_a_pod_that_has_not_started_or_is_gone_is_passed_over() -> None:
    pods = Pods(Pod("n-0-a", 0), Pod("n-1-a", 1), Pod("n-2-a", 2))
    pods.print("n-2-a", b"here\n")
    pods._pods["n-0-a"].failure = NotStarted("waiting to start")
    listed = pods.list

    def list_then_delete(path: str, selector: str = "") -> Items:
        found = listed(path, selector)
        pods.delete("n-1-a")
        return found

    pods.list = list_then_delete  # type: ignore[method-assign]
    assert so_far(pods) == [("2", b"here\n")]


def test_a_pod_that_cannot_be_read_hides_no_other_and_is_told_last() -> None:
    pods = Pods(Pod("n-0-a", 0, born=1), Pod("n-1-a", 1, born=2))
    pods.print("n-1-a", b"here\n")
    pods._pods["n-0-a"].failure = KubernetesError("no route to its machine")
    found = []
    with pytest.raises(KubernetesError, match="no route"):
        for item in reading(pods):
            found.append(item)  # noqa: PERF402  what came before the error counts
    assert found == [("1", b"here\n")]
    assert so_far(pods, then_follow=True) == [("1", b"here\n")]


def test_who_may_not_read_logs_hears_it_at_once() -> None:
    pods = Pods(Pod("n-0-a", 0), Pod("n-1-a", 1))
    pods._pods["n-0-a"].failure = Forbidden("may not get pods/log")
    with pytest.raises(Forbidden):
        so_far(pods)
    assert [pod for pod, _ in pods.asked] == ["n-0-a"]


def test_a_node_is_its_index_or_the_name_of_a_pod_made_by_hand() -> None:
    assert node_of(Pod("n-0-a", 0).object) == "0"
    assert node_of(Pod("by-hand", None).object) == "by-hand"
    assert node_of({"metadata": {"name": "bare"}}) == "bare"


# -- what it means -----------------------------------------------------------------------------------------------------

PRINTED: list[Item] = [
    ("0", b"[0.1] a\n"),
    ("1", b"[1.1!] b\n"),
    ("1", b"petctl-agent: joined\n"),
    ("0", b"[petctl: 3 lines dropped, the reader is slow]\n"),
    ("0", b"[0.2] c\n"),
    ("0", b"[0.2] d\n"),
    ("0", b"[0.2!] e\n"),
    ("1", b"[1.2] torn"),
]


def texts(wanted: LogFilter) -> list[bytes]:
    return [line.text for line in worker_lines(PRINTED, wanted)]


def test_workers_lines_have_rank_round_stream_and_node() -> None:
    first, second, *_ = worker_lines(PRINTED, LogFilter())
    assert first == LogLine(1, 0, "out", b"a\n", "0")
    assert second == LogLine(1, 1, "err", b"b\n", "1")
    assert texts(LogFilter()) == [b"a\n", b"b\n", b"c\n", b"d\n", b"e\n", b"torn"]


@pytest.mark.parametrize(
    "wanted, expected",
    [
        (LogFilter(rank=0), [b"a\n", b"c\n", b"d\n", b"e\n"]),
        (LogFilter(node="1"), [b"b\n", b"torn"]),
        (LogFilter(round=1), [b"a\n", b"b\n"]),
        (LogFilter(rank=1, round=2), [b"torn"]),
        (LogFilter(rank=7), []),
        (LogFilter(tail=1), [b"d\n", b"e\n", b"torn"]),
        (LogFilter(tail=9), [b"c\n", b"d\n", b"e\n", b"torn"]),
        (LogFilter(tail=1, round=1), [b"a\n", b"b\n"]),
        (LogFilter(tail=1, rank=1), [b"torn"]),
        (LogFilter(tail=0), []),
    ],
)
def test_only_what_is_wanted(wanted: LogFilter, expected: list[bytes]) -> None:
    assert texts(wanted) == expected


def test_a_worker_that_wrote_nothing_in_the_newest_round_has_no_last_lines() -> None:
    assert [line.text for line in worker_lines(PRINTED[:6], LogFilter(tail=5, rank=1))] == []


def test_events_are_the_lines_that_are_events() -> None:
    items = [
        ("0", b'{"kind": "started", "sentence": "x starts"}\n'),
        ("0", b"2026-01-02 petctl: a word of its own\n"),
        ("0", b'["kind"]\n'),
        ("0", b'{"sentence": "no kind"}\n'),
        ("0", b'{"kind": "to'),
        ("0", b"\xff\n"),
        ("0", b'{"kind": "final"}\n'),
    ]
    assert [event["kind"] for event in event_lines(items)] == ["started"]


def test_the_last_status_is_what_a_coordinator_printed_last() -> None:
    whole = first_status(job_record())

    class Logs:
        def log(self, namespace: str, pod: str, container: str, tail: int) -> Iterator[bytes]:
            if pod == "gone":
                raise NoSuchObject("gone")
            status = {"gone": 7, "a": {"state": "failed"}, "b": whole.pack()}[pod]
            final = json.dumps({"kind": "final", "status": status}).encode()
            yield b'{"kind": "closing"}\n' + final[:20]
            yield final[20:] + b"\na word of its own\n"

    pods = [Pod(name, 0, born=born).object for born, name in enumerate(("gone", "a", "b"))]
    found = [printed_status(lines) for lines in last_lines(cast(Api, Logs()), NAMESPACE, pods, "petctl", 5)]
    assert found == [None, whole]
