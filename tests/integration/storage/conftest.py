"""Two real stores for all tests here, a fresh bucket for each test, the command line in surroundings of its own."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from petctl.storage.stores.credentials import Surroundings
from petctl.storage.stores.location import parse_location
from petctl.storage.transfer.plan import open_end, open_source
from petctl.storage.transfer.transfer import Tally, transfer
from tests.integration.storage.proxy import Proxy
from tests.integration.storage.servers import Missing, SeaweedFS, Server

NUMBERS = itertools.count(1)


def running(kind: type[Any], factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server for as long as a fixture lasts."""
    try:
        server = kind(factory.mktemp(kind.__name__))
    except Missing as missing:
        if os.environ.get("CI"):  # where everything must run, nothing may be left out in silence
            pytest.fail(str(missing))
        pytest.skip(str(missing))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    yield from running(SeaweedFS, tmp_path_factory)


@dataclass
class Scene:
    """One bucket of one server, empty at first."""

    server: Any
    root: str
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def surroundings(self) -> Surroundings:
        return Surroundings(self.environment, records=self.folder / "records")

    def copy(self, source: object, target: object, **options: bool) -> Tally:
        """Copies within this process."""
        known = self.surroundings()
        tally = Tally()
        first = open_source(parse_location(str(source)), known)
        transfer(first, open_end(parse_location(str(target)), known), tally, **options)
        return tally

    def words(self, *words: object) -> list[str]:
        return [sys.executable, "-m", "petctl", "data", *map(str, words)]

    def environ(self) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
        home = {"PETCTL_HOME": str(self.folder / "home"), "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder)}
        return {**clean, **home, **self.environment}

    def petctl(self, *words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        """`petctl data ...`; nothing of a traceback may ever be seen."""
        done = subprocess.run(
            self.words(*words),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env=self.environ(),
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def json(self, *words: object) -> Any:
        return json.loads(self.petctl(*words, "-o", "json").stdout)

    def through(self, proxy: Proxy) -> None:
        """From here on requests pass the proxy."""
        self.environment = self.server.environment(proxy.url)


@pytest.fixture(params=["s3", "az"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    """A fresh bucket of SeaweedFS, then a fresh container of Azurite."""
    server = request.getfixturevalue("seaweedfs" if request.param == "s3" else "azurite")
    return Scene(server, server.make(f"bucket-{next(NUMBERS)}"), tmp_path, server.environment())


@pytest.fixture
def proxy(scene: Scene) -> Iterator[Proxy]:
    """Between the test's scene and its server."""
    with Proxy(scene.server.port) as between:
        scene.through(between)
        yield between


def tree(folder: Path) -> dict[str, str]:
    """Every file with the checksum of its content."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def fill(folder: Path, sizes: dict[str, int], seed: int = 1) -> Path:
    """Files with content that can be had again."""
    chance = random.Random(seed)
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(chance.randbytes(size))
    return folder


__all__ = ["Proxy", "Scene", "Server", "fill", "tree"]
