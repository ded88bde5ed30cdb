"""Fills ${NAME} in a job file's texts with the values of --set NAME=value.

    script: train.py
    args: [--lr, "${LR}"]          petctl run job.yaml --set LR=0.1

- Only values are filled, and only after the file was parsed: a value can never add structure. `program` and `args` that
  are one text are split into words first, so that a value with blanks stays one word.
- Values that were put in are not looked at again.
- Every ${NAME} must be filled, and every --set must be used; $${NAME} stands for a literal ${NAME}.
- In `shell`, `prepare` and a volume's `prefetch`, ${NAME} belongs to the shell: it is filled only when NAME was given
  with --set.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from petctl.job.spec.document import Value
from petctl.job.spec.problems import Path, Problem, did_you_mean, plain

_REFERENCE = re.compile(r"(\$?)\$\{([^{}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SHELL_TEXT = (("shell",), ("prepare",))
_PREFETCH = ("prefetch",)  # of a volume
_WORD_LISTS = (("program",), ("args",))


def fill(root: Value, sets: Mapping[str, str]) -> tuple[Value, list[Problem]]:
    """The tree with everything filled in, and what could not be; the tree that was given stays as it is."""
    filling = _Filling(sets)
    filled = filling.value(root, ())
    unused = [name for name in sets if name not in filling.used]
    for name in unused:
        hint = did_you_mean(name, filling.seen)
        if filling.seen and not hint:
            hint = f"; it has {', '.join(sorted(filling.seen))}"
        filling.problems.append(Problem((), f"--set {plain(name)}: the file has no ${{{plain(name)}}}{hint}"))
    return filled, filling.problems


def names_in(root: Value) -> set[str]:
    """Every NAME of which there is a ${NAME} somewhere, in a shell's texts too."""
    filling = _Filling({})
    filling.value(root, ())
    return filling.seen


class _Filling:
    """One walk over one tree."""

    def __init__(self, sets: Mapping[str, str]) -> None:
        self.sets = sets
        self.used: set[str] = set()
        self.seen: set[str] = set()
        self.problems: list[Problem] = []

    def value(self, value: Value, path: Path) -> Value:
        if isinstance(value, dict):
            return {name: self.value(item, (*path, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        if value is None or "${" not in value:
            return value
        if _in_command(path) in _WORD_LISTS:
            try:
                return [self.text(word, path) for word in shlex.split(value)]
            except ValueError:
                return value  # an open quote: the field itself reports it
        return self.text(value, path)

    def text(self, text: str, path: Path) -> str:
        in_shell = _in_command(path) in _SHELL_TEXT or path[-1:] == _PREFETCH

        def replacement(match: re.Match[str]) -> str:
            escaped, name = match.groups()
            reference = plain(match[0])
            if escaped:
                return match[0][1:]
            if _NAME.fullmatch(name):
                self.seen.add(name)
                if name in self.sets:
                    self.used.add(name)
                    return self.sets[name]
                sentence = f"{reference} is not filled; give --set {plain(name)}=value"
            else:
                sentence = f"{reference} is not of the form ${{NAME}}; fill in the value"
            if not in_shell:
                self.problems.append(Problem(path, f"{sentence}, or write ${reference} for this very text"))
            return match[0]

        return _REFERENCE.sub(replacement, text)


def _in_command(path: Path) -> Path:
    """Where something is in a command: a role's is written as the job's is."""
    return path[2:] if path[:1] == ("roles",) else path
