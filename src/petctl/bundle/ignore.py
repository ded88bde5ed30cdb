"""Which paths of a working directory are not code: the one rule that every way into a snapshot follows.

`.petctlignore` at the root where there is one, else git's own: every `.gitignore`, those of the folders above up to the
top of the repository too, and `.git/info/exclude`. What nobody ever wants to ship (`is_junk`) is out in any case.

pathspec translates the patterns. Its expressions ask about a path and all that is below it; here they ask about the
path alone, since an ignored folder is never entered, and an entered one may hold what a later rule brings back.
Loading pathspec costs more than a whole snapshot, so translations are remembered. This file must not walk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

OWN_FILE = ".petctlignore"
GIT_FILE = ".gitignore"
ENVIRONMENT_MARK = "pyvenv.cfg"  # a folder with this file is a virtual environment, whatever its name

Steps = list[tuple[bool, str, str]]  # ignore or bring back, expression over names, expression over paths

_JUNK_NAMES = {".git", ".hg", ".svn", "__pycache__", ".petctl", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
_JUNK_NAMES |= {".hypothesis", ".import_linter_cache", ".pytype", ".tox", ".nox", ".eggs", ".ipynb_checkpoints"}
_JUNK_ENDINGS = (".pyc", ".pyo")
_BELOW = "(?P<ps_d>/)"  # pathspec's mark for the end of a folder that matches, with anything below it
_ANYWHERE = "^(?:.+/)?"  # how its expressions begin for a pattern that holds at any depth


def is_junk(name: str, is_folder: bool) -> bool:
    """Whether this is never code, whatever the ignore files say."""
    return name in _JUNK_NAMES or name.endswith(_JUNK_ENDINGS) or (is_folder and name.startswith(".venv"))


class Translations:
    """Ignore files that were translated before, by their text; `used` are those that were asked for this time."""

    def __init__(self, known: Mapping[str, Steps] | None = None) -> None:
        self._known = known or {}
        self.used: dict[str, Steps] = {}

    def of(self, text: str) -> Steps:
        """The translation of an ignore file."""
        self.used[text] = self._known[text] if text in self._known else translate(text)
        return self.used[text]


class Rules:
    """One ignore file: it lies in `base`, seen from the root of the snapshot ("src/"), or above the root, which is then
    `above`, seen from the file."""

    def __init__(self, text: str, translations: Translations, base: str = "", above: str = "") -> None:
        steps = translations.of(text)
        self._matchers = [(ignored, _matcher(names), _matcher(paths)) for ignored, names, paths in steps]
        self._base = len(base)
        self._above = above

    def verdict(self, path: str, name: str) -> bool | None:
        """Whether it is ignored, or None where this file says nothing. Folders end with a slash."""
        for ignored, names, paths in self._matchers:
            if (names and names(name)) or (paths and paths(self._above + path[self._base :])):
                return ignored
        return None


def _matcher(expression: str) -> Callable[[str], object] | None:
    return re.compile(expression).match if expression else None


def is_ignored(rules: tuple[Rules, ...], path: str, name: str) -> bool:
    """The first file that says anything decides: the innermost comes first."""
    for one in rules:
        verdict = one.verdict(path, name)
        if verdict is not None:
            return verdict
    return False


def rules_of(root: Path, translations: Translations, gitignore: bool) -> tuple[tuple[Rules, ...], bool]:
    """What holds from the root on, and whether `.gitignore` files count in this tree."""
    own = read_text(root / OWN_FILE)
    if own is not None:
        return (Rules(own, translations),), False
    return (_above(root, translations), True) if gitignore else ((), False)


def _above(root: Path, translations: Translations) -> tuple[Rules, ...]:
    """The rules of the repository that the root is in, innermost first; none where they ignore the root itself, which
    somebody wants to run all the same."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    if top is None:
        return ()
    texts = [(top, read_text(_git_folder(top) / "info" / "exclude"))]
    for folder in reversed((root, *root.parents)):
        if not folder.is_relative_to(top):
            continue
        rules = tuple(
            Rules(text, translations, above="".join(f"{name}/" for name in folder.relative_to(place).parts))
            for place, text in texts
            if text is not None
        )
        if folder != top and is_ignored(rules, "", f"{folder.name}/"):
            return ()
        texts.insert(0, (folder, read_text(folder / GIT_FILE)))
    return rules


def _git_folder(top: Path) -> Path:
    """Where the repository keeps its own files: also for a linked worktree or a submodule, whose `.git` is a file."""
    folder = top / ".git"
    pointer = read_text(folder) if folder.is_file() else None
    if pointer is not None and pointer.startswith("gitdir:"):
        folder = top / pointer.removeprefix("gitdir:").strip()
    common = read_text(folder / "commondir")
    return folder / common.strip() if common is not None else folder


def read_text(path: str | os.PathLike[str]) -> str | None:
    """An ignore file, or None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return file.read()
    except OSError:
        return None


def translate(text: str) -> Steps:
    """The patterns of an ignore file, last one first, with neighbours of the same kind made one expression."""
    import warnings

    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    steps: Steps = []
    for line in text.removeprefix("\ufeff").split("\n"):
        line = line.removesuffix("\r")
        try:
            with warnings.catch_warnings(action="ignore"):  # of re, about character classes
                pattern = GitIgnoreSpecPattern(_spelt_out(line))
        except ValueError:
            continue  # git takes no notice of patterns that make no sense
        if pattern.include is None or pattern.regex is None:
            continue
        expression = pattern.regex.pattern.replace(_BELOW, "/$")
        if not expression.startswith("^"):
            expression = f".*{expression}"
        names = paths = ""
        if expression.startswith(_ANYWHERE) and "/" not in line.rstrip().rstrip("/"):
            names = expression.removeprefix(_ANYWHERE)
        else:
            paths = expression
        if steps and steps[0][0] == pattern.include:
            _, other_names, other_paths = steps[0]
            steps[0] = (
                pattern.include,
                "|".join(filter(None, (names, other_names))),
                "|".join(filter(None, (paths, other_paths))),
            )
        else:
            steps.insert(0, (pattern.include, names, paths))
    return steps


def _spelt_out(line: str) -> str:
    """`a/**` means what is in the folder, not the folder; pathspec's translation does not keep them apart."""
    bare = line.rstrip()
    if bare.endswith("/**"):
        return f"{bare}/*"
    if bare.endswith("/**/"):
        return f"{bare}*/"
    return line
