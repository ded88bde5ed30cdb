"""Takes a snapshot: from a folder, or a single file, to the entries and the id that say exactly what code it is.

It reads as little as it can (`index.py`) and writes nothing but that index. It must not know where the folder came from
(`sources.py`), nor where the archive goes (`bundle_cache.py`).
"""

from __future__ import annotations

import stat
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from petctl.bundle import manifest, secret_scan
from petctl.bundle.hashing import read_all
from petctl.bundle.index import Index
from petctl.bundle.manifest import EXECUTABLE, PLAIN, Entry
from petctl.bundle.tree import Walk, walk
from petctl.errors import NotFound, UsageError
from petctl.text import amount

LIMIT = 512 << 20


@dataclass(frozen=True)
class Snapshot:
    """Code that cannot change any more, as long as its archive can still be packed from `root`."""

    id: str
    root: Path
    entries: tuple[Entry, ...]
    size: int
    hashed: int
    ignored: tuple[str, ...]
    left_out: tuple[str, ...] = ()

    @property
    def manifest(self) -> str:
        """The lines that the id is the SHA-256 of."""
        return manifest.text_of(self.entries)

    def pack(self, target: Path, progress: Callable[[int, int], None] | None = None) -> None:
        """Writes the archive; `progress` hears of bytes done and bytes in all."""
        from petctl.bundle.archive import write

        write(self.root, self.entries, target, progress)


def take(
    root: Path,
    *,
    cache: Path | None = None,
    exclude: Sequence[str] = (),
    patterns: Sequence[str] = (),
    allow_secrets: Sequence[str] = (),
    limit: int = LIMIT,
    most: int = sys.maxsize,
    gitignore: bool = True,
) -> Snapshot:
    """The snapshot of what `root` holds now.

    `cache` is where it remembers what it read; `exclude` are folders that are mapped, relative to root; `patterns` are
    left out as well, lines of an ignore file; `gitignore` is false for trees that somebody picked file by file already,
    a commit or an archive.
    """
    if root.is_symlink() and root.is_file():
        raise UsageError(f"{root} is a link to {root.resolve()}; name that file, or the folder that the link is in")
    root = root.resolve()
    if root.is_file():
        index, found = Index(None, root), Walk(files=[(root.name, root.stat())])
        root = root.parent
    elif root.is_dir():
        index = Index(cache, root)
        found = walk(
            root,
            exclude=exclude,
            patterns=patterns,
            gitignore=gitignore,
            translations=index.translations,
            most=most,
        )
    else:
        raise NotFound(f"{root} does not exist; name a folder or a file")
    found.complain(root)
    total = sum(status.st_size for _, status in found.files)
    if total > limit:
        raise UsageError(_too_big(root, found, total, limit))

    entries = [manifest.link(path, target) for path, target in found.links]
    private: list[tuple[str, str]] = []
    unknown: list[tuple[str, int]] = []
    modes: dict[str, str] = {}
    for path, status in found.files:
        mode = EXECUTABLE if status.st_mode & stat.S_IXUSR else PLAIN
        known = index.recall(path, status)
        if known is None:
            modes[path] = mode
            unknown.append((path, status.st_size))
            continue
        entries.append(Entry(path, mode, status.st_size, known[0]))
        if known[1]:
            private.append((path, known[1]))
    for (path, _), content in zip(unknown, read_all(root, unknown), strict=True):
        if content is None:
            continue  # removed since the walk: the same as removed before it
        entries.append(Entry(path, modes[path], content.size, content.digest))
        if content.private:
            private.append((path, content.private))
        index.learn(path, content)
    index.save()
    secret_scan.refuse(sorted(private), allow_secrets)
    lines = manifest.ordered(entries)
    return Snapshot(
        id=manifest.id_of(lines),
        root=root,
        entries=lines,
        size=sum(entry.size for entry in lines),
        hashed=len(unknown),
        ignored=tuple(found.ignored),
        left_out=tuple(found.left_out),
    )


def _too_big(root: Path, found: Walk, total: int, limit: int) -> str:
    largest = "".join(f"\n  {amount(size):>10}  {path}" for path, size in _largest(found, total))
    return (
        f"the code in {root} has {amount(total)}; a snapshot may have at most {amount(limit)}. The largest:"
        f"{largest}\nKeep data out with .petctlignore (or .gitignore), map its folder, or run the "
        "code where it lies, with --no-upload."
    )


def _largest(found: Walk, total: int, count: int = 5) -> list[tuple[str, int]]:
    """The five biggest files and folders. A folder that holds nearly everything says little: then it is looked into."""
    base = ""
    while True:
        sizes: Counter[str] = Counter()
        for path, status in found.files:
            if path.startswith(base):
                name, slash, _ = path[len(base) :].partition("/")
                sizes[base + name + slash] += status.st_size
        [(path, size), *_] = largest = sizes.most_common(count)
        if not path.endswith("/") or size < 0.8 * total:
            return largest
        base = path
