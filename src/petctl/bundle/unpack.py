"""Unpacks archives that came from elsewhere, without trusting them: nothing is written outside the target.

Names must be relative and free of `..`; links must stay inside and are made last, so that nothing is ever written
through one; devices and pipes are refused. What comes out is counted, an entry for at least one block, and more than
`limit` is an error long before the disk is full.
"""

from __future__ import annotations

import gzip
import importlib
import os
import stat
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, cast

from petctl.agent.data.code import DEEPEST, stays_inside
from petctl.errors import UsageError

_BLOCK = 512
_PIECE = 1 << 20
_LONGEST_LINK = 4096
_DAMAGED = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, NotImplementedError)


def unpack(archive: Path, target: Path, *, kind: str, name: str, limit: int) -> None:
    """Unpacks into the empty folder `target`; `kind` is its ending, `name` what the user calls it."""
    tree = _Tree(target, name, limit)
    try:
        if kind == ".zip":
            _unzip(archive, tree)
        else:
            with _decompressed(archive, kind, name) as file:
                _untar(_Bounded(file, tree, 2 * limit + _PIECE), tree)
        tree.make_links()
    except _DAMAGED as error:
        raise UsageError(f"{name} is not a {kind} archive, or it is damaged: {error}") from None


class _Tree:
    """What has been unpacked so far, and the only one here that writes."""

    def __init__(self, target: Path, archive: str, limit: int) -> None:
        self._target = target
        self._archive = archive
        self._limit = self._left = limit
        self._links: dict[Path, str] = {}
        self._folders: set[Path] = set()

    def add_file(self, name: str, source: IO[bytes], executable: bool) -> None:
        """One file; a second one of the same name replaces the first, as in tar."""
        path = self._place(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            path.unlink(missing_ok=True)
            descriptor = os.open(path, flags, 0o755 if executable else 0o644)
        except (IsADirectoryError, PermissionError):
            raise self.refused(name, "appears twice, also as a folder") from None
        with open(descriptor, "wb") as file:
            while data := source.read(_PIECE):
                self._spend(len(data))
                file.write(data)

    def add_copy(self, name: str, earlier: str, executable: bool) -> None:
        """A hard link: the content of an earlier entry once more."""
        path = self._target.joinpath(*self._parts(earlier))
        if not path.is_file() or path == self._target.joinpath(*self._parts(name)):
            raise self.refused(name, f"is a hard link to {earlier!r}, which must come before it")
        with open(path, "rb") as source:
            self.add_file(name, source, executable)

    def add_link(self, name: str, text: str) -> None:
        """A symbolic link, made at the end."""
        path = self._place(name)
        if "\0" in text or not stays_inside("/".join(self._parts(name)), text):
            raise self.refused(name, f"is a link to {text!r}, which points outside it")
        self._links[path] = text

    def add_folder(self, name: str) -> None:
        """A folder, even an empty one: a script may look for it."""
        self._place(f"{name}/inside")

    def make_links(self) -> None:
        """When no file is written any more."""
        for path, text in self._links.items():
            try:
                path.symlink_to(text)
            except FileExistsError:
                name = str(path.relative_to(self._target))
                raise self.refused(name, "appears twice, once as a link") from None

    def too_big(self) -> UsageError:
        """The error about all of it."""
        return UsageError(f"{self._archive} unpacks to more than {self._limit >> 20} MiB; keep data out of it")

    def refused(self, name: str, why: str) -> UsageError:
        """The error about one entry."""
        return UsageError(
            f"{self._archive} was not unpacked: its entry {name!r} {why}; pack it again without that entry"
        )

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise self.too_big()

    def _parts(self, name: str) -> list[str]:
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or "\0" in name or not parts:
            raise self.refused(name, "has a name that points outside it")
        if len(parts) > DEEPEST:
            raise self.refused(name[:200], f"is nested more than {DEEPEST} folders deep")
        return parts

    def _place(self, name: str) -> Path:
        """Where an entry goes. Its folders are made, and are real ones: no link exists yet."""
        self._spend(_BLOCK)
        parts = self._parts(name)
        try:
            for depth in range(1, len(parts)):
                self._make_folder(self._target.joinpath(*parts[:depth]))
        except (FileExistsError, NotADirectoryError):
            raise self.refused(name, "has a file where its folder should be") from None
        return self._target.joinpath(*parts)

    def _make_folder(self, path: Path) -> None:
        """Once; it counts as an entry does: one name can stand for thousands of folders."""
        if path not in self._folders:
            self._spend(_BLOCK)
            path.mkdir(exist_ok=True)
            self._folders.add(path)


class _Bounded:
    """A stream that ends in an error rather than in gigabytes: headers are read into memory as long as they are."""

    def __init__(self, file: IO[bytes], tree: _Tree, most: int) -> None:
        self._file = file
        self._tree = tree
        self._left = most

    def read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except Exception as error:  # each decompressor has errors of its own
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise tarfile.ReadError(str(error)) from None
        self._left -= len(data)
        if self._left < 0:
            raise self._tree.too_big()
        return data


def _decompressed(archive: Path, kind: str, name: str) -> IO[bytes]:
    if kind == ".tar":
        return open(archive, "rb")
    if kind != ".tar.zst":
        return cast("IO[bytes]", gzip.open(archive, "rb"))
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError:
        raise UsageError(f"{name} needs the Python package zstandard; install it, or pack as .tar.gz") from None
    return cast("IO[bytes]", zstandard.open(archive, "rb"))


def _untar(file: _Bounded, tree: _Tree) -> None:
    with tarfile.open(fileobj=file, mode="r|") as tar:  # type: ignore[call-overload]  # it only reads
        while (member := tar.next()) is not None:
            tar.members.clear()  # it would keep every entry in memory
            executable = bool(member.mode & stat.S_IXUSR)
            if member.isdir():
                if member.name.strip("./"):
                    tree.add_folder(member.name)
            elif member.issym():
                tree.add_link(member.name, member.linkname)
            elif member.islnk():
                tree.add_copy(member.name, member.linkname, executable)
            elif (content := tar.extractfile(member)) is not None:
                tree.add_file(member.name, content, executable)
            else:
                raise tree.refused(member.name, "is a device or a pipe")


def _unzip(archive: Path, tree: _Tree) -> None:
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            mode = entry.external_attr >> 16
            if entry.flag_bits & 1:
                raise tree.refused(entry.filename, "is encrypted")
            if entry.is_dir():
                tree.add_folder(entry.filename)
            elif stat.S_ISLNK(mode):
                if entry.file_size > _LONGEST_LINK:
                    raise tree.refused(entry.filename, "is a link that is too long")
                tree.add_link(entry.filename, os.fsdecode(packed.read(entry)))
            elif stat.S_IFMT(mode) in (0, stat.S_IFREG):
                with packed.open(entry) as content:
                    tree.add_file(entry.filename, content, bool(mode & stat.S_IXUSR))
            else:
                raise tree.refused(entry.filename, "is a device or a pipe")
