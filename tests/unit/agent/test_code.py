"""An archive of code is unpacked exactly, or not at all."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import threading
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from petctl.agent.data.code import BadCode, Bounds, provide, unpack
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
    with pytest.raises(BadCode, match="has the checksum"):
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


BOUNDS = Bounds(len(FILES), 3 + len(b"#!/bin/sh\n"))


def test_an_archive_within_the_records_bounds_is_unpacked(tmp_path: Path) -> None:
    unpack(archive(FILES), name_of(FILES), str(tmp_path), bounds=BOUNDS)
    assert (tmp_path / "a.txt").read_bytes() == b"one"


@pytest.mark.parametrize("bounds", [BOUNDS._replace(files=3), BOUNDS._replace(bytes=12)])
def test_an_archive_with_more_than_the_record_says_is_refused(tmp_path: Path, bounds: Bounds) -> None:
    with pytest.raises(BadCode, match="has more than snapshot"):
        unpack(archive(FILES), name_of(FILES), str(tmp_path), bounds=bounds)


def huge(size: int, header: bytes = b"") -> BinaryIO:
    """An archive of one file of zeros, which is made while it is read."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as out:
        out.write(header or entry("zeros", size=size).tobuf())
        for _ in range(size >> 20):
            out.write(bytes(1 << 20))
    packed.seek(0)
    return packed


def test_a_file_that_is_too_big_is_refused_before_a_byte_of_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(BadCode, match="has more than snapshot"):
        unpack(huge(64 << 20), "0" * 64, str(tmp_path), bounds=Bounds(1, 1000))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_long_header_does_not_take_the_memory(tmp_path: Path, kind: bytes) -> None:
    import tracemalloc

    packed = huge(64 << 20, entry("header", kind, size=64 << 20).tobuf())
    tracemalloc.start()
    try:
        with pytest.raises(BadCode):
            unpack(packed, "0" * 64, str(tmp_path))
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_holes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadCode):
        unpack(huge(0, sparse_header(3 << 30)), "0" * 64, str(tmp_path), bounds=Bounds(1, 4 << 30))
    assert not any(tmp_path.iterdir())


def sparse_header(real_size: int) -> bytes:
    """A file that is nothing but a hole, in GNU's old form."""
    data = bytearray(entry("hole", tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
    data[386:398] = b"%011o\0" % real_size
    data[398:410] = b"%011o\0" % 0
    data[483:495] = b"%011o\0" % real_size
    data[148:156] = b"        "
    data[148:156] = b"%06o\0 " % sum(data[:512])
    return bytes(data)


def test_folders_count(tmp_path: Path) -> None:
    names = {"/".join([f"{number:03d}", *["d"] * 190, "x"]): b"" for number in range(4)}
    with pytest.raises(BadCode, match="more folders than its snapshot can have"):
        unpack(archive(names), name_of(names), str(tmp_path), bounds=Bounds(4, 0))
    deep = {"/".join(["d"] * 300): b""}
    with pytest.raises(BadCode, match="is nested more than 200 folders deep"):
        unpack(archive(deep), name_of(deep), str(tmp_path / "deep"))


def test_the_id_of_a_snapshot_is_checked_before_it_becomes_a_path(tmp_path: Path) -> None:
    import asyncio

    from petctl.agent.data.code_source import CodeSource
    from petctl.job.task import Code
    from petctl.rendezvous.net.join_file import JoinFile

    async def outcome() -> tuple[str, str]:
        told: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()
        join = JoinFile("job", "token", "", {"address": "127.0.0.1:1"}, None)
        CodeSource(Code(id="../../etc"), join, str(tmp_path), lambda *said: told.set_result(said), print)
        return await asyncio.wait_for(told, 20)

    assert asyncio.run(outcome()) == ("", "'../../etc' is not a snapshot id")
    assert not any(tmp_path.iterdir())


def test_an_archive_that_is_larger_than_its_snapshot_can_be_is_not_fetched(tmp_path: Path) -> None:
    """Neither from the coordinator nor from the store: a full disk would stop the node."""
    import asyncio

    from petctl.agent.data.code_source import STORED, CodeSource, serve
    from petctl.job.task import Code
    from petctl.rendezvous.net.join_file import JoinFile
    from petctl.storage.core.files import Depot
    from petctl.storage.core.grants import Grant, Grants

    bounds, stored = Bounds(1, 1000), tmp_path / "store" / STORED
    stored.parent.mkdir()
    grants = Grants({"code": Grant("file", str(stored.parent))})

    class Link:
        """A coordinator without the way to it."""

        def call(self, name: str, offset: int, size: int) -> dict[str, object]:
            return serve(str(stored), offset, size)

    def ask(call: str, words: Any) -> Any:
        return getattr(grants, call)(**words)

    async def begun() -> CodeSource:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        join = JoinFile("job", "token", "", {"address": "127.0.0.1:1"}, None)
        code = Code(id="no id", files=bounds.files, bytes=bounds.bytes)
        source = CodeSource(code, join, str(tmp_path), lambda *said: told.set_result(said), print)
        await asyncio.wait_for(told, 20)  # the thread has ended
        return source

    source = asyncio.run(begun())
    source._code, source._depot, source._hang_up = Code(id="0" * 64, grant="code"), Depot(ask), lambda: None
    for size, fits in ((bounds.archive, True), (bounds.archive + 1, False)):
        stored.write_bytes(bytes(size))
        for fetch in (
            lambda file: source._add_part(Link(), file),  # type: ignore[arg-type]
            lambda file: source._from_store(str(tmp_path / "fetched")).close(),
        ):
            file = io.BytesIO()
            if fits:
                fetch(file)
                continue
            with pytest.raises(BadCode, match="more than snapshot 000000000000 can have"):
                fetch(file)
            assert not file.getvalue() and not list(tmp_path.glob("fetched*"))
