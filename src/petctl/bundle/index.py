"""What was read before: a file whose size, times and inode are those of last time is not read again.

    CACHE/SHA256_OF_ROOT.json       the SHA-256 of what follows, and JSON: files, and translated ignore files

One file per root, replaced whole, read and written by its owner only. A damaged one counts as absent. A file that was
touched within two seconds of being read is not remembered: it could change again without its times changing (git knows
the same problem as "racy"). It must not read the files of the tree.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from petctl.bundle.hashing import Content, state_of
from petctl.bundle.ignore import Steps, Translations
from petctl.bundle.secret_rules import VERSION as RULES
from petctl.files import make_private_directory, replace

_FORMAT = f"1.{RULES}"
_SETTLED = 2_000_000_000  # nanoseconds
_Record = list[Any]  # size, mtime_ns, ctime_ns, inode, digest, private: as JSON gives them


class Index:
    """What is known of the files of one root. Without a cache folder, nothing is."""

    def __init__(self, cache: Path | None, root: Path) -> None:
        self._file = cache / f"{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}.json" if cache else None
        self._records, self._translated = self._read()
        self._began = time.time_ns()
        self._next: dict[str, _Record] = {}
        self.translations = Translations(self._translated)

    def recall(self, path: str, status: os.stat_result) -> tuple[str, str] | None:
        """The digest, and what secret it seems to hold, of a file that has not changed since."""
        record = self._records.get(path)
        if record is None or tuple(record[:4]) != state_of(status):
            return None
        self._next[path] = record
        return record[4], record[5]

    def learn(self, path: str, content: Content) -> None:
        """Keeps what was read, if the file had lain still for a while."""
        status = content.status
        if max(status.st_mtime_ns, status.st_ctime_ns) < self._began - _SETTLED:
            self._next[path] = [*state_of(status), content.digest, content.private]

    def save(self) -> None:
        """Writes what is new, if anything is. A cache that cannot be written costs time, nothing else."""
        if self._file is None or (self._next == self._records and self.translations.used == self._translated):
            return
        try:
            make_private_directory(self._file.parent)
            body = json.dumps([_FORMAT, self._next, self.translations.used], separators=(",", ":")).encode()
            replace(self._file, hashlib.sha256(body).hexdigest().encode() + b"\n" + body, mode=0o600)
        except OSError:
            pass

    def _read(self) -> tuple[dict[str, _Record], dict[str, Steps]]:
        try:
            if self._file is not None:
                checksum, _, body = self._file.read_bytes().partition(b"\n")
                if hashlib.sha256(body).hexdigest().encode() == checksum:
                    known_format, records, translated = json.loads(body)
                    if known_format == _FORMAT:
                        return records, translated
        except (OSError, ValueError):
            pass
        return {}, {}
