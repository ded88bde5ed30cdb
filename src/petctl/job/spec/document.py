"""A job file as a tree of texts, with the place of every name and value in it.

A document holds mappings, lists, text and None, nothing else: a number stays the text that was written (0.10, 1e-3,
1:30, 012), and the field it belongs to decides what it means. So none of YAML's guesses (1:30 is ninety, no is false)
can change the user's words. What is for others to read (a piece of a pod template) needs types nevertheless: text that
is a number or a truth value, and was written without quotes, is `Bare`. `yaml_text.py` and `json_text.py` feed the
`Builder`; this module knows no syntax.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, NoReturn, Union

from petctl.errors import SpecError
from petctl.job.spec.problems import Path, Problem, shown

Value = Union[None, str, "list[Value]", "dict[str, Value]"]

MOST_VALUES = 100_000  # aliases counted as often as they are used: a few bytes of YAML can mean billions of values
MOST_DEPTH = 16  # and in depth too: the chain a: &a [x], b: &b [*a], c: &c [*b] has no end


_TYPED = re.compile(r"true|false|-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,17})?(?:[eE][+-]?[0-9]{1,2})?", re.ASCII)


class Bare(str):
    """Text that JSON would read as a number or a truth value, and that had no quotes around it."""


def unquoted(text: str) -> str:
    """A text as it stands without quotes in a file."""
    return Bare(text) if _TYPED.fullmatch(text) else text


class Mark(NamedTuple):
    """A place in the file, counted from 1."""

    line: int
    column: int


class Document:
    """The whole tree of one file; never changed after it was built."""

    def __init__(
        self,
        name: str,
        root: Value,
        places: dict[tuple[int, str | int], tuple[Mark, Mark]],
        problems: Iterable[tuple[Mark, str]] = (),
    ) -> None:
        self.name = name
        self.root = root
        self._places = places
        self._problems = tuple(problems)  # of the text itself

    def check(self, problems: Iterable[Problem] = ()) -> None:
        """Raises SpecError where anything is wrong, in the text or by these: one line each, in the order of their
        places."""
        lines = [(mark, f"{self.name}:{mark.line}:{mark.column}: {sentence}") for mark, sentence in self._problems]
        for problem in problems:
            place, mark = self.place(problem.path, problem.at_name)
            lines.append((mark, f"{place}: {problem}"))
        if lines:
            raise SpecError("\n".join(dict.fromkeys(line for _, line in sorted(lines))))

    def place(self, path: Path, at_name: bool = False) -> tuple[str, Mark]:
        """file:line:column of a value (or of its name), or of the nearest thing around it; and a key to sort by."""
        node, mark = self.root, None
        for part in path:
            marks = self._places.get((id(node), part))
            if marks is None or not isinstance(node, (dict, list)):
                break
            mark = marks[0 if at_name else 1]
            node = node[part]  # type: ignore[index]  # a place was recorded for exactly this part
        if mark is None:
            return self.name, Mark(0, 0)
        return f"{self.name}:{mark.line}:{mark.column}", mark


class _Open:
    """A mapping or list that is being put together."""

    def __init__(self, container: dict[str, Value] | list[Value], before: int) -> None:
        self.container = container
        self.before = before  # how many values the document had before this one
        self.height = 1  # levels from here down
        self.name: tuple[str, Mark] | None = None  # in a mapping: the name that waits for its value


class Builder:
    """Puts together a document from the front end's events, and refuses what cannot be one."""

    def __init__(self, name: str, most: int = MOST_VALUES) -> None:
        self.name, self._most = name, most
        self.problems: list[tuple[Mark, str]] = []
        self._root: list[Value] = []
        self._places: dict[tuple[int, str | int], tuple[Mark, Mark]] = {}
        self._stack = [_Open(self._root, 0)]
        self._sizes: dict[int, tuple[int, int]] = {}  # of complete containers: values in them, and levels
        self._dropped: list[Value] = []  # kept alive, or their ids, which the places go by, would be used again
        self._count = 0

    def add(self, value: Value, mark: Mark) -> None:
        """A text, nothing, or something that stands elsewhere already; in a mapping, names and values in turn."""
        values, height = self._sizes.get(id(value), (1, 0)) if isinstance(value, (dict, list)) else (1, 0)
        self._grow(values, height, mark)
        self._put(value, mark)

    def open(self, container: dict[str, Value] | list[Value], mark: Mark) -> None:
        """A mapping or list begins; what follows goes into it until `close`."""
        before = self._count
        self._grow(1, 1, mark)
        self._put(container, mark)
        self._stack.append(_Open(container, before))

    def close(self) -> dict[str, Value] | list[Value]:
        """The innermost mapping or list is complete."""
        done = self._stack.pop()
        self._sizes[id(done.container)] = (self._count - done.before, done.height)
        self._stack[-1].height = max(self._stack[-1].height, done.height + 1)
        return done.container

    def fail(self, mark: Mark, sentence: str) -> NoReturn:
        """Gives up: nothing after this place can be understood."""
        raise SpecError(f"{self.name}:{mark.line}:{mark.column}: {sentence}")

    def document(self) -> Document:
        """The finished document."""
        return Document(self.name, self._root[0] if self._root else None, self._places, self.problems)

    def _grow(self, values: int, height: int, mark: Mark) -> None:
        self._count += values
        if self._count > self._most:
            self.fail(mark, f"the file has more than {self._most} values")
        if len(self._stack) - 1 + height > MOST_DEPTH:
            self.fail(mark, f"nested more than {MOST_DEPTH} levels deep")
        self._stack[-1].height = max(self._stack[-1].height, height + 1)

    def _put(self, value: Value, mark: Mark) -> None:
        inner = self._stack[-1]
        container = inner.container
        if isinstance(container, list):
            self._places[id(container), len(container)] = (mark, mark)
            container.append(value)
        elif inner.name is None:
            if not isinstance(value, str):
                self.fail(mark, "expected a name, followed by ':' and a value")
            if value in container:
                first = self._places[id(container), value][0]
                self.problems.append((mark, f"{shown(value)} is given twice; first on line {first.line}"))
            inner.name = (str(value), mark)
        else:
            name, name_mark = inner.name
            inner.name = None
            if name in container:
                self._dropped.append(value)
            else:
                self._places[id(container), name] = (name_mark, mark)
                container[name] = value
