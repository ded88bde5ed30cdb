"""The operator's caches and leaders against a real API server, through connections that the test cuts."""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.clusters.kubernetes.operator.runtime import cache as cache_module
from petctl.clusters.kubernetes.operator.runtime.cache import Cache, Object
from petctl.clusters.kubernetes.operator.runtime.leader import Leader
from petctl.kube.api import Api, path
from petctl.kube.failures import ServerUnreachable
from petctl.kube.kubeconfig import find_access
from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.waiting import until
from tests.k8s.gate import Gate, gate_of

WITHIN = 120.0
MANY = 1200  # more than two pages
LEASE, RENEW, RETRY = 6, 3, 0.5

pytestmark = [pytest.mark.long]


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Api]:
    with Api(find_access({"kubeconfig": str(cluster.kubeconfig)})) as found:
        yield found


@pytest.fixture
def gated(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Gate, Api]]:
    """A way of its own to the server, and whoever takes it."""
    kubeconfig = Path(shutil.copy(cluster.kubeconfig, tmp_path / "gated"))
    with gate_of(kubeconfig) as gate, Api(find_access({"kubeconfig": str(kubeconfig)})) as found:
        yield gate, found


class Told:
    """What a cache told, in order."""

    def __init__(self) -> None:
        self.things: list[Object] = []

    def __call__(self, thing: Object) -> None:
        self.things.append(thing)

    def names(self) -> set[str]:
        return {thing["metadata"]["name"] for thing in self.things}


@contextlib.contextmanager
def watching(api: Api, namespace: str, told: Callable[[Object], None]) -> Iterator[Cache]:
    cache = Cache(api, path("configmaps", namespace), "own=x", told)
    cache.start()
    try:
        yield cache
    finally:
        cache.stop()
    assert not cache._thread.is_alive()


def body(name: str, **data: str) -> Object:
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name, "labels": {"own": "x"}}, "data": data}


def versions(things: list[Object]) -> dict[str, str]:
    return {thing["metadata"]["name"]: thing["metadata"]["resourceVersion"] for thing in things}


def test_it_has_what_the_server_has_though_its_connections_are_cut(
    api: Api, gated: tuple[Gate, Api], namespace: str
) -> None:
    gate, through = gated
    maps, told = path("configmaps", namespace), Told()
    made, enough = threading.Semaphore(0), threading.Event()
    wrong: list[BaseException] = []

    def create(first: int) -> None:
        try:
            for number in range(first, MANY, 4):
                api.create(maps, body(f"m{number:04}"))
                made.release()
                assert number < 700 or enough.wait(WITHIN)
        except BaseException as error:
            wrong.append(error)

    writers = [threading.Thread(target=create, args=(first,)) for first in range(4)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(600):
            assert made.acquire(timeout=WITHIN), wrong
        with watching(through, namespace, told) as cache:
            assert cache.synced(WITHIN)
            assert len(cache.all()) >= 600
            enough.set()  # from here on the watch has to tell
            for cut in range(4):
                for _ in range(100):
                    assert made.acquire(timeout=WITHIN), wrong
                gate.shut()
                if cut == 1:
                    until(lambda: gate.refused >= 1, "it has tried in vain")
                gate.open()
            for writer in writers:
                writer.join(WITHIN)
            assert not wrong
            truth = versions(api.list(maps, "own=x"))
            assert len(truth) == MANY
            until(lambda: versions(cache.all()) == truth, "it has them all", WITHIN)
            assert told.names() == set(truth)
            assert cache.get(namespace, "m0007") == told.things[[*map(name_of, told.things)].index("m0007")]
            assert "managedFields" not in cache.all()[0]["metadata"]

            told.things.clear()
            gate.shut()
            api.delete(maps)
            gate.open()
            until(lambda: not cache.all(), "it has none", WITHIN)
            assert told.names() == set(truth)
    finally:
        enough.set()
        for writer in writers:
            writer.join(WITHIN)


def name_of(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def test_a_server_that_was_away_is_said_and_what_changed_meanwhile_is_told(
    api: Api, gated: tuple[Gate, Api], namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    gate, through = gated
    maps, told = path("configmaps", namespace), Told()
    for name in ("same", "other", "went", "anew"):
        api.create(maps, body(name))
    with watching(through, namespace, told) as cache:
        assert cache.synced(WITHIN) and told.names() == {"same", "other", "went", "anew"}
        first = cache.get(namespace, "anew")
        told.things.clear()
        gate.shut()
        until(lambda: gate.refused >= 3, "it tries again and again")
        api.patch(f"{maps}/other", {"data": {"a": "1"}})
        for name in ("went", "anew"):
            api.delete(f"{maps}/{name}")
        api.create(maps, body("anew"))
        api.create(maps, body("came"))
        gate.open()
        until(lambda: {"other", "went", "anew", "came"} <= told.names(), "all of it is told", WITHIN)
        truth = api.list(maps, "own=x")
        until(lambda: versions(cache.all()) == versions(truth), "it has what the server has", WITHIN)
        assert "same" not in told.names()
        second = cache.get(namespace, "anew")
        assert first and second and first["metadata"]["uid"] != second["metadata"]["uid"]
        said = [record.getMessage() for record in caplog.records if maps in record.getMessage()]
        assert len(said) == 2 and "cannot reach" in said[0] and "again" in said[1]


def test_our_own_writes_are_seen_at_once_and_never_undone(api: Api, namespace: str) -> None:
    maps = path("configmaps", namespace)
    backwards: list[tuple[int, int]] = []
    seen = 0

    def look(thing: Object) -> None:
        nonlocal seen
        now = cache.get(namespace, "one")
        version = int(now["metadata"]["resourceVersion"]) if now else 0
        if version < seen:
            backwards.append((seen, version))
        seen = version

    cache = Cache(api, maps, "own=x", look)
    cache.start()
    try:
        assert cache.synced(WITHIN)
        cache.put(api.create(maps, body("one")))
        for number in range(100):
            written = api.patch(f"{maps}/one", {"data": {"n": str(number)}})
            cache.put(written)
            found = cache.get(namespace, "one")
            assert found and found["data"] == {"n": str(number)}
            assert found["metadata"]["resourceVersion"] == written["metadata"]["resourceVersion"]
        until(lambda: seen == int(written["metadata"]["resourceVersion"]), "the watch has told the last", WITHIN)
        assert not backwards
        last = cache.get(namespace, "one")
        assert last
        api.delete(f"{maps}/one")
        until(lambda: cache.get(namespace, "one") is None, "the watch has told its end", WITHIN)
        cache.put(last)  # an answer that comes very late
        assert cache.all() == []
    finally:
        cache.stop()


def test_those_of_an_owner(api: Api, namespace: str) -> None:
    maps, told = path("configmaps", namespace), Told()
    owners = [api.create(maps, body(f"owner{number}"))["metadata"] for number in range(2)]
    references = [
        {"kind": "ConfigMap", "apiVersion": "v1", "name": owner["name"], "uid": owner["uid"], "controller": not number}
        for number, owner in enumerate(owners)
    ]
    with watching(api, namespace, told) as cache:
        assert cache.synced(WITHIN)
        for name in ("b", "a"):
            child = body(name)
            child["metadata"]["ownerReferences"] = references
            api.create(maps, child)
        until(lambda: len(cache.of(owners[0]["uid"])) == 2, "both are there", WITHIN)
        assert [name_of(thing) for thing in cache.of(owners[0]["uid"])] == ["a", "b"]
        assert cache.of(owners[1]["uid"]) == []
        api.delete(f"{maps}/a")
        until(lambda: [*map(name_of, cache.of(owners[0]["uid"]))] == ["b"], "one is left", WITHIN)


def test_a_quiet_watch_ends_when_it_is_to(api: Api, namespace: str) -> None:
    cache = Cache(api, path("configmaps", namespace), "own=x", lambda thing: None)
    cache.start()
    assert cache.synced(WITHIN)
    until(lambda: cache._cut is not None, "it watches", WITHIN)
    begun = time.monotonic()
    cache.stop()
    assert not cache._thread.is_alive()
    assert time.monotonic() - begun < 3
    assert api.list(path("configmaps", namespace), "own=x") == []  # others' requests go on


def test_who_may_not_goes_on_when_the_right_is_given(
    cluster: Cluster,
    api: Api,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(cache_module, "REFUSED", 0.2)
    accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    api.create(accounts, {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "weak"}})
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"expirationSeconds": 600}}
    token = api.create(f"{accounts}/weak/token", request)["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"] = [{"name": user["name"], "user": {"token": token}} for user in config["users"]]
    (tmp_path / "weak").write_text(yaml.safe_dump(config))
    told = Told()
    with Api(find_access({"kubeconfig": str(tmp_path / "weak")})) as weak, watching(weak, namespace, told) as cache:
        until(lambda: caplog.records, "it says that it may not", WITHIN)
        assert not cache.synced(0)
        (said,) = [record.getMessage() for record in caplog.records]
        assert f'User "system:serviceaccount:{namespace}:weak" cannot list resource "configmaps"' in said
        rights = ("--verb=list,watch", "--resource=configmaps", f"--namespace={namespace}")
        cluster.kubectl("create", "role", "reader", *rights)
        account = f"--serviceaccount={namespace}:weak"
        cluster.kubectl("create", "rolebinding", "reader", "--role=reader", account, f"--namespace={namespace}")
        assert cache.synced(WITHIN)
        api.create(path("configmaps", namespace), body("seen"))
        until(lambda: told.names() == {"seen"}, "it watches", WITHIN)


class Office:
    """Who leads, when; two at once are written down."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[str] = set()
        self.together: list[set[str]] = []
        self.terms: list[tuple[str, str, float]] = []

    def enter(self, who: str) -> None:
        with self._lock:
            self._inside.add(who)
            if len(self._inside) > 1:
                self.together.append(set(self._inside))
            self.terms.append((who, "leads", time.monotonic()))

    def leave(self, who: str) -> None:
        with self._lock:
            self._inside.discard(who)
            self.terms.append((who, "led", time.monotonic()))

    def leader(self) -> str:
        with self._lock:
            return next(iter(self._inside), "")

    def when(self, who: str, what: str) -> float:
        """The last time."""
        return [moment for one, kind, moment in self.terms if (one, kind) == (who, what)][-1]


class Candidate:
    """One that wants to lead, in a thread."""

    def __init__(self, api: Api, namespace: str, who: str, office: Office) -> None:
        self.who, self.stop = who, threading.Event()
        self._office = office
        leader = Leader(api, namespace, "petctl-test", who, self._lead, LEASE, RENEW, RETRY)
        self._thread = threading.Thread(target=leader.run, args=(self.stop,), daemon=True)
        self._thread.start()

    def _lead(self, lost: threading.Event) -> None:
        self._office.enter(self.who)
        lost.wait()
        self._office.leave(self.who)

    def end(self) -> None:
        self.stop.set()
        self._thread.join(WITHIN)
        assert not self._thread.is_alive()


@pytest.fixture
def office() -> Iterator[Office]:
    found = Office()
    yield found
    assert not found.together


def holder(api: Api, namespace: str) -> Any:
    return api.get(path("leases", namespace, "petctl-test"))["spec"]["holderIdentity"]


def test_one_leads_at_a_time_and_who_is_stopped_hands_over(api: Api, namespace: str, office: Office) -> None:
    with contextlib.ExitStack() as stack:
        candidates = {who: Candidate(api, namespace, who, office) for who in "abcde"}
        for candidate in candidates.values():
            stack.callback(candidate.end)
        led: list[str] = []
        while candidates:
            leader = until(office.leader, "somebody leads", WITHIN)
            assert leader not in led and holder(api, namespace) == leader
            led.append(leader)
            candidates.pop(leader).end()
            assert office.leader() != leader
            if len(led) > 1:
                handed_over = office.when(leader, "leads") - office.when(led[-2], "led")
                assert handed_over < LEASE - 1, "it waited until the lease ran out"
    spec = api.get(path("leases", namespace, "petctl-test"))["spec"]
    assert spec["holderIdentity"] == "" and spec["leaseTransitions"] == 4


def says(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    return any(record.getMessage().startswith(words) for record in caplog.records)


@pytest.mark.parametrize("how", ["shut", "silence"])
def test_who_is_cut_off_stops_before_another_leads(
    api: Api, gated: tuple[Gate, Api], namespace: str, office: Office, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "petctl.clusters.kubernetes.operator")
    gate, through = gated
    with contextlib.ExitStack() as stack:
        first = Candidate(through, namespace, "first", office)
        stack.callback(first.end)
        stack.callback(gate.open)
        until(lambda: office.leader() == "first", "the first leads", WITHIN)
        second = Candidate(api, namespace, "second", office)
        stack.callback(second.end)
        version = api.get(path("leases", namespace, "petctl-test"))["metadata"]["resourceVersion"]
        until(
            lambda: api.get(path("leases", namespace, "petctl-test"))["metadata"]["resourceVersion"] != version,
            "the first renews",
            WITHIN,
        )
        assert office.leader() == "first"
        cut = time.monotonic()
        gate.shut() if how == "shut" else gate.silence()
        until(lambda: office.leader() == "second", "the second leads", WITHIN)
        lost, taken = office.when("first", "led") - cut, office.when("second", "leads") - cut
        assert lost < taken and lost <= RENEW + 2 and taken <= LEASE + RETRY + 5, (lost, taken)
        gate.shut()  # what was asked in silence ends, too
        with pytest.raises(ServerUnreachable):
            through.get(path("leases", namespace, "petctl-test"))
        # Only who has failed says that it can again: opened before that, it would never say so.
        until(lambda: says(caplog, "cannot reach the lease"), "the first asks in vain", WITHIN)
        gate.open()
        until(lambda: says(caplog, "can reach the lease"), "the first asks again", WITHIN)
        assert office.leader() == "second" and holder(api, namespace) == "second"
        second.end()
        until(lambda: office.leader() == "first", "the first leads again", WITHIN)
