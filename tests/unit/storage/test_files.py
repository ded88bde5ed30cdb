"""The line to the coordinator: made again when that is replaced, and its refusals are what they were there."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from petctl.errors import GivenUp, NoSuchPlace, PetctlError, Refused, Unreachable
from petctl.rendezvous.net.join_file import JoinFile
from petctl.storage.core import files
from petctl.storage.core.files import CoordinatorLine

JOIN = JoinFile("job", "00", "", {"address": "127.0.0.1:1"})


def answers(monkeypatch: pytest.MonkeyPatch, *given: object) -> list[str]:
    """Every connection answers with the next of these, or raises it."""
    left, opened = list(given), []

    class Link:
        def __init__(self, join: JoinFile) -> None:
            opened.append(join.job)

        def call(self, name: str, **arguments: Any) -> object:
            answer = left.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def close(self) -> None:
            pass

    monkeypatch.setattr(files, "ControlLink", Link)
    monkeypatch.setattr(files, "PAUSE", 0.0)
    return opened


def refusal(code: int) -> PetctlError:
    """As it comes over the wire."""
    error = PetctlError("why")
    error.code = code
    return error


def test_a_replaced_coordinator_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = answers(monkeypatch, "first", Unreachable("gone"), Unreachable("gone"), "second", "third")
    line = CoordinatorLine(JOIN)
    assert [line.ask("sign", {}) for _ in range(3)] == ["first", "second", "third"]
    assert len(opened) == 3


def test_refusals_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, refusal(Refused.code), refusal(NoSuchPlace.code), refusal(1))
    line = CoordinatorLine(JOIN)
    for kind in (Refused, NoSuchPlace, PetctlError):
        with pytest.raises(PetctlError, match="why") as caught:
            line.ask("sign", {})
        assert type(caught.value) is kind


def test_nobody_waits_for_a_node_that_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, *[Unreachable("gone")] * 3)
    given_up = threading.Event()
    given_up.set()
    with pytest.raises(GivenUp):
        CoordinatorLine(JOIN, given_up).ask("sign", {})


def test_patience_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, *[Unreachable("gone")] * 100)
    monkeypatch.setattr(files, "PATIENCE", 0.0)
    with pytest.raises(Unreachable):
        CoordinatorLine(JOIN).ask("sign", {})
