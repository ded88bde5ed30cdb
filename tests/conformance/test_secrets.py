"""Secrets are kept by name, reach the workers, and are shown to nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

import pytest

from petctl.errors import NotFound
from petctl.jobs import JobHandle
from petctl.jobs.secrets import list_secrets, remove_secret, set_secret
from tests.conformance.backend import Backend


@pytest.fixture
def names(backend: Backend) -> Iterator[tuple[str, str]]:
    for name in ("first.one", "second_one"):
        set_secret(name, f"value of {name}", backend.cluster)
    yield "first.one", "second_one"
    for name in list_secrets(backend.cluster):
        remove_secret(name, backend.cluster)


def test_secrets_are_set_replaced_listed_and_removed(backend: Backend, names: tuple[str, str]) -> None:
    set_secret("first.one", "another", backend.cluster)
    assert list_secrets(backend.cluster) == sorted(names)
    remove_secret("first.one", backend.cluster)
    assert list_secrets(backend.cluster) == ["second_one"]
    with pytest.raises(NotFound, match=r"no secret 'first\.one'"):
        remove_secret("first.one", backend.cluster)


def test_a_secret_reaches_the_workers(
    backend: Backend, start: Callable[..., JobHandle], names: tuple[str, str]
) -> None:
    handle = start("secret", "ONE", "TWO", secrets={"ONE": names[0], "TWO": names[1]})
    assert handle.wait(backend.patience).state == "succeeded"
    said = {line.text.split()[1]: line.text.split()[2] for line in handle.logs() if line.text.startswith(b"digest")}
    for variable, name in ((b"ONE", names[0]), (b"TWO", names[1])):
        assert said[variable] == hashlib.sha256(f"value of {name}".encode()).hexdigest().encode()


def test_a_missing_secret_is_told_to_the_submitter(backend: Backend) -> None:
    with pytest.raises(NotFound, match=r"no secret 'never-set'.*petctl secret set") as told:
        backend.start("hello", secrets={"TOKEN": "never-set"})
    assert told.value.code == 2
