"""Small trees, written as a mapping of paths to contents."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from petctl.bundle import index

Grow = Callable[..., Path]


@pytest.fixture
def grow(tmp_path: Path) -> Grow:
    """Makes a tree whose files lie still: they are older than what the index takes for being written."""

    def make(files: Mapping[str, str | bytes], name: str = "code") -> Path:
        root = tmp_path / name
        root.mkdir(exist_ok=True)
        for path, content in files.items():
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content.encode() if isinstance(content, str) else content)
            os.utime(file, (1_000_000_000, 1_000_000_000))
        return root

    return make


@pytest.fixture
def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets files that were written just now count as old: nobody can set a file's ctime."""
    monkeypatch.setattr(index, "_SETTLED", 0)
