"""Who holds a lease: the judging with a clock that the test moves, the threads against a server that it can stop."""

from __future__ import annotations

import copy
import logging
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from petctl.clusters.kubernetes.operator.runtime import leader as module
from petctl.clusters.kubernetes.operator.runtime.leader import Claim, Leader
from petctl.kube.api import Api
from petctl.kube.failures import (
    Conflict,
    Forbidden,
    KubernetesError,
    NoSuchObject,
    ObjectExists,
    ServerUnreachable,
)

pytestmark = pytest.mark.timeout(60)
WITHIN = 20.0
AWAY = ServerUnreachable("the server cannot be reached")
Object = dict[str, Any]
Lead = Callable[[threading.Event], None]


class Server:
    """One lease, with versions, as the API server keeps it."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.failure: Exception | None = None  # of every request
        self.asked: list[str] = []
        self.before_write: list[Callable[[], object]] = []  # something that happens first, once each
        self.unanswered = 0  # so many writes are made, and their answers lost
        self.answers = threading.Event()  # cleared: nobody gets any
        self.answers.set()

    @property
    def api(self) -> Api:
        return cast(Api, self)

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        return cast(Object, self.lease["spec"])

    def write(self, lease: Object) -> Object:
        self.version += 1
        self.lease = copy.deepcopy(lease)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)

    def get(self, path: str) -> Object:
        self._ask("get", path, "/team/leases/one")
        if self.lease is None:
            raise NoSuchObject("there is none")
        return copy.deepcopy(self.lease)

    def create(self, path: str, body: Object) -> Object:
        self._ask("create", path, "/team/leases")
        if self.lease is not None:
            raise ObjectExists("there is one")
        return self._answer(self.write(body))

    def patch(self, path: str, body: Object) -> Object:
        self._ask("patch", path, "/team/leases/one")
        if self.lease is None:
            raise NoSuchObject("there is none")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict("it has been modified")
        return self._answer(self.write({**self.lease, "spec": {**self.lease["spec"], **body["spec"]}}))

    def _ask(self, verb: str, path: str, end: str) -> None:
        assert path == f"/apis/coordination.k8s.io/v1/namespaces{end}"
        self.asked.append(verb)
        assert self.answers.wait(WITHIN)
        if self.failure is not None:
            raise self.failure
        if verb != "get" and self.before_write:
            self.before_write.pop()()

    def _answer(self, lease: Object) -> Object:
        if self.unanswered:
            self.unanswered -= 1
            raise AWAY
        return lease


class Played:
    """Two candidates of a lease, and the time."""

    def __init__(self) -> None:
        self.server, self.time = Server(), 1000.0
        self.a, self.b = self.claim("a"), self.claim("b")

    def claim(self, identity: str, lease_seconds: float = 15) -> Claim:
        return Claim(self.server.api, "team", "one", identity, lease_seconds, 10, lambda: self.time)

    def holds(self, claim: Claim) -> bool:
        return claim.held_until > self.time


@pytest.fixture
def played() -> Played:
    return Played()


def test_the_first_makes_the_lease_and_renews_it_with_one_request(played: Played) -> None:
    assert played.a.attempt() == math.inf
    assert played.holds(played.a) and played.a.held_until == 1010
    spec = played.server.spec
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("a", 15, 0)
    acquired, renewed = spec["acquireTime"], spec["renewTime"]
    played.time += 2
    played.a.attempt()
    assert played.a.held_until == 1012
    assert played.server.asked == ["get", "create", "patch"]
    assert played.server.spec["acquireTime"] == acquired and played.server.spec["renewTime"] > renewed


def test_a_holder_counts_from_before_it_asked(played: Played) -> None:
    def slow() -> None:
        played.time += 6

    played.a.attempt()
    played.server.before_write.append(slow)
    played.a.attempt()
    assert (played.time, played.a.held_until) == (1006, 1010)


def test_others_count_from_when_they_saw_it_change(played: Played) -> None:
    played.a.attempt()
    played.time += 9
    assert played.b.attempt() == played.time + 15
    played.a.attempt()
    played.time += 14
    seen = played.time
    assert played.b.attempt() == seen + 15  # it had been renewed
    played.time += 14
    assert played.b.attempt() == seen + 15 and not played.holds(played.b)
    played.time += 1
    assert played.b.attempt() == math.inf and played.holds(played.b)
    assert played.server.spec["holderIdentity"] == "b" and played.server.spec["leaseTransitions"] == 1


def test_the_holders_own_promise_counts(played: Played) -> None:
    played.claim("slow", lease_seconds=39.5).attempt()
    assert played.b.attempt() == played.time + 40


def test_what_others_write_into_the_lease_does_not_prolong_it(played: Played) -> None:
    played.a.attempt()
    expires = played.b.attempt()
    played.time += 10
    assert played.server.lease is not None
    played.server.write({**played.server.lease, "metadata": {"name": "one", "labels": {"seen": "yes"}}})
    assert played.b.attempt() == expires
    played.a.attempt()  # nor does it cost the holder anything
    assert played.holds(played.a)


def test_of_two_that_reach_for_it_one_gets_it(played: Played) -> None:
    played.claim("gone").attempt()
    played.a.attempt()
    played.b.attempt()
    played.time += 15
    played.server.before_write.append(played.b.attempt)
    assert played.a.attempt() == played.time + 15
    assert played.holds(played.b) and not played.holds(played.a)
    assert played.server.spec["leaseTransitions"] == 1


def test_of_two_that_make_it_one_gets_it(played: Played) -> None:
    played.server.before_write.append(played.b.attempt)
    assert played.a.attempt() == played.time + 15
    assert played.holds(played.b) and not played.holds(played.a)


def test_who_was_replaced_knows_it_at_the_next_renewal(played: Played) -> None:
    played.a.attempt()
    played.b.attempt()
    played.time += 15
    played.b.attempt()
    played.a.held_until = math.inf
    played.a.attempt()
    assert played.a.held_until == -math.inf
    assert played.server.spec["holderIdentity"] == "b"


def test_a_renewal_that_was_not_answered_prolongs_nothing_and_the_next_one_does(played: Played) -> None:
    played.a.attempt()
    played.time += 2
    played.server.unanswered = 1
    with pytest.raises(ServerUnreachable):
        played.a.attempt()
    assert played.a.held_until == 1010
    played.time += 2
    played.a.attempt()
    assert played.a.held_until == 1014
    assert played.server.asked[-3:] == ["patch", "get", "patch"]


def test_a_lease_that_somebody_deleted_is_made_anew(played: Played) -> None:
    played.a.attempt()
    played.server.lease = None
    played.a.attempt()
    assert played.holds(played.a) and played.server.spec["holderIdentity"] == "a"


def test_who_has_lost_it_may_have_it_again(played: Played) -> None:
    played.a.attempt()
    played.time += 100
    assert not played.holds(played.a)
    played.a.attempt()
    assert played.holds(played.a) and played.server.spec["leaseTransitions"] == 0


def test_what_is_given_back_is_free_at_once(played: Played) -> None:
    played.a.attempt()
    played.b.attempt()
    played.a.release()
    assert not played.holds(played.a)
    assert played.b.attempt() == math.inf and played.holds(played.b)
    played.a.release()  # another's is not given away
    played.b.attempt()
    assert played.holds(played.b) and played.server.spec["holderIdentity"] == "b"


def test_it_is_given_back_also_after_an_unanswered_renewal(played: Played) -> None:
    played.a.attempt()
    played.server.unanswered = 1
    with pytest.raises(ServerUnreachable):
        played.a.attempt()
    played.a.release()
    assert played.server.spec["holderIdentity"] == ""
    played.server.lease = None
    played.a.release()
    assert played.server.lease is None


LONG, SHORT = (60, 40, 0.02), (2, 1, 0.02)  # the first do not run out, however slow the machine is


class Candidate:
    """A leader in a thread, and what its `lead` meets."""

    def __init__(
        self, server: Server, identity: str, times: tuple[float, float, float], lead: Lead | None = None
    ) -> None:
        self.leads, self.led, self.may_return = threading.Event(), threading.Event(), threading.Event()
        self.may_return.set()
        self.lost, self.stop = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        leader = Leader(server.api, "team", "one", identity, lead or self._lead, *times)
        self.thread = threading.Thread(target=self._run, args=(leader,))
        self.thread.start()

    def _run(self, leader: Leader) -> None:
        try:
            leader.run(self.stop)
        except BaseException as error:
            self.error = error

    def _lead(self, lost: threading.Event) -> None:
        self.led.clear()
        self.lost = lost
        self.leads.set()
        assert lost.wait(WITHIN)
        assert self.may_return.wait(WITHIN)
        self.leads.clear()
        self.led.set()

    def end(self) -> None:
        self.stop.set()
        self.may_return.set()
        self.thread.join(WITHIN)
        assert not self.thread.is_alive()


Start = Callable[..., Candidate]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def start(server: Server) -> Iterator[Start]:
    made: list[Candidate] = []

    def begin(identity: str, times: tuple[float, float, float] = LONG, lead: Lead | None = None) -> Candidate:
        made.append(Candidate(server, identity, times, lead))
        return made[-1]

    yield begin
    server.answers.set()
    server.failure = None
    for candidate in made:
        candidate.end()


def test_one_leads_until_it_is_stopped_and_then_the_other(server: Server, start: Start) -> None:
    first = start("a")
    assert first.leads.wait(WITHIN)
    second = start("b")
    asked = len(server.asked)
    while len(server.asked) < asked + 20:  # both have asked for some time
        assert not second.leads.wait(0.01)
    first.end()
    assert first.led.is_set() and first.error is None
    assert second.leads.wait(WITHIN)
    second.end()
    assert server.spec["holderIdentity"] == ""


@pytest.mark.parametrize("how", ["silent", "refusing"])
def test_who_cannot_renew_stops_in_time_and_leads_again_later(
    server: Server, start: Start, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "petctl.clusters.kubernetes.operator")
    only = start("a", SHORT)
    assert only.leads.wait(WITHIN)
    if how == "silent":
        server.answers.clear()
    else:
        server.failure = AWAY
    assert only.led.wait(WITHIN)
    assert not only.leads.wait(0.1)
    server.answers.set()
    server.failure = None
    assert only.leads.wait(WITHIN)
    said = [record.getMessage() for record in caplog.records]
    assert sum("cannot reach the lease" in line for line in said) == (how == "refusing")
    assert sum("can reach the lease team/one again" in line for line in said) == (how == "refusing")
    assert [line for line in said if "the leader" in line] == [
        "a is the leader: it holds the lease team/one",
        "a is no longer the leader: it lost the lease team/one",
        "a is the leader: it holds the lease team/one",
    ]


def test_who_lost_it_asks_for_nothing_before_all_has_ended(server: Server, start: Start) -> None:
    slow = start("a", SHORT)
    assert slow.leads.wait(WITHIN)
    slow.may_return.clear()
    server.failure = AWAY
    assert slow.lost.wait(WITHIN)
    server.failure = None
    other = start("b", SHORT)
    assert other.leads.wait(WITHIN)
    slow.may_return.set()
    assert slow.led.wait(WITHIN)
    assert not slow.leads.wait(0.1) and other.leads.is_set()


def test_who_is_stopped_holds_the_lease_until_all_has_ended(server: Server, start: Start) -> None:
    slow = start("a", SHORT)
    assert slow.leads.wait(WITHIN)
    slow.may_return.clear()
    slow.stop.set()
    version, begun = server.version, len(server.asked)
    while len(server.asked) < begun + 20:
        assert not slow.led.wait(0.02)
    assert server.version > version and server.spec["holderIdentity"] == "a"
    slow.may_return.set()
    slow.thread.join(WITHIN)
    assert server.spec["holderIdentity"] == ""


def test_who_returns_by_itself_ends_it(server: Server, start: Start) -> None:
    short = start("a", lead=lambda lost: None)
    short.thread.join(WITHIN)
    assert not short.thread.is_alive() and short.error is None
    assert server.spec["holderIdentity"] == ""


def test_what_goes_wrong_while_leading_is_raised_and_the_lease_given_back(server: Server, start: Start) -> None:
    def clumsy(lost: threading.Event) -> None:
        raise RuntimeError("a mistake")

    broken = start("a", lead=clumsy)
    broken.thread.join(WITHIN)
    assert isinstance(broken.error, RuntimeError)
    assert server.spec["holderIdentity"] == ""


def test_stopping_does_not_wait_for_a_server_that_does_not_answer(
    server: Server, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ENDS_WITHIN", 0.01)
    only = start("a")
    assert only.leads.wait(WITHIN)
    server.answers.clear()
    only.stop.set()
    assert only.led.wait(WITHIN)
    only.thread.join(WITHIN)
    assert not only.thread.is_alive()


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (Forbidden("in other words", {"message": 'User "me" cannot get leases'}), 'User "me" cannot get leases'),
        (KubernetesError("500 it said"), "500 it said"),
        (ValueError("no JSON"), "no JSON"),
    ],
)
def test_whatever_goes_wrong_is_said_once_and_tried_again(
    server: Server, start: Start, failure: Exception, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.failure = failure
    only = start("a")
    while len(server.asked) < 5:
        assert not only.leads.wait(0.01)
    server.failure = None
    assert only.leads.wait(WITHIN)
    said = [record.getMessage() for record in caplog.records]
    assert sum(words in line for line in said) == 1
    assert "can reach the lease team/one again" in said


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 2), (15, 10, 0)])
def test_times_that_cannot_work_are_refused(server: Server, times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="a lease must last longer"):
        Leader(server.api, "team", "one", "a", lambda lost: None, *times)
