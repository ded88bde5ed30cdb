"""The termination message: always whole, always small enough, and still to the point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.controller.termination_message import LIMIT, compose, cut, read_message, write_message
from petctl.rendezvous.core.messages import ENDED_FAILED, Failure, Outcome, decode_outcome

FACTS = {"started": 1.5, "finished": 2.5, "spent": 3, "rounds": 2, "size": {"min": 1, "wanted": 2, "max": 3}}


def failed(message: str, traceback: str) -> Outcome:
    failure = Failure("0", 1, 0, 1, message=message, traceback=traceback)
    return Outcome(ENDED_FAILED, 1, failure.sentence(), failure)


@given(st.text(max_size=6000), st.text(max_size=6000))
def test_it_fits_and_can_be_read_whatever_the_texts_are(message: str, traceback: str) -> None:
    data = compose(failed(message, traceback), FACTS)
    assert len(data) <= LIMIT
    found = json.loads(data.decode("utf-8"))
    assert decode_outcome(found.pop("outcome")).state == ENDED_FAILED and found == FACTS


@pytest.mark.parametrize("letter", ["x", "\n", '"', "ü", "\U0001f40d", "\ud800", "\x00"])
def test_long_texts_of_any_letter_fit(letter: str) -> None:
    data = compose(failed(letter * 16_000, letter * 16_000), FACTS)
    assert len(data) <= LIMIT and decode_outcome(json.loads(data)["outcome"]).failure is not None


def test_a_traceback_loses_its_middle_and_nothing_else_is_touched() -> None:
    traceback = "Traceback begins\n" + "  somewhere\n" * 1000 + "ValueError: at the end"
    outcome = failed("ValueError: at the end", traceback)
    data = compose(outcome, FACTS)
    found = decode_outcome(json.loads(data)["outcome"])
    assert LIMIT - 20 < len(data) <= LIMIT
    assert (found.sentence, found.code) == (outcome.sentence, 1)
    assert found.failure is not None and found.failure.message == "ValueError: at the end"
    assert found.failure.traceback.startswith("Traceback begins\n") and "left out" in found.failure.traceback
    assert found.failure.traceback.endswith("ValueError: at the end")
    assert compose(failed("a", "b"), FACTS) == compose(failed("a", "b"), FACTS)
    assert cut("0123456789", 4) == "01 [... 6 characters left out ...] 89" and cut("0123", 4) == "0123"


def test_it_is_written_in_place_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    path.write_bytes(b"torn {" * 1000)
    assert read_message(path) is None and read_message(tmp_path / "none") is None
    before = path.stat().st_ino
    write_message(path, failed("m", "t"), **FACTS)
    found = read_message(path)
    assert found is not None and found["spent"] == 3 and decode_outcome(found["outcome"]) == failed("m", "t")
    assert path.stat().st_ino == before and path.read_bytes().endswith(b"}")


def test_a_file_that_is_a_device_takes_it_too() -> None:
    write_message(Path("/dev/null"), failed("m", "t"), **FACTS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "{}",
        '{"outcome": {"state": "failed", "code": 1, "sentence": "x"}}',
        '{"outcome": {"state": "failed"}}',
        '{"outcome": 3}',
    ],
)
def test_what_is_no_outcome_counts_as_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "termination-log"
    path.write_text(text)
    assert read_message(path) is None
