"""Builds `petctl-agent.pyz`: all that a machine needs to become a node, in one file that any Python 3.9 runs.

The same sources give the same bytes, whenever and wherever it is built: sorted names, one fixed time, no byte code.

    python -m petctl.clusters.archive [TARGET]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zipfile

PACKAGE = Path(__file__).resolve().parent.parent
NAME = "petctl-agent.pyz"
PARTS = ("__init__.py", "errors.py", "rendezvous", "depot", "agent", "supervision", "elastic")
SHEBANG = b"#!/usr/bin/env python3\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format knows
ENTRY = '''"""The entry of petctl-agent.pyz."""

import sys

from petctl.supervision.cli import main

sys.exit(main())
'''


def sources() -> list[Path]:
    """Every file that goes in, in a fixed order."""
    found: list[Path] = []
    for part in PARTS:
        path = PACKAGE / part
        found += path.rglob("*.py") if path.is_dir() else [path]
    return sorted(found)


def build_agent(target: Path) -> Path:
    """Writes the archive; whoever runs the old one meanwhile is not disturbed."""
    import zipfile

    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(SHEBANG)
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, "__main__.py", ENTRY.encode())
                for path in sources():
                    _add(archive, path.relative_to(PACKAGE.parent).as_posix(), path.read_bytes())
        draft.chmod(0o755)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    import zipfile

    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3  # as on Unix, wherever it is built
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    built = build_agent(Path(sys.argv[1] if len(sys.argv) > 1 else NAME))
    print(f"{built}: {built.stat().st_size} bytes")
