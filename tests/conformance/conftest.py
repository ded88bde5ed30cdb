"""Which backends are tested, a cluster of each, and two jobs that many cases look at without changing them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from petctl.jobs import JobHandle
from tests.conformance.backend import Backend

KNOWN = {
    "debug": "tests.conformance.debug:DebugBackend",
    "loops": "tests.conformance.loops:LoopsBackend",
    "local": "tests.conformance.local:LocalBackend",
    "kubernetes": "tests.conformance.kubernetes:KubernetesBackend",
    "operator": "tests.conformance.kubernetes:OperatorBackend",
}
USUAL = "debug,local,loops"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Names of `KNOWN`, or MODULE:CLASS of anybody's own."""
    parser.addoption("--backends", default=USUAL, help=f"those that conform; {', '.join(KNOWN)} or MODULE:CLASS")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "backend" in metafunc.fixturenames:
        names = metafunc.config.getoption("--backends").split(",")
        metafunc.parametrize("backend", names, indirect=True, scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is waited for has its own deadlines, on a machine with others."""
    for item in items:
        if not isinstance(item, pytest.Function) or "backend" not in item.fixturenames:
            continue
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
        harness = _harness(str(item.callspec.params["backend"]))
        if harness.all_long or item.originalname in harness.long:
            item.add_marker(pytest.mark.long)


def _harness(name: str) -> type[Backend]:
    module, _, named = KNOWN.get(name, name).partition(":")
    found: type[Backend] = getattr(importlib.import_module(module), named)
    return found


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """The cluster, and its user."""
    made = _harness(request.param)(tmp_path_factory.mktemp("conformance"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def inside(backend: Backend) -> Iterator[None]:
    """Every case runs as the user."""
    with backend.inside():
        yield


@pytest.fixture
def start(backend: Backend) -> Iterator[Callable[..., JobHandle]]:
    """Submits jobs that are gone afterwards."""
    started: list[JobHandle] = []

    def submitted(*words: str, **fields: Any) -> JobHandle:
        started.append(backend.start(*words, **fields))
        return started[-1]

    yield submitted
    for handle in started:
        backend.end(handle)


@pytest.fixture(scope="session")
def live(backend: Backend) -> Iterator[JobHandle]:
    """A job of two nodes that runs; of up to three. Nobody may change it."""
    with backend.inside():
        handle = backend.start("serve", nodes="1:2:3")
        try:
            backend.greeted(handle, 2)
            backend.running(handle, 2)
            yield handle
        finally:
            with backend.inside():
                backend.end(handle)


@pytest.fixture(scope="session")
def ended(backend: Backend) -> Iterator[JobHandle]:
    """One that has had two rounds, as its first was ended by rank 1, and then did well."""
    with backend.inside():
        handle = backend.start("wait", nodes=2)
        try:
            backend.greeted(handle, 2)
            backend.running(handle, 2)
            backend.tell(handle, "die-1", "1")
            backend.greeted(handle, 2, after=1)
            backend.running(handle, 2, after=1)
            backend.tell(handle, "finish")
            handle.wait(backend.patience)
            yield handle
        finally:
            with backend.inside():
                backend.end(handle)
