"""What Kubernetes takes for a name, whatever the job is called; and whose name it is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petctl.clusters.kubernetes.names import (
    COORDINATOR,
    JOB,
    LONGEST,
    NODE,
    ROLE,
    labels,
    object_name,
    selector,
)

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # of RFC 1035: what a Service's name must be
IDS = st.text(min_size=1, max_size=80) | st.from_regex(r"[A-Za-z0-9._-]{1,80}", fullmatch=True)
LONGEST_OF_A_POD = 63


@settings(deadline=None)
@given(IDS)
def test_every_name_is_a_label_with_room_for_what_is_added(job_id: str) -> None:
    name = object_name(job_id)
    assert LABEL.fullmatch(name), name
    assert len(name) <= LONGEST
    assert len(f"{name}-{COORDINATOR}-0-abcde") <= LONGEST_OF_A_POD
    assert len(f"{name}-{NODE}-100000-abcde") <= LONGEST_OF_A_POD


@settings(deadline=None)
@given(st.from_regex(rf"[a-z]([-a-z0-9]{{0,{LONGEST - 2}}}[a-z0-9])?", fullmatch=True))
def test_an_id_that_is_a_name_keeps_it(job_id: str) -> None:
    assert object_name(job_id) == job_id


@settings(deadline=None)
@given(IDS)
def test_what_had_to_be_changed_shows_it(job_id: str) -> None:
    name = object_name(job_id)
    if name != job_id:
        assert re.search(r"-[0-9a-f]{6}$", name)


@settings(deadline=None)
@given(st.lists(IDS, min_size=2, max_size=30, unique=True))
def test_no_two_ids_share_a_name(ids: list[str]) -> None:
    assert len({object_name(job_id) for job_id in ids}) == len(ids)


@pytest.mark.parametrize(
    "ids",
    [
        ("a.b-2222", "a_b-2222", "a-b-2222", "A-b-2222", "-a-b-2222", "a-b-2222-"),
        ("1-2222", "j-1-2222", "J-1-2222"),
        ("x" * 41, "x" * 42, "x" * 40),
        ("é", "è", "-", "."),
    ],
)
def test_ids_that_are_cleaned_to_the_same_differ(ids: tuple[str, ...]) -> None:
    assert len({object_name(job_id) for job_id in ids}) == len(ids)


def test_what_is_selected_is_what_was_labelled() -> None:
    own = labels("My.Job-2222", NODE)
    for wanted in (selector("My.Job-2222"), selector("My.Job-2222", NODE)):
        assert all(own[key] == value for key, value in (term.split("=") for term in wanted.split(",")))
    assert own[JOB] != labels("my-job-2222")[JOB]
    assert ROLE not in labels("my-job-2222")
    assert f"{ROLE}={COORDINATOR}" == "petctl.dev/role=coordinator"
