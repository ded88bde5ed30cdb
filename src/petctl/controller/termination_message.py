"""How a job ended, in its coordinator's termination message: the one thing of a container that outlives it.

    {"outcome": {"state", "code", "sentence", "failure"}, "started", "finished", "spent", "round", "rounds", "size"}

At most 4096 bytes of JSON: long texts are cut in the middle, the traceback first. The file is a mount and cannot be
replaced, so it is written in place; one that a crash has torn is not JSON, and counts as not written.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Dict, Optional, Union

from petctl.errors import ProtocolError
from petctl.rendezvous.core.messages import Outcome, decode_outcome, encode

LIMIT = 4096  # bytes; what Kubernetes keeps of it
_LEAST = 40  # characters of a text that are never cut away
_LONG_TEXTS = (("failure", "traceback"), ("failure", "message"), ("sentence",))  # in the order in which they are cut


def write_message(path: Path, outcome: Outcome, **facts: Any) -> None:
    """Makes the outcome durable, as far as the file allows."""
    data = compose(outcome, facts)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        written = os.pwrite(descriptor, data, 0)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        try:
            os.ftruncate(descriptor, written)
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):  # no file that could be synced
                raise
    finally:
        os.close(descriptor)


def read_message(path: Path) -> Optional[Dict[str, Any]]:
    """What was written, or None; its "outcome" is one that `decode_outcome` takes, "finished" a time."""
    try:
        message = parse_message(path.read_bytes())
    except OSError:
        return None
    return message if message and "finished" in message else None


def parse_message(text: Union[str, bytes]) -> Optional[Dict[str, Any]]:
    """The same of what a platform has kept; None for whatever else a container, or its platform, may have said."""
    try:
        message: Dict[str, Any] = json.loads(text)
        decode_outcome(message["outcome"])
        float(message.get("finished") or 0.0)
    except (ValueError, KeyError, TypeError, ProtocolError):
        return None
    return message


def compose(outcome: Outcome, facts: Dict[str, Any]) -> bytes:
    """The message's bytes, within the limit."""
    message: Dict[str, Any] = {"outcome": encode(outcome), **facts}
    data = _encoded(message)
    for path in _LONG_TEXTS:
        if len(data) <= LIMIT:
            break
        data = _with_shorter(message, path)
    return data


def _with_shorter(message: Dict[str, Any], path: Any) -> bytes:
    """Keeps as much of one text as fits, or its least."""
    place = message["outcome"]
    for name in path[:-1]:
        place = place.get(name, {})
    text = place.get(path[-1], "")
    fits, too_long = _LEAST, len(text)
    while fits + 1 < too_long:
        middle = (fits + too_long) // 2
        place[path[-1]] = cut(text, middle)
        fits, too_long = (middle, too_long) if len(_encoded(message)) <= LIMIT else (fits, middle)
    if text:
        place[path[-1]] = cut(text, fits)
    return _encoded(message)


def cut(text: str, keep: int) -> str:
    """The beginning and the end of a text, `keep` characters in all."""
    if len(text) <= keep:
        return text
    head = keep // 2
    return f"{text[:head]} [... {len(text) - keep} characters left out ...] {text[len(text) - (keep - head) :]}"


def _encoded(message: Dict[str, Any]) -> bytes:
    # Half a character, as a path that is not UTF-8 may hold, becomes a question mark.
    return json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
