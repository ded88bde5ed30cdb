"""Ids are readable, and a part of one finds the one job it can mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.errors import NotFound, UsageError
from petctl.job.spec import Job
from petctl.jobs.names import ALPHABET, checked_id, find_id, name_of, new_id


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"script": "dir/Train_it.py"}, "train_it"),
        ({"module": "pkg.tool"}, "tool"),
        ({"program": ["/usr/bin/nvidia-smi", "-L"]}, "nvidia-smi"),
        ({"shell": "echo hello | wc"}, "echo"),
        ({"program": ["./日本"]}, "job"),
        ({"script": "a.py", "name": "mnist"}, "mnist"),
    ],
)
def test_a_name_comes_from_the_command(fields: dict[str, object], name: str) -> None:
    assert name_of(Job(**fields)) == name  # type: ignore[arg-type]


def test_an_id_has_no_characters_that_are_easily_confused() -> None:
    name, _, tail = new_id("mnist").rpartition("-")
    assert name == "mnist"
    assert len(tail) == 4
    assert set(tail) <= set(ALPHABET)
    assert not set("01ilo") & set(ALPHABET)


IDS = ["mnist-3f9k", "mnist-77ab", "ddp-x3f9"]


@pytest.mark.parametrize(
    ("reference", "found"),
    [("ddp", "ddp-x3f9"), ("3f9k", "mnist-3f9k"), ("mnist-7", "mnist-77ab"), ("b", "mnist-77ab")],
)
def test_a_unique_prefix_or_suffix_is_enough(reference: str, found: str) -> None:
    assert find_id(reference, IDS) == found


def test_an_exact_id_wins_over_a_longer_one() -> None:
    assert find_id("a-1", ["a-1", "a-12"]) == "a-1"


def test_an_ambiguous_reference_lists_what_it_can_mean() -> None:
    with pytest.raises(UsageError, match="mnist-3f9k, mnist-77ab"):
        find_id("mnist", IDS)


def test_an_unknown_reference_names_the_nearest() -> None:
    with pytest.raises(NotFound, match="did you mean mnist-3f9k"):
        find_id("mnist-3f9j", IDS)
    with pytest.raises(NotFound, match="petctl list"):
        find_id("zzzzzz", IDS)
    with pytest.raises(NotFound):
        find_id("", IDS)


@given(st.text(min_size=1))
def test_any_command_gives_a_name_that_makes_a_plain_directory(text: str) -> None:
    try:
        job = Job(program=[text])
    except UsageError:
        return
    name = name_of(job)
    assert name
    assert not set(name) & set("/\0 \n")
    assert not name.startswith(".")


@pytest.mark.parametrize("own", ["a", "sweep-017", "2024.run_3", "x" * 63])
def test_an_id_of_one_s_own(own: str) -> None:
    assert checked_id(own) == own


@pytest.mark.parametrize("own", ["", "A", "-a", "a-", ".new-1", "a/b", "a b", "..", "x" * 64, "a\n"])
def test_an_id_that_cannot_be_a_directory_s_and_an_object_s_name(own: str) -> None:
    with pytest.raises(UsageError, match="1 to 63"):
        checked_id(own)
