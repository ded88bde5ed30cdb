"""Mapped folders as words of `petctl data`.

    up data/voc20, down data/voc20      one word: the map says both ends
    @data/voc20, @CLUSTER:data/voc20    the folder's location, wherever a location is expected
    data/voc20                          anywhere else: this machine, as ever

Where a plain word could be meant either way and much is at stake (rm), it is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from petctl.errors import NoSuchPlace, UsageError

if TYPE_CHECKING:
    from petctl.storage.stores.location import Location
    from petctl.submission.folders import Mapped


def location_of(word: str) -> Location:
    """The location that a word names."""
    from petctl.storage.stores.location import parse_location
    from petctl.submission.folders import MARK, look_up

    return look_up(word).location if word.startswith(MARK) else parse_location(word)


def source_of(word: str) -> Location:
    """The same of something that must be there already."""
    folder = _plain_folder(word)
    if folder is not None and not Path(word).exists():
        raise NoSuchPlace(f"{word} is not here; it is mapped to {folder.location}: use @{folder.name} for that")
    return location_of(word)


def unmistakable(word: str) -> Location:
    """The same where a folder of this machine must not be taken for its location, nor the other way round."""
    folder = _plain_folder(word)
    if folder is not None:
        raise UsageError(
            f"{word} is mapped to {folder.location}: use @{folder.name} for that, or ./{word} for the local one"
        )
    return location_of(word)


def both_ends(word: str) -> tuple[Location, Location]:
    """Where a mapped folder, or something in it, is on this machine, and where it belongs."""
    from petctl.config.settings import project_root
    from petctl.storage.stores.location import parse_location
    from petctl.submission.folders import MARK, find, folder_map, inside_project, look_up, nested, not_mapped

    cluster = word.removeprefix(MARK).rpartition(":")[0] if word.startswith(MARK) else ""
    if word.startswith(MARK):
        folder: Mapped | None = look_up(word)
    elif "://" in word:
        raise UsageError(f"{word} is only one end: give both a source and a destination")
    else:
        path = inside_project(word)
        folder = find(path, folder_map()) if path else None
        if folder is None:
            raise UsageError(f"{not_mapped(path or word, folder_map())}\nor give both source and destination")
    assert folder is not None
    others = nested(folder.name, folder_map(cluster))
    if others:
        raise UsageError(
            f"{folder.name} has {', '.join(others)} in it, mapped elsewhere; transfer its "
            f"parts one by one, or give both source and destination"
        )
    return parse_location(str(project_root() / folder.name)), folder.location


def _plain_folder(word: str) -> Mapped | None:
    """The mapped folder that a word may mean: a bare relative path, without ./ in front of it."""
    if "://" in word or word.startswith(("@", ".", "/", "~")):
        return None
    from petctl.submission.folders import find, folder_map, inside_project

    path = inside_project(word)
    return find(path, folder_map()) if path else None
