"""An archive of code is unpacked exactly, or not at all."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from petctl.agent.code import BadCode, provide, unpack
from petctl.errors import GivenUp, PetctlError

FILES: dict[str, Any] = {
    "a.txt": b"one",
    "pkg/__init__.py": b"",
    "pkg/run.sh": (b"#!/bin/sh\n", 0o755),
    "to": "pkg/run.sh",
}


def lines(content: dict[str, Any]) -> bytes:
    """The manifest, written down independently of the code under test."""
    text = b""
    for name in sorted(content, key=str.encode):
        what = content[name]
        if isinstance(what, str):
            text += f"link 0 {hashlib.sha256(what.encode()).hexdigest()} {name}\n".encode()
        else:
            data, mode = what if isinstance(what, tuple) else (what, 0o644)
            text += f"{mode:o} {len(data)} {hashlib.sha256(data).hexdigest()} {name}\n".encode()
    return text


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, leads_to: str = "", size: int = 0
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.size = kind, mode, leads_to, size
    return info


def archive(content: dict[str, Any], *more: tarfile.TarInfo) -> BinaryIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in sorted(content, key=str.encode):
            what = content[name]
            if isinstance(what, str):
                tar.addfile(entry(name, tarfile.SYMTYPE, 0o777, what))
            else:
                data, mode = what if isinstance(what, tuple) else (what, 0o644)
                tar.addfile(entry(name, mode=mode, size=len(data)), io.BytesIO(data))
        for info in more:
            tar.addfile(info)
    packed.seek(0)
    return packed


def name_of(content: dict[str, Any]) -> str:
    return hashlib.sha256(lines(content)).hexdigest()


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_it_is_unpacked_as_it_was(tmp_path: Path) -> None:
    unpack(archive(FILES), name_of(FILES), str(tmp_path))
    assert (tmp_path / "a.txt").read_bytes() == b"one"
    assert os.access(tmp_path / "pkg" / "run.sh", os.X_OK) and not os.access(tmp_path / "a.txt", os.X_OK)
    assert (tmp_path / "to").readlink() == Path("pkg/run.sh")


@pytest.mark.parametrize(
    "changed",
    [{"a.txt": b"two"}, {"a.txt": (b"one", 0o755)}, {"to": "a.txt"}, {"b.txt": b""}, {"a.txt": "pkg/run.sh"}],
    ids=["content", "mode", "link", "added", "kind"],
)
def test_anything_but_the_right_content_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(BadCode, match="is not"):
        unpack(archive({**FILES, **changed}), name_of(FILES), str(tmp_path))


@pytest.mark.parametrize(
    "bad",
    [
        entry("../evil"),
        entry("/evil"),
        entry("pkg/../../evil"),
        entry("zz/./evil"),
        entry("zz\nevil"),
        entry("zz", tarfile.LNKTYPE, leads_to="a.txt"),
        entry("zz", tarfile.CHRTYPE),
        entry("zz", tarfile.FIFOTYPE),
        entry("zz", tarfile.DIRTYPE),
        entry("zz", tarfile.SYMTYPE, leads_to="/etc/passwd"),
        entry("zz", tarfile.SYMTYPE, leads_to="../outside"),
        entry("zz/y", tarfile.SYMTYPE, leads_to="../../outside"),
        entry("zz", tarfile.SYMTYPE, leads_to="pkg/../../outside"),
        entry("to/evil"),
        entry("a.txt"),
    ],
    ids=lambda info: f"{info.type!r} {info.name!r} {info.linkname}",
)
def test_what_leads_out_or_is_no_code_is_refused(tmp_path: Path, bad: tarfile.TarInfo) -> None:
    inside = tmp_path / "code"
    inside.mkdir()
    with pytest.raises(BadCode):
        unpack(archive(FILES, bad), name_of(FILES), str(inside))
    assert names_in(tmp_path) == ["code"]


def test_links_that_stay_inside_may_lead_up(tmp_path: Path) -> None:
    content = {**FILES, "pkg/up": ".././a.txt", "pkg2/here": "../pkg/", "pkg2/self": "."}
    unpack(archive(content), name_of(content), str(tmp_path))
    assert (tmp_path / "pkg" / "up").read_bytes() == b"one"
    assert (tmp_path / "pkg2" / "here" / "run.sh").exists()


def test_a_damaged_archive_leaves_nothing(tmp_path: Path) -> None:
    whole = archive(FILES).read()
    for cut in (0, 1, 30, len(whole) // 2):
        with pytest.raises(PetctlError, match=r"damaged|is not"):
            provide(str(tmp_path / "code"), name_of(FILES), partial(io.BytesIO, whole[:cut]), {})
        assert names_in(tmp_path) == ["code.lock"]


def test_it_is_provided_once_and_the_rest_wait(tmp_path: Path) -> None:
    opened: list[int] = []

    def open_archive() -> BinaryIO:
        opened.append(1)
        return archive(FILES)

    wanted = str(tmp_path / "code"), name_of(FILES)
    threads = [threading.Thread(target=provide, args=(*wanted, open_archive, {})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 1 and (tmp_path / "code" / "pkg" / "run.sh").exists()


def test_the_draft_of_one_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "code.draft" / "pkg").mkdir(parents=True)
    (tmp_path / "code.draft" / "stale").write_text("")
    provide(str(tmp_path / "code"), name_of(FILES), lambda: archive(FILES), {})
    assert names_in(tmp_path / "code") == ["a.txt", "pkg", "to"]


def test_what_the_snapshot_leaves_out_is_linked(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    links = {"data": str(tmp_path / "data"), "pkg/build/x.so": "/nowhere/x.so", "a.txt": "/never"}
    provide(str(tmp_path / "code"), name_of(FILES), lambda: archive(FILES), links)
    assert (tmp_path / "code" / "data").resolve() == tmp_path / "data"
    assert (tmp_path / "code" / "pkg" / "build" / "x.so").is_symlink()
    assert (tmp_path / "code" / "a.txt").read_bytes() == b"one"  # the snapshot's own stays


def test_a_node_that_leaves_does_not_wait_for_it(tmp_path: Path) -> None:
    with pytest.raises(GivenUp):
        provide(str(tmp_path / "code"), name_of(FILES), lambda: archive(FILES), {}, given_up=lambda: True)
    assert names_in(tmp_path) == ["code.lock"]
