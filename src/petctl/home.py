"""Where petctl keeps its state: $PETCTL_HOME, by default ~/.local/state/petctl.

It holds secrets, and what runs as the user: job descriptions, setup commands. So it is closed to other users, and one
that others own or may change is refused.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from petctl.config.trust import changeable_by_others, own_ids, user_name
from petctl.errors import UsageError, is_no_room, no_room_for
from petctl.files import make_private_directory, replace, replace_json

ANOTHER = "name another directory with PETCTL_HOME"


def petctl_home() -> Path:
    """The directory, made for this user alone where there is none; UsageError where it cannot be used safely."""
    path = _named()
    try:
        try:
            found = path.stat()
        except FileNotFoundError:
            make_private_directory(path)
            found = path.stat()
    except OSError as error:
        if is_no_room(error):
            raise
        raise UsageError(f"cannot write to {path}: {unusable(path) or error.strerror}; {ANOTHER}") from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(f"cannot write to {path}: {path} is not a directory; {ANOTHER}")
    _require_safe(path, found)
    return path


def unusable(path: Path) -> str:
    """Why nothing can be kept there, as a part of a sentence; nothing where it can, or another reason is the cause."""
    # os.path: a name may be too long for pathlib, or lead round in a circle
    place = next((one for one in (path, *path.parents) if os.path.lexists(one)), path)
    if not os.path.exists(place):  # noqa: PTH110
        return f"{place} is a broken link" if os.path.lexists(place) else ""
    if not os.path.isdir(place):  # noqa: PTH112
        return f"{place} is not a directory"
    if not os.access(place, os.W_OK | os.X_OK):
        return f"no permission to write to {place}"
    return ""


def _named() -> Path:
    given = os.environ.get("PETCTL_HOME")
    try:
        if given:
            return Path(given).expanduser().absolute()
        base = os.environ.get("XDG_STATE_HOME")
        return (Path(base) if base else Path.home() / ".local" / "state") / "petctl"
    except RuntimeError:
        what = f"PETCTL_HOME is {given}, and there is no such user" if given else "no home directory is known"
        raise UsageError(f"{what}; {ANOTHER}") from None


def _require_safe(path: Path, found: os.stat_result) -> None:
    foreign = {os.lstat(path).st_uid, found.st_uid} - own_ids() - {0}
    if foreign:
        owner = user_name(foreign.pop())
        raise UsageError(f"{path} belongs to the user {owner}, who could run programs as you; {ANOTHER}")
    why = changeable_by_others(found)
    if why:
        # Not for a directory that others are meant to use, such as /tmp.
        close = "" if found.st_mode & stat.S_ISVTX else f"close it: chmod -R go= {path}, or "
        raise UsageError(f"{path} {why}, so others could run programs as you; {close}{ANOTHER}")


def write_json(path: Path, value: object, mode: int = 0o644, durable: bool = False) -> None:
    """Replaces a file of the state by one that holds JSON; NoRoom says which one there was no room for."""
    try:
        replace_json(path, value, mode, durable)
    except OSError as error:
        if is_no_room(error):
            raise no_room_for(path) from None
        raise


def write_text(path: Path, text: str, mode: int = 0o644) -> None:
    """Replaces a file of the state by one that holds the text; NoRoom says which one there was no room for."""
    try:
        replace(path, text, mode)
    except OSError as error:
        if is_no_room(error):
            raise no_room_for(path) from None
        raise
