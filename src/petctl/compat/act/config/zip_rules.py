"""`zip_options` in the words of ignore files: what zip would leave out is left out of the snapshot.

zip matches whole paths, and its `*` runs over slashes; patterns of ignore files are one name at a time. The snapshot
itself is petctl's: other options of zip have nothing to act on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from petctl.errors import UsageError

_EXCLUDE, _INCLUDE = ("-x", "--exclude"), ("-i", "--include", "-R")
_STARS = re.compile(r"\*+")


class ZipOptions(NamedTuple):
    """Patterns as .gitignore has them, and zip's words that mean nothing here."""

    exclude: list[str]
    idle: list[str]


def read_zip_options(words: Sequence[str]) -> ZipOptions:
    """What a list of zip's words comes to; UsageError for those that would change what is in the snapshot."""
    exclude: list[str] = []
    idle: list[str] = []
    listing = False
    for word in words:
        attached = word.startswith("-x") and word not in _EXCLUDE and not word.startswith("--")
        if word in _INCLUDE or word.startswith("--include="):
            raise UsageError(
                f"zip_options: {word} says what to take, and petctl takes all that is not left out; "
                "name the rest with -x, or in .petctlignore"
            )
        if word in _EXCLUDE:
            listing = True
        elif word == "@":
            listing = False
        elif attached or word.startswith("--exclude="):
            exclude += _patterns(word.removeprefix("--exclude=") if word.startswith("--") else word[2:])
        elif word.startswith("-"):
            listing = False
            idle.append(word)
        elif listing:
            exclude += _patterns(word)
        else:
            idle.append(word)
    return ZipOptions(list(dict.fromkeys(exclude)), idle)


def _patterns(word: str) -> list[str]:
    """One pattern of zip's as one or two of git's."""
    if word.startswith("@"):
        raise UsageError(f"zip_options: -x{word} names a file of patterns; put them into .petctlignore")
    pattern = re.sub(r"\\(.)", r"\1", word)  # the backslashes were for the shell
    pattern = _STARS.sub("*", pattern).removeprefix("./").lstrip("/")
    whole = pattern.endswith("/*")  # everything below a folder: then the folder
    pattern = pattern[:-1] if whole else pattern
    if not pattern.strip("*/"):
        raise UsageError(f"zip_options: -x {word} leaves no files; name what is not code")
    anywhere = pattern.startswith("*")
    inner = pattern[1:] if anywhere else pattern
    start = "**/*" if anywhere else "/"
    if anywhere and inner.startswith("/"):
        start = "/*/**"  # below the top
    found = [start + inner]
    if "*" in inner.rstrip("*"):  # zip's runs over slashes
        found.append(start + inner.rstrip("*").replace("*", "*/**/*") + inner[len(inner.rstrip("*")) :])
    return found
