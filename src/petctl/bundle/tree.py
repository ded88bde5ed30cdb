"""Walks a working directory: which files and links are code, which paths are ignored, and what cannot be shipped.

One pass of os.scandir; ignored folders are never entered. Paths are relative to the root, with forward slashes. What
vanishes during the walk was not there. It must not open files, except ignore files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from petctl.bundle.ignore import (
    ENVIRONMENT_MARK,
    GIT_FILE,
    Rules,
    Translations,
    is_ignored,
    is_junk,
    read_text,
    rules_of,
)
from petctl.errors import NotFound, UsageError


@dataclass
class Walk:
    """What was found. `ignored` are the topmost paths that the user's rules and virtual environments keep out,
    `left_out` those that the caller does."""

    files: list[tuple[str, os.stat_result]] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)

    def complain(self, root: Path) -> None:
        """Names all that cannot be in a snapshot, at once."""
        if self.refused:
            lines = "".join(f"\n  {path}: {why}" for path, why in sorted(self.refused)[:20])
            more = f"\n  and {len(self.refused) - 20} more" if len(self.refused) > 20 else ""
            raise UsageError(
                f"cannot take a snapshot of {root}:{lines}{more}\n"
                "Ignore them in .petctlignore (or .gitignore), map their folder, or remove them. "
                "A pattern that ends with a slash does not match a link."
            )


def walk(
    root: Path,
    *,
    exclude: Collection[str] = (),
    patterns: Sequence[str] = (),
    gitignore: bool = True,
    translations: Translations | None = None,
    most: int = sys.maxsize,
) -> Walk:
    """All that is code below `root`, an absolute path without links; `exclude` are paths of folders that are mapped,
    `patterns` what else is left out, as lines of an ignore file. With more than `most` files it is not worth going
    on."""
    found = Walk()
    translations = translations or Translations()
    outside = {path.strip("/").removeprefix("./") for path in exclude}
    own = (Rules("\n".join(patterns), translations),) if patterns else ()
    first, nested = rules_of(root, translations, gitignore)
    folders: list[tuple[str, tuple[Rules, ...]]] = [("", first)]
    while folders:
        if len(found.files) > most:
            raise UsageError(f"{root} has more than {most:,} files; keep data out with .petctlignore (or .gitignore)")
        base, rules = folders.pop()
        try:
            with os.scandir(f"{root}/{base}") as listing:
                entries = list(listing)
        except (FileNotFoundError, NotADirectoryError):
            if not base:
                raise NotFound(f"{root} is not a folder; name one that exists") from None
            continue
        except PermissionError:
            found.refused.append((base or ".", "is not readable by this user"))
            continue
        names = {entry.name for entry in entries}
        if base and ENVIRONMENT_MARK in names:
            found.ignored.append(base[:-1])
            continue
        if nested and GIT_FILE in names:
            text = read_text(f"{root}/{base}{GIT_FILE}")
            rules = rules if text is None else (Rules(text, translations, base), *rules)
        for entry in entries:
            name = entry.name
            path = base + name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_junk(name, is_folder):
                continue
            asked = (path + "/", name + "/") if is_folder else (path, name)
            if path in outside or (own and is_ignored(own, *asked)):
                found.left_out.append(path)
                continue
            if rules and is_ignored(rules, *asked):
                found.ignored.append(path)
                continue
            if is_folder:
                folders.append((path + "/", rules))
                continue
            try:
                _add(found, root, path, entry)
            except FileNotFoundError:
                continue
    found.ignored.sort()
    found.left_out.sort()
    return found


def _add(found: Walk, root: Path, path: str, entry: os.DirEntry[str]) -> None:
    why = _why_not(path)
    if why:
        found.refused.append((path.encode(errors="backslashreplace").decode().replace("\n", "\\n"), why))
    elif entry.is_file(follow_symlinks=False):
        found.files.append((path, entry.stat(follow_symlinks=False)))
    elif entry.is_symlink():
        target = os.readlink(entry.path)  # noqa: PTH115  # a Path would not keep the text as it is
        why = _why_not(target) or leads_out(root, path, target)
        if why:
            found.refused.append((path, f"is a link to {ascii(target)[1:-1]}, which {why}"))
        else:
            found.links.append((path, target))
    else:
        found.refused.append((path, "is a device, socket or pipe"))


def _why_not(name: str) -> str:
    """Why a manifest cannot hold this name."""
    if name.isascii():
        return "has a line break in its name" if "\n" in name else ""
    try:
        name.encode()
    except UnicodeEncodeError:
        return "has a name that is not UTF-8"
    return "has a line break in its name" if "\n" in name else ""


def leads_out(root: Path, path: str, target: str) -> str:
    """How a link leaves the tree, or an empty string. It must stay inside both as it is followed here and wherever it
    is unpacked."""
    from petctl.agent.data.code import stays_inside  # the rule of those who unpack it; few trees have links

    if target.startswith("/"):
        return "is an absolute path"
    folder = path.rpartition("/")[0] or "."
    followed = os.path.realpath(f"{root}/{folder}/{target}")
    if not (followed == str(root) or followed.startswith(f"{root}/")):
        return "points outside the tree"
    return "" if stays_inside(path, target) else "goes up ('..') after a name, which no node would unpack"
