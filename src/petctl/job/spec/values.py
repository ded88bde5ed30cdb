"""One small function per kind of value: from what a user may write to what the model holds, or FieldError.

A value may come from a file (always text, as written) or from Python. Every function accepts its own results, so that
copying or changing a job validates it anew. Nothing here knows which field a value belongs to.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from petctl.job.spec.document import Bare
from petctl.job.spec.problems import FieldError, Problem, Problems, did_you_mean, shown, wrong

_T = TypeVar("_T")

_WHOLE = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_SECRET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", re.ASCII)


def text(value: object) -> str:
    """Text that a program can be given; numbers and truth values as they are written in a file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None:
        raise wrong('expected text, got nothing; write "" for empty text')
    if not isinstance(value, str):
        raise wrong(f"expected text, got {shown(value)}")
    if "\0" in value:
        raise wrong("contains a NUL character, which a program cannot receive")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong(
            "contains bytes that are not UTF-8, which a job's record cannot keep; rename or re-encode it"
        ) from None
    return str(value)  # a Bare one is plain from here on


def single_line(value: object) -> str:
    """Text of one line, without blanks around it."""
    line = text(value)
    if line != line.strip() or len(line.splitlines()) > 1:
        raise wrong(f"expected one line without blanks around it, got {shown(line)}")
    return line


def of_form(form: str, rule: str) -> Callable[[object], str]:
    """Text of one form, a regular expression; `rule` says it in words."""
    pattern = re.compile(form, re.ASCII)

    def convert(value: object) -> str:
        said = text(value)
        if not pattern.fullmatch(said):
            raise wrong(f"{rule}, got {shown(said)}")
        return said

    return convert


job_name = of_form(
    r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?",
    "expected 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit",
)
"""A name that is fit for file names, DNS labels and command lines; empty: derived later from the command."""


def host(value: object) -> str:
    """An address to listen on, without a port."""
    address = text(value)
    if not address or re.search(r"[\s/\[\]]", address) or address.count(":") == 1:
        raise wrong(f"expected an address or host name without a port, got {shown(address)}")
    return address


def procs(value: object) -> str:
    """Processes per node: a positive number, or a word that each node resolves for itself."""
    words = ("cpu", "gpu", "auto")
    written = text(value).strip() if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    if written in words:
        return written
    if re.fullmatch(r"[0-9]{1,6}", written, re.ASCII) and int(written) > 0:
        return str(int(written))
    hint = did_you_mean(written, words) if written.isalpha() else ""
    raise wrong(f"expected a positive number, cpu, gpu or auto, got {shown(value)}{hint}")


def whole(least: int, most: int = 2**31 - 1) -> Callable[[object], int]:
    """A whole number within bounds."""
    expected = f"expected a whole number of {least} or more" if least >= 0 else "expected a whole number"

    def convert(value: object) -> int:
        number: int | None = None
        if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            number = int(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            number = value
        if number is None or number < least:
            raise wrong(f"{expected}, got {shown(value)}")
        if number > most:
            raise wrong(f"{expected}, at most {most}, got {shown(value)}")
        return number

    return convert


def above_zero(convert: Callable[[object], _T]) -> Callable[[object], _T]:
    """The same amount, which must not be zero."""

    def positive(value: object) -> _T:
        amount = convert(value)
        if amount == 0:
            raise wrong("must be above zero")
        return amount

    return positive


def optional(convert: Callable[[object], _T]) -> Callable[[object], _T | None]:
    """The same value, or None where nothing is said."""
    return lambda value: None if value is None else convert(value)


def one_of(*choices: str) -> Callable[[object], str]:
    """One word of a few."""

    def convert(value: object) -> str:
        if isinstance(value, str) and value in choices:
            return value
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise wrong(f"expected {' or '.join(choices)}, got {shown(value)}{hint}")

    return convert


def truth(value: object) -> bool:
    """Yes or no, in one way of writing it only."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in ("true", "false"):
        return value == "true"
    raise wrong(f"expected true or false, got {shown(value)}")


def words(value: object) -> list[str]:
    """A list of words; one string is split as a shell would, with quotes but without any expansion."""
    if isinstance(value, str):
        try:
            return [text(word) for word in shlex.split(value)]
        except ValueError as error:
            raise wrong(f"cannot be split into words: {str(error).lower()}; write a list of words") from None
    return every(value, text, "a list of words")


def module_names(value: object) -> list[str]:
    """Names of Python modules."""

    def module(name: str) -> str:
        if not all(part.isidentifier() for part in name.split(".")):
            raise wrong(f"expected the name of a Python module, such as torch.nn, got {shown(name)}")
        return name

    return every(words(value), module)


class Names(NamedTuple):
    """Which names a mapping may have, and the rule in words."""

    form: re.Pattern[str]
    rule: str


ENVIRONMENT_NAMES = Names(
    re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII),
    "a name in the environment has letters, digits, '_', '.' and '-', and begins with a letter or '_'",
)
LABEL_NAMES = Names(re.compile(r"\S(?:.*\S)?"), "a label's name is one line of text without blanks around it")


def text_mapping(names: Names, convert_value: Callable[[object], str]) -> Callable[[object], dict[str, str]]:
    """A mapping of names to text; reports every bad entry."""

    def convert(entries: object) -> dict[str, str]:
        if not isinstance(entries, Mapping):
            raise wrong(f"expected a mapping of names to text, got {shown(entries)}")
        found, problems = dict[str, str](), Problems()
        for name, value in entries.items():
            with problems.at(name):
                if not isinstance(name, str) or not names.form.fullmatch(name):
                    raise FieldError([Problem((), names.rule, at_name=True)])
                found[name] = convert_value(value)
        problems.check()
        return found

    return convert


def mapping(value: object) -> dict[str, Any]:
    """Anything below names, as somebody else will read it: what was written without quotes gets JSON's types."""
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise wrong(f"expected a mapping, got {shown(value)}")
    return {name: _typed(item) for name, item in value.items()}


def mappings(value: object) -> list[dict[str, Any]]:
    """A list of such."""
    return every(value, mapping, "a list of mappings")


def _typed(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _typed(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_typed(item) for item in value]
    if not isinstance(value, Bare):
        return value
    import json  # only for the few jobs that have such a field

    return json.loads(value)


def secret_name(value: object) -> str:
    """The name of a secret. What was written is not repeated: people paste the secret itself here."""
    if not isinstance(value, str) or not _SECRET.fullmatch(value):
        raise wrong("expected the name of a secret (see `petctl secret ls`), not its value")
    return str(value)


def every(value: object, convert: Callable[[Any], _T], expected: str = "a list") -> list[_T]:
    """Every entry of a list converted, or all of their problems together."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise wrong(f"expected {expected}, got {shown(value)}")
    done, problems = list[_T](), Problems()
    for position, item in enumerate(value):
        with problems.at(position):
            done.append(convert(item))
    problems.check()
    return done


def check_once(texts: Sequence[str], field: str, sentence: str) -> None:
    """Refuses a text that entries of a list have twice in this field."""
    twice = [number for number, text in enumerate(texts) if text in texts[:number]]
    Problems(Problem((number, field), sentence.format(texts[number])) for number in twice).check()
