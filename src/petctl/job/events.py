"""Events, of a job and of a sweep: JSON objects with a kind, one in a line, appended and never changed.

A crash may tear the last line: readers leave it out, and the next writer begins a line of its own behind it. Cheap to
import: commands of the user read events, too.
"""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any, Dict, List, Optional


def parse_event(line: bytes) -> Optional[Dict[str, Any]]:
    """The event that a line holds; None where it is none, or torn."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "kind" in event else None


def parse_events(text: bytes) -> List[Dict[str, Any]]:
    """All events among these lines."""
    return [event for event in map(parse_event, text.splitlines()) if event is not None]


def read_events(path: Path) -> List[Dict[str, Any]]:
    """All events so far."""
    try:
        return parse_events(path.read_bytes())
    except FileNotFoundError:
        return []


def new_event(kind: str, sentence: str, **data: Any) -> Dict[str, Any]:
    """Something that happens now, as a reader will see it."""
    return {"time": round(time.time(), 6), "kind": kind, "sentence": sentence, **data}


def append_event(path: Path, event: Dict[str, Any]) -> None:
    """Adds one line, whole, whoever else is writing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        line = (b"\n" if torn else b"") + json.dumps(event, separators=(",", ":")).encode() + b"\n"
        if os.write(descriptor, line) < len(line):  # readers and the next writer know a torn line
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)
