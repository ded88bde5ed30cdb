"""Keys in line: each once at a time, at its moment, later after failures. Time passes only when somebody would wait."""

from __future__ import annotations

import threading

import pytest

from petctl.clusters.kubernetes.operator.runtime.queue import FIRST, LONGEST, Clock, Queue


class Played(Clock):
    """Whoever would wait finds that the time has passed; waiting for nothing is a mistake of the test."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def wait(self, turn: threading.Condition, seconds: float | None) -> None:
        assert seconds is not None, "it would wait for ever"
        self.time += seconds


@pytest.fixture
def clock() -> Played:
    return Played()


@pytest.fixture
def queue(clock: Played) -> Queue[str]:
    return Queue(clock)


def is_empty(queue: Queue[str]) -> bool:
    with pytest.raises(AssertionError, match="for ever"):
        queue.take()
    return True


def test_keys_come_in_order_and_each_once(queue: Queue[str]) -> None:
    for key in ("b", "a", "b", "c", "a"):
        queue.add(key)
    assert [queue.take() for _ in range(3)] == ["b", "a", "c"]
    assert is_empty(queue)


def test_what_is_wished_during_a_look_comes_once_more_afterwards(queue: Queue[str]) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert is_empty(queue)  # nobody else may look at it now
    queue.succeeded("a")
    assert queue.take() == "a"
    queue.succeeded("a")
    assert is_empty(queue)


def test_a_moment_is_waited_for_and_the_earlier_wish_wins(queue: Queue[str], clock: Played) -> None:
    queue.add_at("late", clock.time + 20)
    queue.add_at("a", clock.time + 30)
    queue.add_at("a", clock.time + 10)
    queue.add_at("a", clock.time + 50)
    begun = clock.time
    assert (queue.take(), clock.time - begun) == ("a", 10)
    queue.succeeded("a")
    assert (queue.take(), clock.time - begun) == ("late", 20)
    queue.succeeded("late")
    assert is_empty(queue)


def test_a_look_answers_the_wishes_before_it_and_none_that_come_during_it(queue: Queue[str], clock: Played) -> None:
    queue.add_at("a", clock.time + 5)
    queue.add("a")
    queue.add_at("a", clock.time + 7)
    begun = clock.time
    assert (queue.take(), clock.time) == ("a", begun)
    queue.add_at("a", begun + 9)
    queue.succeeded("a")
    assert (queue.take(), clock.time - begun) == ("a", 9)
    queue.succeeded("a")
    assert is_empty(queue)


def test_a_moment_that_comes_during_a_look_is_kept_until_it_is_done(queue: Queue[str], clock: Played) -> None:
    queue.add("a")
    assert queue.take() == "a"
    queue.add_at("a", clock.time + 1)
    assert is_empty(queue)
    queue.succeeded("a")
    assert queue.take() == "a"


def test_pauses_double_with_every_failure_in_a_row(queue: Queue[str], clock: Played) -> None:
    pauses = []
    queue.add("a")
    queue.take()
    for _ in range(13):
        before = clock.time
        queue.failed("a")
        assert queue.take() == "a"
        pauses.append(round(clock.time - before, 6))
    assert pauses[:4] == [FIRST, FIRST * 2, FIRST * 4, FIRST * 8]
    assert pauses[-1] == LONGEST == max(pauses)
    before = clock.time
    queue.failed("a", 5.0)  # something that anybody may put right at any time
    assert queue.take() == "a" and clock.time - before == 5.0


def test_success_forgets_failures(queue: Queue[str], clock: Played) -> None:
    def pause() -> float:
        before = clock.time
        queue.failed("a")
        assert queue.take() == "a"
        return round(clock.time - before, 6)

    queue.add("a")
    queue.take()
    assert [pause(), pause()] == [FIRST, 2 * FIRST]
    queue.add("a")
    queue.succeeded("a")
    assert queue.take() == "a"
    assert pause() == FIRST


def test_what_happened_during_a_failing_look_is_looked_at_at_once(queue: Queue[str], clock: Played) -> None:
    queue.add("a")
    queue.take()
    queue.add("a")
    before = clock.time
    queue.failed("a")
    assert (queue.take(), clock.time) == ("a", before)
    queue.succeeded("a")
    assert is_empty(queue)  # the pause of the failure is answered too


def test_one_failing_key_does_not_hold_up_others(queue: Queue[str], clock: Played) -> None:
    queue.add("a")
    queue.take()
    queue.failed("a")
    queue.add("b")
    before = clock.time
    assert (queue.take(), clock.time) == ("b", before)


def test_moments_that_nobody_wishes_any_more_are_forgotten(queue: Queue[str], clock: Played) -> None:
    for _ in range(1000):
        queue.add("a")
        assert queue.take() == "a"
        queue.add_at("a", clock.time + 3600)
        queue.succeeded("a")
    assert len(queue._heap) < 100
    begun = clock.time
    assert queue.take() == "a" and clock.time - begun == 3600


def test_whoever_waits_hears_of_keys_of_earlier_moments_and_of_the_end() -> None:
    queue: Queue[str] = Queue()
    taken: list[str | None] = []
    heard = threading.Semaphore(0)

    def work() -> None:
        while (key := queue.take()) is not None:
            taken.append(key)
            queue.succeeded(key)
            heard.release()
        taken.append(None)

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    queue.add_at("never", Clock().now() + 3600)
    queue.add("now")
    assert heard.acquire(timeout=20)
    queue.add_at("soon", Clock().now() + 0.02)
    assert heard.acquire(timeout=20)
    queue.close()
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()
    assert taken == ["now", "soon", None, None, None]
    queue.add("too late")
    assert queue.take() is None


def test_many_threads_never_look_at_one_key_together_and_miss_no_wish() -> None:
    queue: Queue[int] = Queue()
    lock, busy, looks = threading.Lock(), set[int](), dict.fromkeys(range(5), 0)
    wishes, answered = dict.fromkeys(range(5), 0), dict.fromkeys(range(5), 0)
    together: list[int] = []
    all_answered = threading.Event()

    def work() -> None:
        while (key := queue.take()) is not None:
            with lock:
                if key in busy:
                    together.append(key)
                busy.add(key)
                looks[key] += 1
                answered[key] = wishes[key]
            with lock:
                busy.discard(key)
            (queue.failed if looks[key] % 7 == 0 else queue.succeeded)(key)
            with lock:
                if all(count == 200 for count in answered.values()):
                    all_answered.set()

    def wish() -> None:
        for number in range(500):
            with lock:
                wishes[number % 5] += 1
            queue.add(number % 5)

    threads = [threading.Thread(target=work) for _ in range(4)] + [threading.Thread(target=wish) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all_answered.wait(30), (wishes, answered)
    finally:
        queue.close()
        for thread in threads:
            thread.join(30)
    assert not together
