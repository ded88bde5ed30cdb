"""Files of a directory, on this machine or in an object store, as Batch AI lists them; and one that is being written,
followed to its end.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from petctl.agent.logs.inotify import Watcher
from petctl.compat.batchai.service.resource_store import Missing
from petctl.compat.batchai.service.storage import inside
from petctl.errors import UsageError
from petctl.storage.stores.bucket import Bucket
from petctl.storage.stores.endpoint import Entry
from petctl.storage.transfer.plan import End

LOOK_EVERY = 1.0
BLOCK = 1 << 20


def list_files(root: Path, path: str) -> list[dict[str, Any]]:
    """What is directly in a folder below `root`, folders too; nothing where the job has not made it yet."""
    place = inside(root, path)
    if not place.exists():
        if path.strip("/.") and root.exists():
            raise Missing(f"there is no folder {path!r} in {root}")
        return []
    if not place.is_dir():
        raise UsageError(f"{path!r} is a file; list the folder that it is in, or stream it")
    return [found for entry in sorted(place.iterdir()) if (found := _entry(entry)) is not None]


def list_stored(folder: End, path: str, seconds: int) -> list[dict[str, Any]]:
    """The same of a folder in an object store; links work for so long."""
    inner = _below(folder, path)
    return [_stored_entry(folder, inner, entry, seconds) for entry in sorted(folder.place.children(inner))]


def _stored_entry(folder: End, inner: str, entry: Entry, seconds: int) -> dict[str, Any]:
    linked = isinstance(folder.place, Bucket) and not entry.folder
    return {
        "contentLength": None if entry.folder else entry.size,
        "downloadUrl": cast(Bucket, folder.place).url(f"{inner}/{entry.path}", seconds) if linked else None,
        "fileType": "directory" if entry.folder else "file",
        "lastModified": _moment(entry.modified) if entry.modified else None,
        "name": entry.path,
    }


def follow_stored(folder: End, path: str, ended: Callable[[], bool]) -> Iterator[bytes]:
    """The same of a file in an object store, looked at every second; nobody announces its changes."""
    place, position = _below(folder, path), 0
    while True:
        over = ended()
        entry = folder.place.find(place)
        if entry is not None and entry.size > position:
            for piece in folder.place.stream(entry, position, entry.size - position):
                position += len(piece)
                yield bytes(piece)
            folder.place.close(entry)
        if over:
            if entry is None:
                raise Missing(
                    f"the job has ended, and there is no file {path.removeprefix('./')!r} in {folder.location}"
                )
            return
        time.sleep(LOOK_EVERY)


def _below(folder: End, path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise UsageError(f"{path!r} is outside {folder.location}; use a path inside it")
    return "/".join([folder.path.rstrip("/"), *parts])


def follow(path: Path, ended: Callable[[], bool]) -> Iterator[bytes]:
    """What is in a file, also one that is not there yet, as it grows; ends when `ended()` and all was given."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file in it")
    watcher = Watcher()
    position = 0
    try:
        while True:
            over = ended()  # asked before the look: what was written before the end is in it
            watcher.watch(str(_nearest(path)))
            for block in _read(path, position):
                position += len(block)
                yield block
            if over:
                return
            watcher.wait(LOOK_EVERY)
    finally:
        watcher.close()


def _nearest(path: Path) -> Path:
    """The folder in which something would change first."""
    return next(parent for parent in path.parents if parent.is_dir())


def _read(path: Path, position: int) -> Iterator[bytes]:
    try:
        file = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        return
    with file:
        file.seek(position)
        while block := file.read(BLOCK):
            yield block


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).isoformat()


def _entry(path: Path) -> dict[str, Any] | None:
    try:
        status = path.stat()
    except OSError:  # gone since it was listed, or a link that leads nowhere
        return None
    folder = stat.S_ISDIR(status.st_mode)
    return {
        "contentLength": None if folder else status.st_size,
        "downloadUrl": None if folder else path.resolve().as_uri(),
        "fileType": "directory" if folder else "file",
        "lastModified": _moment(status.st_mtime),
        "name": path.name,
    }
