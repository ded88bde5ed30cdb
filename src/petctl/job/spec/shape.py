"""Objects whose fields are known by name: checked as a whole, with every problem at once. Knows no field itself.

    {"id": Need(values.text), "path": values.text, "mount": {...}, "env": [{...}]}

A field holds a value (a function that converts it), an object, or a list of objects; `Need`: it must be there.
`convert_fields` does the same for a struct that checks itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Union

import msgspec
from msgspec.structs import force_setattr

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field, wrong

Convert = Callable[[object], object]
Holds = Union[Convert, "Shape", "list[Shape]"]


class Need(NamedTuple):
    """A field that must be there."""

    holds: Holds


Shape = Mapping[str, Union[Holds, Need]]


def take(shape: Shape, value: object) -> dict[str, Any]:
    """The fields that are there, converted; FieldError with every problem."""
    taken, problems = examine(shape, value)
    if problems:
        raise FieldError(problems)
    return taken


def examine(
    shape: Shape, value: object, ignored: Collection[str] = (), keep_none: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """The fields that are right, and what is wrong with the others. A field without a value is not there, or None with
    `keep_none`."""
    if not isinstance(value, Mapping):
        return {}, [Problem((), f"expected an object with {', '.join(shape)}, got {shown(value)}")]
    problems = [unknown_field(str(name), shape) for name in value if name not in shape and name not in ignored]
    taken: dict[str, Any] = {}
    for name, key in shape.items():
        if value.get(name) is None:
            if isinstance(key, Need):
                problems.append(Problem((name,), "is missing"))
            elif keep_none and name in value:
                taken[name] = None
            continue
        try:
            taken[name] = _held(key, value[name], keep_none)
        except FieldError as error:
            problems += [problem.under(name) for problem in error.problems]
    return taken, problems


def whole(shape: Shape, taken: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same object with every field there is; those that were not given are None."""
    given = taken or {}
    return {name: _whole(key, given.get(name)) for name, key in shape.items()}


def _whole(key: Holds | Need, value: Any) -> Any:
    holds = key.holds if isinstance(key, Need) else key
    if value is None or not isinstance(holds, (Mapping, list)):
        return value
    return whole(holds, value) if isinstance(holds, Mapping) else [whole(holds[0], item) for item in value]


def _held(key: Holds | Need, value: object, keep_none: bool) -> object:
    holds = key.holds if isinstance(key, Need) else key
    if not isinstance(holds, (Mapping, list)):
        return holds(value)
    if isinstance(holds, Mapping):
        taken, problems = examine(holds, value, keep_none=keep_none)
        if problems:
            raise FieldError(problems)
        return taken
    shape = holds[0]
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise wrong(f"expected a list of objects with {', '.join(shape)}, got {shown(value)}")
    return [item for _, item in values.each(enumerate(value), lambda _, item: take(shape, item))]


Converters = Mapping[str, Callable[[object], object]]
_S = TypeVar("_S", bound=msgspec.Struct)


def convert_fields(struct: msgspec.Struct, converters: Converters) -> list[Problem]:
    """Replaces each field by its converted value; returns every problem instead of stopping at the first."""
    problems: list[Problem] = []
    for name, convert in converters.items():
        try:
            force_setattr(struct, name, convert(getattr(struct, name)))
        except FieldError as error:
            own = () if name == "command" else (name,)  # its problems name script, args and so on themselves
            problems += [problem.under(*own) for problem in error.problems]
    return problems


def struct_from(kind: type[_S], value: object) -> _S:
    """A struct from a mapping of its fields, or the struct itself; what has no value is as if it were not there."""
    if isinstance(value, kind):
        return value
    known = kind.__struct_fields__
    if not isinstance(value, Mapping):
        raise wrong(f"expected a mapping with {', '.join(known)}, got {shown(value)}")
    problems = [unknown_field(str(name), known) for name in value if name not in known]
    try:
        made = kind(**{name: value[name] for name in known if value.get(name) is not None})
    except FieldError as error:
        raise FieldError([*problems, *error.problems]) from None
    if problems:
        raise FieldError(problems)
    return made
