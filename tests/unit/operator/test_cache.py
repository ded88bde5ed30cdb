"""Orders and failures that a real server cannot be made to show: stale events, late answers, a server that is away."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from petctl.clusters.kubernetes.operator.runtime import cache as module
from petctl.clusters.kubernetes.operator.runtime.cache import Cache, Object
from petctl.kube.api import Api, Items
from petctl.kube.failures import Forbidden, Gone, ServerUnreachable
from tests.unit.clusters.kubernetes.servers import Handler, access_to, certificate, serving, url_of

pytestmark = pytest.mark.timeout(60)
WITHIN = 20.0
AWAY = ServerUnreachable("the server cannot be reached")


def thing(name: str, version: object, uid: str = "", owner: str = "", **fields: Any) -> Object:
    about = {"name": name, "namespace": "team", "uid": uid or f"uid-{name}", "resourceVersion": str(version), **fields}
    if owner:
        about["ownerReferences"] = [{"uid": "bystander"}, {"uid": owner, "controller": True}]
    return {"metadata": about}


class Server:
    """What an `Api` gives: lists as the test lays them out, events when it says so; errors are raised."""

    def __init__(self, *lists: tuple[object, list[Object]] | Exception) -> None:
        self.lists: queue.Queue[tuple[object, list[Object]] | Exception] = queue.Queue()
        for entry in lists:
            self.lists.put(entry)
        self.events: queue.Queue[tuple[str, Object] | Exception | None] = queue.Queue()
        self.asked: queue.Queue[str] = queue.Queue()
        self.within_list: Callable[[], None] = lambda: None

    def list(self, path: str, selector: str) -> Items:
        assert (path, selector) == ("/things", "own=x")
        self.asked.put("list")
        step = self.lists.get(timeout=WITHIN)
        if isinstance(step, Exception):
            raise step
        version, things = step
        items = Items(things)
        items.version = str(version)
        self.within_list()
        return items

    def watch(
        self, path: str, selector: str, version: str, timeout: float, begun: Callable[[Callable[[], None]], None]
    ) -> Iterator[tuple[str, Object]]:
        assert (path, selector) == ("/things", "own=x")
        self.asked.put(f"watch {version}")
        first = self.events.get(timeout=WITHIN)
        if first is AWAY:
            raise AWAY
        begun(lambda: self.events.put(AWAY))
        step = first
        while step is not None:
            if isinstance(step, Exception):
                raise step
            yield step
            step = self.events.get(timeout=WITHIN)

    def tell(self, kind: str, what: Object) -> None:
        self.events.put((kind, what))


class Scene:
    """A cache of such a server, and what it told."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.told: queue.Queue[tuple[str, str]] = queue.Queue()
        self.cache = Cache(cast(Api, server), "/things", "own=x", self._changed)

    def _changed(self, what: Object) -> None:
        self.told.put((what["metadata"]["name"], what["metadata"]["resourceVersion"]))

    def hears(self, *expected: tuple[str, str]) -> None:
        assert [self.told.get(timeout=WITHIN) for _ in expected] == list(expected)

    def asks(self, *expected: str) -> None:
        assert [self.server.asked.get(timeout=WITHIN) for _ in expected] == list(expected)

    def has(self) -> dict[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in self.cache.all()}

    def passes(self) -> None:
        """All that was told to the watch so far has been taken in."""
        self.server.tell("ADDED", thing("mark", 10_000))
        self.server.tell("DELETED", thing("mark", 10_001))
        while self.told.get(timeout=WITHIN) != ("mark", "10001"):
            pass


@pytest.fixture
def scenes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scene]]:
    monkeypatch.setattr(module, "FIRST", 0.001)
    monkeypatch.setattr(module, "LONGEST", 0.002)
    monkeypatch.setattr(module, "REFUSED", 0.001)
    made: list[Scene] = []

    def make(*lists: tuple[object, list[Object]] | Exception) -> Scene:
        scene = Scene(Server(*lists))
        made.append(scene)
        scene.cache.start()
        return scene

    yield make
    for scene in made:
        scene.server.lists.put(AWAY)
        scene.server.events.put(AWAY)
        scene.cache.stop()
        assert not scene.cache._thread.is_alive()


Make = Callable[..., Scene]


def test_what_is_there_comes_changes_and_goes(scenes: Make) -> None:
    scene = scenes((10, [thing("a", 5, owner="one"), thing("b", 6, owner="one"), thing("c", 7, owner="two")]))
    assert scene.cache.synced(WITHIN)
    scene.hears(("a", "5"), ("b", "6"), ("c", "7"))
    assert [one["metadata"]["name"] for one in scene.cache.of("one")] == ["a", "b"]
    assert scene.cache.of("bystander") == scene.cache.of("nobody") == []
    scene.server.tell("MODIFIED", thing("b", 11, owner="two"))
    scene.server.tell("DELETED", thing("a", 12, owner="one"))
    scene.server.tell("ADDED", thing("d", 13, owner="two"))
    scene.hears(("b", "11"), ("a", "12"), ("d", "13"))
    assert scene.cache.of("one") == []
    assert [one["metadata"]["name"] for one in scene.cache.of("two")] == ["b", "c", "d"]
    assert scene.cache.get("team", "a") is None and scene.cache.get("other", "b") is None
    assert scene.cache.get("team", "b") == thing("b", 11, owner="two")


def test_what_came_in_is_slim(scenes: Make) -> None:
    scene = scenes((10, [thing("a", 5, managedFields=[{"manager": "x"}], labels={"own": "x"})]))
    scene.hears(("a", "5"))
    scene.server.tell("ADDED", thing("b", 11, managedFields=[{"manager": "x"}]))
    scene.hears(("b", "11"))
    written = thing("c", 12, managedFields=[{"manager": "x"}])
    scene.cache.put(written)
    assert scene.cache.all() == [thing("a", 5, labels={"own": "x"}), thing("b", 11), thing("c", 12)]
    assert "managedFields" in written["metadata"]  # the writer's own is left alone


def test_a_watch_goes_on_from_the_version_reached(scenes: Make) -> None:
    scene = scenes((10, []))
    scene.asks("list", "watch 10")
    scene.server.tell("ADDED", thing("a", 12))
    scene.server.events.put(None)
    scene.asks("watch 12")
    scene.server.tell("BOOKMARK", {"metadata": {"resourceVersion": "40"}})
    scene.server.events.put(AWAY)
    scene.asks("watch 40")
    scene.hears(("a", "12"))
    assert scene.told.empty()


def test_after_gone_it_lists_and_tells_what_differs(scenes: Make) -> None:
    scene = scenes((10, [thing("same", 1), thing("other", 2), thing("went", 3), thing("anew", 4)]))
    scene.hears(("same", "1"), ("other", "2"), ("went", "3"), ("anew", "4"))
    scene.server.lists.put((20, [thing("same", 1), thing("other", 12), thing("came", 13), thing("anew", 14, "uid-2")]))
    scene.server.events.put(Gone("too old"))
    scene.asks("list", "watch 10", "list", "watch 20")
    scene.hears(("went", "3"), ("anew", "4"), ("other", "12"), ("came", "13"), ("anew", "14"))
    assert scene.has() == {"same": "1", "other": "12", "came": "13", "anew": "14"}
    assert scene.told.empty()


def test_our_own_write_is_seen_at_once_and_older_events_do_not_undo_it(scenes: Make) -> None:
    scene = scenes((10, [thing("a", 5, owner="one")]))
    scene.hears(("a", "5"))
    scene.cache.put(thing("a", 14, owner="one"))
    assert scene.has() == {"a": "14"}
    scene.server.tell("MODIFIED", thing("a", 12, owner="one"))
    scene.server.tell("MODIFIED", thing("a", 14, owner="one"))
    scene.hears(("a", "14"))  # 12 was ignored; our own is told when it has come round
    assert scene.has() == {"a": "14"}
    scene.cache.put(thing("a", 13, owner="one"))  # an answer that was slower than the watch
    assert scene.has() == {"a": "14"}


def test_an_answer_slower_than_the_deletion_brings_nothing_back(scenes: Make) -> None:
    scene = scenes((10, [thing("a", 5)]))
    scene.hears(("a", "5"))
    scene.server.tell("MODIFIED", thing("a", 11))
    scene.server.tell("DELETED", thing("a", 12))
    scene.hears(("a", "11"), ("a", "12"))
    scene.cache.put(thing("a", 11))
    assert scene.has() == {}
    scene.cache.put(thing("a", 15, "uid-2"))  # but one that was made anew is there
    assert scene.has() == {"a": "15"}


def test_deleted_and_made_anew_under_the_same_name(scenes: Make) -> None:
    scene = scenes((10, [thing("a", 5, owner="one")]))
    scene.hears(("a", "5"))
    scene.cache.put(thing("a", 13, "uid-2", owner="two"))
    scene.server.tell("DELETED", thing("a", 12, owner="one"))  # the first one's end, told late
    scene.hears(("a", "12"))
    assert scene.has() == {"a": "13"} and scene.cache.of("one") == [] and len(scene.cache.of("two")) == 1
    scene.cache.put(thing("a", 11))  # and a late answer about it
    assert scene.has() == {"a": "13"} and scene.cache.of("uid-a") == []


def test_what_was_written_while_it_listed_is_kept(scenes: Make) -> None:
    scene = scenes((10, [thing("old", 2), thing("a", 5)]))
    scene.hears(("old", "2"), ("a", "5"))

    def write() -> None:
        scene.cache.put(thing("a", 22))
        scene.cache.put(thing("new", 23))
        scene.cache.put(thing("went", 19))  # made and deleted before the list was read

    scene.server.within_list = write
    scene.server.lists.put((20, [thing("old", 2), thing("a", 15)]))
    scene.server.events.put(Gone("too old"))
    scene.asks("list", "watch 10", "list", "watch 20")
    assert scene.has() == {"old": "2", "a": "22", "new": "23"}


def test_a_list_is_believed_also_where_versions_begin_anew(scenes: Make) -> None:
    """As after a cluster was restored from a copy."""
    scene = scenes((1000, [thing("a", 900), thing("b", 950)]))
    scene.hears(("a", "900"), ("b", "950"))
    scene.server.lists.put((20, [thing("a", 15)]))
    scene.server.events.put(AWAY)  # "too large a version": the server says that it cannot now
    scene.server.events.put(AWAY)
    scene.asks("list", "watch 1000", "watch 1000", "list", "watch 20")
    assert scene.has() == {"a": "15"}


def test_where_versions_are_no_numbers_what_came_last_wins(scenes: Make) -> None:
    scene = scenes(("w-9", [thing("a", "v-9")]))
    scene.hears(("a", "v-9"))
    scene.server.tell("MODIFIED", thing("a", "v-10"))
    scene.hears(("a", "v-10"))
    scene.cache.put(thing("a", "v-8"))
    assert scene.has() == {"a": "v-8"}
    scene.server.tell("DELETED", thing("a", "v-11"))
    scene.hears(("a", "v-11"))
    assert scene.has() == {}


def test_a_server_that_is_away_is_said_once_and_once_when_it_is_back(
    scenes: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    scene = scenes(*[AWAY] * 5, (10, []))
    assert scene.cache.synced(WITHIN)
    scene.server.tell("ADDED", thing("a", 11))
    scene.hears(("a", "11"))
    away, back = [record.getMessage() for record in caplog.records]
    assert "/things" in away and "cannot be reached" in away and "again" in back
    scene.server.events.put(AWAY)
    scene.asks(*["list"] * 6, "watch 10", "watch 11")
    assert len(caplog.records) == 2  # one that was cut, and mended at once, is not worth a word


def test_pauses_grow_and_are_not_forgotten_by_a_list_that_helps_nothing(
    scenes: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(module, "FIRST", 0.2)
    monkeypatch.setattr(module, "LONGEST", 10.0)
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    scene = Scene(Server(*[(10, [])] * 10))
    monkeypatch.setattr(scene.cache._stopping, "wait", pauses.append)
    for _ in range(9):
        scene.server.events.put(Gone("at once"))
    scene.server.tell("ADDED", thing("a", 11))
    scene.server.events.put(Gone("after it was of use"))
    scene.server.lists.put(AWAY)
    scene.cache.start()
    scene.asks(*["list", "watch 10"] * 10, "list")
    scene.server.lists.put(AWAY)
    scene.asks("list")
    assert pauses[:11] == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0, 0.2, 0.4]
    scene.cache._stopping.set()
    scene.server.lists.put(AWAY)
    scene.cache.stop()


def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause(scenes: Make) -> None:
    scene = scenes((10, []))
    scene.server.lists.put((11, []))
    scene.server.events.put(None)
    scene.server.events.put(None)
    scene.asks("list", "watch 10", "watch 10", "list", "watch 11")
    assert scene.cache._absence.failures == 2


def test_who_may_not_hears_the_servers_own_words(scenes: Make, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    status = {"message": 'things is forbidden: User "me" cannot list'}
    scene = scenes(*[Forbidden("in other words", status)] * 3, (10, []))
    assert scene.cache.synced(WITHIN)
    (said,) = [record.getMessage() for record in caplog.records]
    assert 'User "me" cannot list' in said


def test_it_survives_whatever_the_listener_or_the_server_does(scenes: Make, caplog: pytest.LogCaptureFixture) -> None:
    def clumsy(what: Object) -> None:
        scene.told.put((what["metadata"]["name"], what["metadata"]["resourceVersion"]))
        raise RuntimeError("no idea what to do")

    scene = Scene(Server(ValueError("no JSON"), (10, [thing("a", 5)])))
    scene.cache._changed = clumsy
    scene.cache.start()
    scene.server.tell("ADDED", thing("b", 11))
    scene.hears(("a", "5"), ("b", "11"))
    scene.cache.stop()  # by now it has complained, too
    assert scene.has() == {"a": "5", "b": "11"}
    assert sum("cannot handle a change of team/" in record.getMessage() for record in caplog.records) == 2


def test_nothing_is_told_after_the_end(scenes: Make) -> None:
    scene = scenes((10, []))
    scene.server.tell("ADDED", thing("a", 11))
    scene.hears(("a", "11"))
    scene.cache.stop()
    scene.cache.stop()
    assert not scene.cache._thread.is_alive() and scene.told.empty()


def test_one_that_was_never_started_can_be_stopped() -> None:
    Scene(Server()).cache.stop()


@pytest.mark.parametrize("secure", [False, True])
def test_stop_ends_a_watch_that_nobody_tells_anything(secure: bool) -> None:
    """With the real client: its thread waits in a read, of a socket or of TLS."""
    ended, watched, made = threading.Event(), threading.Event(), certificate() if secure else None

    def script(handler: Handler) -> None:
        if "watch=true" not in handler.path:
            handler.reply({"metadata": {"resourceVersion": "10"}, "items": []})
            return
        handler.begin()
        watched.set()
        handler.connection.settimeout(WITHIN)
        assert handler.rfile.read(1) == b""  # until the client goes
        ended.set()

    with serving(script, made) as server:
        url = url_of(server, "https" if secure else "http")
        with Api(access_to(url, made)) as api:
            cache = Cache(api, "/things", "", lambda thing: None)
            cache.start()
            assert cache.synced(WITHIN) and watched.wait(WITHIN)
            cache.stop()
            assert not cache._thread.is_alive()
            assert ended.wait(WITHIN)


def test_two_threads_write_while_it_watches(scenes: Make) -> None:
    scene = scenes((10, []))
    assert scene.cache.synced(WITHIN)

    def write(first: int) -> None:
        for number in range(first, first + 2000, 2):
            scene.cache.put(thing(f"n{number % 50}", number, owner=f"o{number % 3}"))
            scene.cache.of(f"o{number % 3}")

    threads = [threading.Thread(target=write, args=(first,)) for first in (100, 101)]
    for thread in threads:
        thread.start()
    for number in range(100, 2100):
        scene.server.tell("MODIFIED", thing(f"n{number % 50}", number, owner=f"o{number % 3}"))
    for thread in threads:
        thread.join(WITHIN)
    scene.passes()
    expected = {f"n{number % 50}": str(number) for number in range(2050, 2100)}
    assert scene.has() == expected
    owned = {one["metadata"]["name"] for number in range(3) for one in scene.cache.of(f"o{number}")}
    assert owned == set(expected) and sum(len(keys) for keys in scene.cache._owned.values()) == 50
