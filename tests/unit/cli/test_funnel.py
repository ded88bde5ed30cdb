"""Several readers become batches: complete, in order, bounded, and with their errors."""

from __future__ import annotations

import threading
from typing import Iterator

import pytest

from petctl.cli.terminal import follow as funnel_module
from petctl.cli.terminal.follow import Funnel


def test_every_item_arrives_once_and_in_its_sources_order() -> None:
    funnel: Funnel[tuple[str, int]] = Funnel()
    for name in "abc":
        funnel.add([(name, k) for k in range(3_000)])
    items = [item for batch in funnel.batches() for item in batch]
    assert len(items) == 9_000
    for name in "abc":
        assert [k for source, k in items if source == name] == list(range(3_000))


def test_what_has_gathered_comes_in_one_batch() -> None:
    funnel: Funnel[int] = Funnel()
    for number in range(20):
        funnel.put(number)
    funnel.add([])
    assert next(funnel.batches()) == list(range(20))


def test_a_single_item_is_not_held_back() -> None:
    taken = threading.Event()

    def source() -> Iterator[str]:
        yield "first"
        assert taken.wait(10)
        yield "second"

    funnel: Funnel[str] = Funnel()
    funnel.add(source())
    batches = funnel.batches()
    assert next(batches) == ["first"]
    taken.set()
    assert [item for batch in batches for item in batch] == ["second"]


def test_an_empty_batch_when_there_is_no_news() -> None:
    hold = threading.Event()

    def source() -> Iterator[str]:
        hold.wait(10)
        yield "late"

    funnel: Funnel[str] = Funnel()
    funnel.add(source())
    batches = funnel.batches()
    assert next(batches) == []
    hold.set()
    assert "late" in [item for batch in batches for item in batch]


def test_a_sources_error_comes_behind_its_items() -> None:
    def source() -> Iterator[str]:
        yield "item"
        raise LookupError("gone")

    funnel: Funnel[str] = Funnel()
    funnel.add(source())
    got: list[str] = []
    with pytest.raises(LookupError):
        for batch in funnel.batches():
            got += batch
    assert got == ["item"]


def test_a_source_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(funnel_module, "MOST_WAITING", 10)
    monkeypatch.setattr(funnel_module, "MOST_AT_ONCE", 5)
    funnel: Funnel[int] = Funnel()
    most = 0
    funnel.add(range(2_000))
    items: list[int] = []
    for batch in funnel.batches():
        most = max(most, funnel._queue.qsize())
        items += batch
    assert items == list(range(2_000))
    assert most <= 12


def test_close_lets_a_waiting_source_go(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    def source() -> Iterator[int]:
        try:
            yield from range(1_000_000)
        finally:
            let_go.set()

    funnel: Funnel[int] = Funnel()
    funnel.add(source())
    next(funnel.batches())
    funnel.close()
    assert let_go.wait(10)
