"""Lines as they come: from pods that appear, end, vanish, and from streams that are cut. Each line once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from petctl.clusters.kubernetes.backend import PodOutput
from petctl.clusters.printed import Item
from petctl.kube import pod_logs
from petctl.kube.failures import Forbidden, KubernetesError, NotStarted, ServerUnreachable
from tests.unit.clusters.kubernetes.pods import NAMESPACE, Pod, Pods

pytestmark = pytest.mark.timeout(60)
AWAY = ServerUnreachable("the server cannot be reached")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_FIRST", 0.001)
    monkeypatch.setattr(pod_logs, "_LONGEST", 0.002)


def output(pods: Pods, role: str = "node") -> PodOutput:
    return PodOutput((pods.api, NAMESPACE), "x", role)


def follow(pods: Pods, role: str = "node") -> Iterator[Item]:
    return output(pods, role).follow(lambda: pods.over)


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name in ("pods", "pod-log")}


def end(pods: Pods, *names: str) -> None:
    for name in names:
        pods.phase(name, "Succeeded")
    pods.finish()


def test_lines_come_as_they_are_printed_until_the_job_is_over() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    pods.print("n-0-a", b"two\n")
    assert next(lines) == ("0", b"two\n")
    pods.print("n-0-a", b"three\n", b"to")
    end(pods, "n-0-a")
    assert list(lines) == [("0", b"three\n"), ("0", b"to")]


def test_a_pod_that_appears_later_and_one_that_starts_later() -> None:
    pods = Pods(Pod("n-0-a", 0, phase="Pending"))
    pods.print("n-0-a", b"first\n")
    lines = follow(pods)
    pods.phase("n-0-a", "Running")
    assert next(lines) == ("0", b"first\n")
    pods.add(Pod("n-1-a", 1))
    pods.print("n-1-a", b"second\n")
    assert next(lines) == ("1", b"second\n")
    end(pods, "n-0-a", "n-1-a")
    assert list(lines) == []


def test_only_pods_of_the_role_are_read() -> None:
    pods = Pods(Pod("c-0-a", 0, role="coordinator"), Pod("n-0-a", 0))
    pods.print("n-0-a", b"of a node\n")
    pods.print("c-0-a", b"{}\n")
    end(pods, "n-0-a", "c-0-a")
    assert list(follow(pods, "coordinator")) == [("0", b"{}\n")]


def test_the_end_of_the_coordinator_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_STEP", 1000.0)
    pods = Pods(Pod("c-0-a", 0, role="coordinator"), Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    pods.phase("n-0-a", "Succeeded")
    with pods._changed:  # no watch ends because of this: only the pod's end tells
        pods.over = True
    pods.phase("c-0-a", "Succeeded")
    assert list(lines) == []


def test_a_pod_that_ended_before_it_was_looked_at() -> None:
    pods = Pods(Pod("n-0-a", 0, phase="Failed"), Pod("n-0-b", 0, born=5))
    pods.print("n-0-a", b"old\n")
    pods.print("n-0-b", b"new\n")
    end(pods, "n-0-b")
    assert sorted(follow(pods)) == [("0", b"new\n"), ("0", b"old\n")]


def test_a_pod_that_is_deleted_in_the_middle_ends_without_a_word() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    pods.delete("n-0-a")
    pods.add(Pod("n-0-b", 0))
    pods.print("n-0-b", b"two\n")
    assert next(lines) == ("0", b"two\n")
    end(pods, "n-0-b")
    assert list(lines) == []


@pytest.mark.parametrize("how", [None, AWAY, KubernetesError("the kubelet is started anew")])
def test_a_stream_that_is_cut_goes_on_where_it_ended(how: KubernetesError | None) -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n")
    pods.print("n-0-a", b"two\n", b"three\n", at=7)
    lines = follow(pods)
    assert [next(lines)[1] for _ in range(3)] == [b"one\n", b"two\n", b"three\n"]
    pods.print("n-0-a", b"fo")
    pods.cut("n-0-a", how)
    pods.cut("n-0-a", how)
    pods.print("n-0-a", b"ur\n", b"five\n")
    assert [next(lines)[1] for _ in range(2)] == [b"four\n", b"five\n"]
    end(pods, "n-0-a")
    assert list(lines) == []
    assert len(pods.asked) > 1 and pods.asked[-1][1] is not None


def test_a_log_that_is_not_there_yet_is_asked_for_again() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods._pods["n-0-a"].failure = NotStarted("waiting to start")
    lines = follow(pods)
    found: list[Item] = []
    reader = threading.Thread(target=lambda: found.extend(lines))
    reader.start()
    while len(pods.asked) < 2:
        assert reader.is_alive()
    pods._pods["n-0-a"].failure = None
    pods.print("n-0-a", b"one\n")
    end(pods, "n-0-a")
    reader.join(30)
    assert found == [("0", b"one\n")]


def test_a_watch_that_is_too_old_begins_anew() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.gone = 1
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    pods.add(Pod("n-1-a", 1))
    pods.print("n-1-a", b"two\n")
    assert next(lines) == ("1", b"two\n")
    end(pods, "n-0-a", "n-1-a")
    assert list(lines) == []
    assert pods.gone == 0


def test_a_server_that_is_away_for_a_while_is_waited_for() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.away = [AWAY] * 5
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    end(pods, "n-0-a")
    assert list(lines) == []
    assert pods.away == []


def test_a_server_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_AWAY", 0.01)
    pods = Pods(Pod("n-0-a", 0))
    pods.away = [AWAY] * 1000
    with pytest.raises(ServerUnreachable):
        list(follow(pods))


def test_who_may_not_read_logs_hears_it() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods._pods["n-0-a"].failure = Forbidden("may not get pods/log")
    with pytest.raises(Forbidden):
        list(follow(pods))


def test_what_goes_wrong_otherwise_is_told_too() -> None:
    pods = Pods(Pod("n-0-a", 0))

    def broken() -> bool:
        raise ValueError("unforeseen")

    with pytest.raises(ValueError, match="unforeseen"):
        list(output(pods).follow(broken))


def test_a_log_without_end_does_not_outlive_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_LAST", 0.01)
    pods = Pods(Pod("n-0-a", 0), Pod("n-1-a", 1))
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    end(pods, "n-1-a")  # the machine of the other is gone: nobody can say that its pod has ended
    assert list(lines) == []
    pods.phase("n-0-a", "Failed")


def test_a_slow_taker_gets_every_line_and_stops_the_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_logs, "_LAST", 0.01)
    monkeypatch.setattr(pod_logs, "_WAITING", 2)
    pods = Pods(Pod("n-0-a", 0))
    for number in range(50):
        pods.print("n-0-a", b"%d\n" % number)
    found: list[bool] = []
    looked = threading.Event()

    def look(box: pod_logs._Box) -> bool:
        found.append(not box._items)
        if len(found) == 3:
            looked.set()
        return found[-1] and not looked.is_set()  # from then on it is the taker's turn, however slow the machine is

    monkeypatch.setattr(pod_logs._Box, "empty", property(look))
    lines = follow(pods)
    assert next(lines) == ("0", b"0\n")
    end(pods, "n-0-a")
    assert looked.wait(30)
    assert not any(found[:3])
    assert [int(text) for _, text in lines] == list(range(1, 50))


def test_whoever_goes_away_leaves_no_thread() -> None:
    before = threads()
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n")
    lines = follow(pods)
    assert next(lines) == ("0", b"one\n")
    started = threads() - before
    assert len(started) == 2
    lines.close()  # type: ignore[attr-defined]
    pods.print("n-0-a", b"two\n")
    pods.phase("n-0-a", "Running")
    with pods._changed:
        pods.over = True
        pods._changed.notify_all()
    for thread in started:
        thread.join(30)
    assert not threads() & started


def test_following_goes_on_from_what_was_read_before() -> None:
    pods = Pods(Pod("n-0-a", 0))
    pods.print("n-0-a", b"one\n", b"two\n", b"th")
    printed = output(pods)
    assert [text for _, text in printed.so_far(then_follow=True)] == [b"one\n", b"two\n"]
    pods.print("n-0-a", b"ree\n")
    lines = printed.follow(lambda: pods.over)
    assert next(lines) == ("0", b"three\n")
    end(pods, "n-0-a")
    assert list(lines) == []
