"""Builds `build/petctl-agent.pyz`: all that a machine needs to become a node, in one file that any Python 3.9 runs.

The same sources give the same bytes, whenever and wherever it is built: sorted names, one fixed time, no byte code.

    python tools/build_agent.py [TARGET]
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "petctl"
TARGET = ROOT / "build" / "petctl-agent.pyz"
PARTS = ("__init__.py", "errors.py", "rendezvous", "agent")
SHEBANG = b"#!/usr/bin/env python3\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format knows
ENTRY = '"""The entry of petctl-agent.pyz."""\n\nimport sys\n\nfrom petctl.agent.cli import main\n\nsys.exit(main())\n'


def sources(package: Path = PACKAGE) -> list[Path]:
    """Every file that goes in, in a fixed order."""
    found: list[Path] = []
    for part in PARTS:
        path = package / part
        found += path.rglob("*.py") if path.is_dir() else [path]
    return sorted(found)


def build(target: Path = TARGET, package: Path = PACKAGE) -> Path:
    """Writes the archive; whoever runs the old one meanwhile is not disturbed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(SHEBANG)
            with zipfile.ZipFile(file, "w") as archive:
                _add(archive, "__main__.py", ENTRY.encode())
                for path in sources(package):
                    _add(archive, path.relative_to(package.parent).as_posix(), path.read_bytes())
        draft.chmod(0o755)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return target


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3  # as on Unix, wherever it is built
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)


if __name__ == "__main__":
    built = build(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)
    print(f"{built}: {built.stat().st_size} bytes")
