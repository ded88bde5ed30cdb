"""Nobody writes through a link that lies where a file is to arrive."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import PetctlError, StoreError
from petctl.storage.stores.arriving_file import DONE, PARTIAL, FileSink, put_small
from petctl.storage.stores.endpoint import Entry

ENTRY = Entry("x", 3, 0.0)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


@pytest.mark.parametrize("suffix", [PARTIAL, DONE])
def test_large_files(tmp_path: Path, victim: Path, suffix: str) -> None:
    (tmp_path / f"new{suffix}").symlink_to(victim)
    with pytest.raises(StoreError, match="a link lies where the file is to be written"):
        FileSink(str(tmp_path / "new"), ENTRY, "identity")
    assert victim.read_text() == "precious"


def test_small_files(tmp_path: Path, victim: Path) -> None:
    (tmp_path / f"new{PARTIAL}").symlink_to(victim)
    with pytest.raises(StoreError, match="a link lies where the file is to be written"):
        put_small(str(tmp_path / "new"), b"abc", ENTRY)
    assert victim.read_text() == "precious" and not (tmp_path / "new").exists()


def test_files_of_nodes(tmp_path: Path, victim: Path) -> None:
    from petctl.storage.core.endpoint import Entry as Stored
    from petctl.storage.core.files import PART_SUFFIX, Depot

    source = tmp_path / "store"
    source.mkdir()
    (source / "x").write_text("abc")
    about = {"kind": "file", "directory": str(source), "base": str(source)}
    (tmp_path / f"new{PART_SUFFIX}").symlink_to(victim)
    with pytest.raises(PetctlError):
        Depot(lambda call, fields: about).fetch("grant", Stored("x", 3, 0.0, ""), str(tmp_path / "new"))
    assert victim.read_text() == "precious"
