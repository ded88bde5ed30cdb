"""Objects whose fields are known by name: checked as a whole, with every problem at once. Knows no field itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Union

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field, wrong

Convert = Callable[[object], object]


class Many(NamedTuple):
    """A list of objects of one shape."""

    shape: Shape


class Key(NamedTuple):
    """What a field holds: a value, an object, or a list of objects."""

    holds: Union[Convert, Shape, Many]
    required: bool = False


Shape = dict[str, Key]


def take(shape: Shape, value: object) -> dict[str, Any]:
    """The fields that are there, converted; FieldError with every problem."""
    taken, problems = examine(shape, value)
    if problems:
        raise FieldError(problems)
    return taken


def examine(shape: Shape, value: object, ignored: Collection[str] = ()) -> tuple[dict[str, Any], list[Problem]]:
    """The fields that are right, and what is wrong with the others. A field without a value is not there."""
    if not isinstance(value, Mapping):
        return {}, [Problem((), f"expected an object with {', '.join(shape)}, got {shown(value)}")]
    problems = [unknown_field(str(name), shape) for name in value if name not in shape and name not in ignored]
    taken: dict[str, Any] = {}
    for name, key in shape.items():
        if value.get(name) is None:
            if key.required:
                problems.append(Problem((name,), "is missing"))
            continue
        try:
            taken[name] = _held(key.holds, value[name])
        except FieldError as error:
            problems += [problem.under(name) for problem in error.problems]
    return taken, problems


def whole(shape: Shape, taken: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same object with every field there is; those that were not given are None."""
    given = taken or {}
    return {name: _whole(key.holds, given.get(name)) for name, key in shape.items()}


def _whole(holds: Convert | Shape | Many, value: Any) -> Any:
    if value is None or callable(holds):
        return value
    if isinstance(holds, Many):
        return [whole(holds.shape, item) for item in value]
    return whole(holds, value)


def _held(holds: Convert | Shape | Many, value: object) -> object:
    if isinstance(holds, dict):
        return take(holds, value)
    if not isinstance(holds, Many):
        return holds(value)
    shape = holds.shape
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes, bytearray)):
        raise wrong(f"expected a list of objects with {', '.join(shape)}, got {shown(value)}")
    return [item for _, item in values.each(enumerate(value), lambda _, item: take(shape, item))]
