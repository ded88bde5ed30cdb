"""Where packed snapshots are kept on the submitting machine: one file per id, never changed.

    FOLDER/ID.tar.gz        0444, put there whole; two processes that put the same id at once are fine

It must not know which jobs use a snapshot: it is told which ids are in use.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection
from pathlib import Path

from petctl.agent.data.code import Bounds, unpack
from petctl.bundle.snapshot import Snapshot
from petctl.files import make_private_directory, sync_directory

_ENDING = ".tar.gz"
_ID = re.compile(r"[0-9a-f]{64}")
_FRESH = 3600.0  # seconds in which a snapshot is kept although no job names it yet: one may be about to


def is_snapshot_id(text: object) -> bool:
    """Whether this can be the name of a snapshot, and so a part of a path."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


class Cabinet:
    """The packed snapshots in one folder, which is made when the first one comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, identity: str) -> Path:
        """Where the archive of this snapshot is, or would be."""
        if not _ID.fullmatch(identity):
            raise ValueError(f"{identity!r} is not a snapshot id")
        return self._folder / f"{identity}{_ENDING}"

    def has(self, identity: str) -> bool:
        """Whether it is here."""
        return self.path(identity).is_file()

    def put(self, snapshot: Snapshot, progress: Callable[[int, int], None] | None = None) -> Path:
        """Packs the snapshot unless it is here; being asked for makes it fresh again."""
        target = self.path(snapshot.id)
        try:
            os.utime(target)
        except FileNotFoundError:
            make_private_directory(self._folder)
            snapshot.pack(target, progress)
        return target

    def take_in(self, identity: str, bring: Callable[[Path], None], bounds: Bounds | None = None) -> Path:
        """An archive from elsewhere: gets its name when it has proved to be what that says."""
        import tempfile  # seldom needed, like the rest of it

        from petctl.storage.core.body import local_error

        target = self.path(identity)
        make_private_directory(self._folder)
        # Not `replacing`: who brings it opens it by its name, and it is proved before it gets its own.
        descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=f".{target.name}.")
        os.close(descriptor)
        draft = Path(name)
        try:
            bring(draft)
            with tempfile.TemporaryDirectory() as proof, open(draft, "rb") as archive:
                unpack(archive, identity, proof, bounds=bounds)
            draft.chmod(0o444)
            os.utime(draft)
            draft.replace(target)
        except OSError as error:
            raise local_error(error, error.filename or name) from None
        finally:
            draft.unlink(missing_ok=True)
        sync_directory(self._folder)
        return target

    def remove_unused(self, in_use: Collection[str]) -> list[str]:
        """Removes what is neither in use nor fresh, drafts of killed processes included; says which ids went."""
        removed = []
        before = time.time() - _FRESH
        for file in self._folder.glob(f"*{_ENDING}*") if self._folder.is_dir() else ():
            identity = file.name.lstrip(".").partition(".")[0]
            is_draft = file.name.startswith(".")
            if identity in in_use and not is_draft:
                continue
            try:
                if file.stat().st_mtime < before:
                    file.unlink()
                    if not is_draft:
                        removed.append(identity)
            except FileNotFoundError:
                continue
        return sorted(removed)
