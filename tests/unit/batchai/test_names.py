"""Which names there may be, and ids as Azure writes them."""

from __future__ import annotations

import pytest

from petctl.compat.batchai.service.names import Address, check_name, parse_id, resource_id
from petctl.errors import UsageError


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("cluster", "nc6"),
        ("job", "a" * 64),
        ("experiment", "chainer_experiment"),
        ("group", "batchai.recipes"),
        ("account", "mystorage1"),
        ("share", "logs"),
        ("container", "data-2"),
    ],
)
def test_names_that_azure_takes(kind: str, name: str) -> None:
    assert check_name(kind, name) == name


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("cluster", ""),
        ("cluster", "a.b"),
        ("cluster", "a/b"),
        ("cluster", ".."),
        ("job", "a" * 65),
        ("group", ".."),
        ("group", "ends.with."),
        ("account", "My"),
        ("account", "has-dash"),
        ("share", "Logs"),
        ("share", "a--b"),
        ("container", "../x"),
    ],
)
def test_other_names_are_refused_with_the_rule(kind: str, name: str) -> None:
    with pytest.raises(UsageError, match="letters"):
        check_name(kind, name)


def test_ids_are_what_azure_writes_and_are_read_back() -> None:
    job = resource_id("g", "w", "experiments", "e", "jobs", "j")
    assert job == (
        "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/g"
        "/providers/Microsoft.BatchAI/workspaces/w/experiments/e/jobs/j"
    )
    assert parse_id(job, "jobs") == Address("g", "w", "e", "j")
    assert parse_id(resource_id("g", "w", "clusters", "c"), "clusters") == Address("g", "w", "", "c")
    assert parse_id(resource_id("g", "w", "experiments", "e"), "experiments") == Address("g", "w", "e", "e")
    assert parse_id(resource_id("g", "w"), "workspaces") == Address("g", "w", "", "w")
    # Azure itself writes these words in several ways
    assert parse_id(resource_id("g", "w", "fileServers", "f"), "fileservers") == Address("g", "w", "", "f")


@pytest.mark.parametrize(
    "text", ["nc6", "/subscriptions/1/resourceGroups/g", resource_id("g", "w", "clusters", "c", "x")]
)
def test_what_is_no_id_is_told_with_one_that_is(text: str) -> None:
    with pytest.raises(UsageError, match=r"one looks like /subscriptions/.*/clusters/NAME"):
        parse_id(text, "clusters")


def test_an_id_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError):
        parse_id(resource_id("g", "w", "fileservers", "f"), "clusters")
