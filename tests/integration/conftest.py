"""For all integration tests: interpreters that `make test` provides, one Azurite for all who do not ask what other
containers there are, and a memory of imports that is the test's own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.storage.servers import Azurite

ROOT = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is waited for has its own deadlines, and some tests wait for several things, on a machine with others."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that petctl learns in a test is kept, and nothing that was learnt before is known in it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Azurite]:
    """A real server; each test makes containers of its own."""
    from tests.integration.storage.conftest import running
    from tests.integration.storage.servers import Azurite

    yield from running(Azurite, tmp_path_factory)


@pytest.fixture(scope="session")
def torch_python() -> str:
    """An interpreter with PyTorch."""
    return _provided("PETCTL_TORCH_PYTHON", ".venv-torch")


@pytest.fixture(scope="session")
def foreign_python() -> str:
    """An interpreter with PyTorch, Lightning, accelerate and JAX."""
    return _provided("PETCTL_FOREIGN_PYTHON", ".venv-foreign")


def _provided(variable: str, environment: str) -> str:
    python = os.environ.get(variable, str(ROOT / environment / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip(f"{python} does not exist; `make test` installs it")
    return python
