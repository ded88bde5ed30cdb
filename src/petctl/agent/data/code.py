"""The job's code on this node: taken from its archive, checked against its name, unpacked once for all workers.

A snapshot is named by the SHA-256 of its manifest: for each file or link, sorted by path, one line

    MODE SIZE SHA256 PATH\n          MODE: 644, 755 or link; a link's SHA256 is that of its target

so an archive proves itself while it is unpacked, whoever it came from. That shows only at its end: until then it is
bounded by what the job's record says of the snapshot, before anything is written, and so is what its headers take of
the memory. It holds files and links that stay inside, and
nothing else: any other entry is refused, and nothing is left of an archive that was refused. The unpacked copy appears
under its name only when it is whole; agents on one machine that share a directory wait for each other.

Where the archive comes from is `code_source.py`; what is run in it is the task's business.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import shutil
import tarfile
import zlib
from typing import IO, BinaryIO, Callable, Mapping, NamedTuple, Optional, Set

from petctl.agent.data.new_files import note_files
from petctl.errors import GivenUp, PetctlError
from petctl.files import locked

BLOCK = 1 << 20
DRAFT = ".draft"
_LONGEST_HEADERS = 16 << 10  # bytes of one entry: a path has 4 KiB at most, a link leads to another
DEEPEST = 200  # folders in each other: what lies deeper cannot be removed again
_MOST_FOLDERS = 32  # per file: they lie in each other, and most files share theirs
_AHEAD = 64 << 10  # bytes that are read at a time


class BadCode(PetctlError):
    """The archive is not what its name says."""


class Bounds(NamedTuple):
    """How much a snapshot holds, as the job's record has it."""

    files: int  # and links
    bytes: int

    @property
    def archive(self) -> int:
        """What its archive takes at most: content that cannot be compressed, and a name for each entry."""
        return self.bytes + self.bytes // 64 + self.files * _LONGEST_HEADERS + BLOCK


def provide(
    directory: str,
    code_id: str,
    open_archive: Callable[[], BinaryIO],
    links: Mapping[str, str],
    given_up: Callable[[], bool] = lambda: False,
    bounds: Optional[Bounds] = None,
) -> None:
    """Makes `directory` hold the code of this name. `links`: what the snapshot leaves out and this machine has."""
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    with locked(directory + ".lock"):
        if os.path.isdir(directory):
            return  # another agent of this machine was faster
        draft = directory + DRAFT
        shutil.rmtree(draft, ignore_errors=True)  # of one that was killed
        os.mkdir(draft)
        try:
            with open_archive() as archive:
                unpack(archive, code_id, draft, given_up, bounds)
            _link(draft, links)
            note_files(draft, directory)
            os.rename(draft, directory)
        except OSError as error:
            raise PetctlError(f"cannot unpack the code into {directory}: {error.strerror or error}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def unpack(
    archive: BinaryIO,
    code_id: str,
    target: str,
    given_up: Callable[[], bool] = lambda: False,
    bounds: Optional[Bounds] = None,
) -> None:
    """Unpacks an archive into an empty directory; BadCode unless it is exactly the one of this name."""
    manifest = hashlib.sha256()
    tree = _Tree(target, _MOST_FOLDERS * (bounds.files + 8) if bounds else 1 << 62)
    stream = _Metered(archive)
    left_files, left_bytes = bounds or (1 << 62, 1 << 62)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_AHEAD) as entries:  # type: ignore[call-overload]
            while True:
                entry = entries.next()
                if entry is None:
                    break
                entries.members.clear()  # it would keep every entry in memory
                if given_up():
                    raise GivenUp
                left_files, left_bytes = left_files - 1, left_bytes - entry.size
                if left_files < 0 or left_bytes < 0 or entry.size < 0 or entry.issparse():
                    raise BadCode(f"the code archive has more than snapshot {code_id[:12]}; it is a different one")
                stream.allow(entry.size)
                if entry.issym():
                    line = tree.link(entry.name, entry.linkname)
                elif entry.isreg():
                    content = entries.extractfile(entry)
                    assert content is not None
                    line = tree.file(entry.name, content, bool(entry.mode & 0o100), entry.size)
                else:
                    raise BadCode(f"the code archive has {entry.name[:200]!r}, which is neither a file nor a link")
                manifest.update(line)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile, UnicodeError, RecursionError) as error:
        raise BadCode(f"the code archive is damaged: {error}") from None
    if manifest.hexdigest() != code_id:
        raise BadCode(f"the code archive has the checksum {manifest.hexdigest()[:12]}, not {code_id[:12]}")


def stays_inside(name: str, leads_to: str) -> bool:
    """Whether a link leads to something in the same tree, whatever the other links of that tree are.

    Only its first steps may lead up: behind a name, `..` would lead up from wherever that name, as a link, leads to.
    """
    steps = [step for step in leads_to.split("/") if step not in ("", ".")]
    up = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    return not leads_to.startswith("/") and leads_to != "" and up <= name.count("/") and ".." not in steps[up:]


class _Metered:
    """A decompressed stream that gives so much for each entry and no more: headers are read as long as they are."""

    def __init__(self, archive: BinaryIO) -> None:
        self._stream = gzip.GzipFile(fileobj=archive)
        self._left = 0
        self.allow(0)

    def allow(self, size: int) -> None:
        """The content of an entry, and what stands before the next one."""
        self._left = size + _LONGEST_HEADERS + 2 * _AHEAD

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise BadCode("the code archive has a header that is too long")
        return data


class _Tree:
    """A directory that is being filled, in the order of the manifest."""

    def __init__(self, root: str, most_folders: int) -> None:
        self._root = root
        self._most_folders = most_folders
        self._last = b""
        self._links: Set[str] = set()
        self._made: Set[str] = {""}

    def file(self, name: str, content: IO[bytes], executable: bool, size: int) -> bytes:
        path, digest = self._place(name), hashlib.sha256()
        mode = 0o755 if executable else 0o644
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb", buffering=0) as file:
            for block in iter(lambda: content.read(BLOCK), b""):
                digest.update(block)
                file.write(block)
        return f"{mode:o} {size} {digest.hexdigest()} {name}\n".encode()

    def link(self, name: str, leads_to: str) -> bytes:
        if not stays_inside(name, leads_to):
            raise BadCode(f"the code archive has the link {name[:200]!r}, which points outside it")
        os.symlink(leads_to, self._place(name))
        self._links.add(name)
        return f"link 0 {hashlib.sha256(leads_to.encode()).hexdigest()} {name}\n".encode()

    def _place(self, name: str) -> str:
        """Where the entry goes: below the root, under no link, and behind all those before it."""
        order = name.encode()
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts) or "\n" in name or "\0" in name:
            raise BadCode(f"the code archive has the name {name[:200]!r}, which is empty or points outside it")
        if len(parts) > DEEPEST:
            raise BadCode(f"the code archive has {name[:200]!r}, which is nested more than {DEEPEST} folders deep")
        if order <= self._last:
            raise BadCode(f"the code archive has {name[:200]!r} twice, or out of order")
        self._last = order
        parent = "/".join(parts[:-1])
        if parent not in self._made:
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if above in self._links:
                    raise BadCode(f"the code archive has {name[:200]!r}, which is behind a link")
                if above not in self._made:
                    if len(self._made) > self._most_folders:
                        raise BadCode("the code archive has more folders than its snapshot can have")
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(os.path.join(self._root, above), 0o755)
                    self._made.add(above)
        return os.path.join(self._root, name)


def _link(root: str, links: Mapping[str, str]) -> None:
    for name, leads_to in links.items():
        parent, _, own = name.rpartition("/")
        folder = os.path.realpath(os.path.join(root, parent))
        if folder != os.path.join(os.path.realpath(root), parent).rstrip("/"):
            continue  # behind another link: what lies there belongs to somebody else
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(leads_to, os.path.join(folder, own))
