"""Imports of the user's project come from its snapshot, though the worker's directory is the user's own.

Whatever of sys.path lies in the user's project (the directory of `python -m`, `sys.path.append("..")`) is looked up at
the same place in the snapshot, and is that place in sys.path from then on, so that processes which the worker spawns
find the same. What the snapshot leaves out (virtual environments, built extensions) is where it is.

Nothing here may disturb the worker: it imports nothing that a Python has not loaded anyway.
"""

import os
import sys

TYPE_CHECKING = False  # typing itself is not loaded by every Python
if TYPE_CHECKING:
    from typing import Any

_PLACES = ["", ""]  # the snapshot, and the directory that it was taken of


def search_snapshot(places: str) -> None:
    """From now on; `places` is LENGTH:COPYOWN, as the agent writes it."""
    length, _, paths = places.partition(":")
    _PLACES[:] = paths[: int(length)], paths[int(length) :]
    for path in [path for path in sys.path_importer_cache if in_snapshot(path)]:
        del sys.path_importer_cache[path]
    sys.path_hooks.insert(0, _finder)


def in_snapshot(path: str) -> str:
    """The snapshot's directory for one of the user's project; empty: it has none of its own."""
    copy, own = _PLACES
    if not own:
        return ""
    path = os.path.abspath(path)
    if path != own and not path.startswith(own + os.sep):
        path = os.path.realpath(path)
        if path != own and not path.startswith(own + os.sep):
            return ""
    found, real = copy + path[len(own) :], os.path.realpath(copy) + path[len(own) :]
    # What a link leads to is the user's own again, under another name.
    return found if os.path.isdir(found) and os.path.realpath(found) == real else ""


def _finder(path: str) -> "Any":
    """A path hook: the others' finder for the snapshot's directory."""
    found = in_snapshot(path)
    if not found:
        raise ImportError("not the user's project", path=path)
    for number, entry in enumerate(sys.path):
        if entry == path:
            sys.path[number] = found
    for hook in sys.path_hooks:
        if hook is not _finder:
            try:
                return hook(found)
            except ImportError:
                pass
    raise ImportError("no finder for it", path=path)
