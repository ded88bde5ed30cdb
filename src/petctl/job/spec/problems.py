"""What is wrong with a job description: all of it at once, each with the path of its field.

The rest of `job/` raises `FieldError` and never formats a place; only `read.py`, which knows the file, turns paths
into file:line:column. This module knows nothing of jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from petctl.errors import SpecError

Path = tuple["str | int", ...]

_SHOWN = 60


class Problem(NamedTuple):
    """One sentence about one field."""

    path: Path
    sentence: str
    at_name: bool = False  # the field's name is wrong, not its value

    def under(self, *path: str | int) -> Problem:
        """The same problem, seen from further out."""
        return self._replace(path=(*path, *self.path))

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.sentence}" if self.path else self.sentence


class FieldError(SpecError):
    """One or more problems of a job description, with their paths."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Problems(list[Problem]):
    """Problems that are gathered on the way, so that all are told at once."""

    @contextmanager
    def at(self, *path: str | int) -> Iterator[None]:
        """Keeps what is found wrong within it, as problems of this part."""
        try:
            yield
        except FieldError as error:
            self.keep(error, *path)

    def keep(self, error: FieldError, *path: str | int) -> None:
        """Keeps what an error says of this part."""
        self += [problem.under(*path) for problem in error.problems]

    def check(self) -> None:
        """Raises FieldError where there are any."""
        if self:
            raise FieldError(self)


def wrong(sentence: str, *path: str | int) -> FieldError:
    """An error with a single problem."""
    return FieldError([Problem(path, sentence)])


def dotted(path: Path) -> str:
    """A path as people write it: env.LR, args[2]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else ("." if text else "") + plain(part)
    return text


def plain(text: str) -> str:
    """A user's word inside a sentence: itself if it is short and harmless, so that a problem stays one line."""
    return text if text.isprintable() and 0 < len(text) <= _SHOWN else shown(text)


def shown(value: object) -> str:
    """A value for an error message: never long, never structure."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 4] + text[0] + "..."


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The end of a sentence about a name that is not known: the nearest right one, if any is near."""
    import difflib  # 5 ms, and only on the way to an error

    near = difflib.get_close_matches(name.lower(), {word.lower(): word for word in known}, n=1, cutoff=0.55)
    return f"; did you mean {next(word for word in known if word.lower() == near[0])!r}?" if near else ""


def unknown_field(name: str, known: Collection[str], hint: str = "") -> Problem:
    """A name that no field has: the nearest right one, else all there are."""
    end = hint or did_you_mean(name, known) or f"; known here: {', '.join(sorted(known))}"
    return Problem((name,), "unknown field" + end, at_name=True)
