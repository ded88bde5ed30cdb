"""What is checked as a whole, with every problem at once. Knows no field itself.

    class Timing(Checked, frozen=True, kw_only=True):                       petctl's own: a struct
        name: str = ""                                                      as its type says
        grace: Annotated[float, Form(parse_duration, format_duration)] = 30.0

    {"id": Need(values.text), "path": values.text, "env": [{...}]}          other systems' files: a shape

A field of a shape holds a value (a function that converts it), an object, or a list of objects; `Need`: it must be
there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, Problems, shown, unknown_field, wrong

Convert = Callable[[object], object]
Holds = Union[Convert, "Shape", "list[Shape]"]


class Need(NamedTuple):
    """A field that must be there."""

    holds: Holds


Shape = Mapping[str, Union[Holds, Need]]


def examine(
    shape: Shape, value: object, ignored: Collection[str] = (), keep_none: bool = False
) -> tuple[dict[str, Any], Problems]:
    """The fields that are right, and what is wrong with the others. A field without a value is not there, or None with
    `keep_none`."""
    if not isinstance(value, Mapping):
        return {}, Problems([Problem((), f"expected an object with {', '.join(shape)}, got {shown(value)}")])
    problems = Problems(unknown_field(str(name), shape) for name in value if name not in shape and name not in ignored)
    taken: dict[str, Any] = {}
    for name, key in shape.items():
        if value.get(name) is not None:
            with problems.at(name):
                taken[name] = _held(_holds(key), value[name], keep_none)
        elif isinstance(key, Need):
            problems.append(Problem((name,), "is missing"))
        elif keep_none and name in value:
            taken[name] = None
    return taken, problems


def take(shape: Shape, value: object, keep_none: bool = False) -> dict[str, Any]:
    """The fields that are there, converted; FieldError with every problem."""
    taken, problems = examine(shape, value, keep_none=keep_none)
    problems.check()
    return taken


def whole(shape: Shape, taken: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same object with every field there is; those that were not given are None."""
    return {name: _whole(_holds(key), (taken or {}).get(name)) for name, key in shape.items()}


def _whole(holds: Holds, value: Any) -> Any:
    if value is None or callable(holds):
        return value
    return [whole(holds[0], item) for item in value] if isinstance(holds, list) else whole(holds, value)


def _held(holds: Holds, value: object, keep_none: bool) -> object:
    if callable(holds):
        return holds(value)
    if isinstance(holds, list):
        return values.every(value, partial(take, holds[0]), f"a list of objects with {', '.join(holds[0])}")
    return take(holds, value, keep_none)


def _holds(key: Holds | Need) -> Holds:
    return key.holds if isinstance(key, Need) else key


_BY_TYPE: dict[Any, Convert] = {
    bool: values.truth,
    str: values.text,
    list[str]: values.words,
    dict[str, Any]: values.mapping,
}
_TYPES = {bool: "true|false", int: "N", float: "NUMBER", str: "TEXT", list: "LIST", dict: "MAPPING"}
_S = TypeVar("_S", bound=msgspec.Struct)


class Form(NamedTuple):
    """How a field of a struct is read, and written into a file, where its type does not say it."""

    read: Convert
    write: Callable[[Any], Any] = msgspec.to_builtins


class Checked(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """A struct that converts what it is given, and is refused with all that is wrong; every field has a default."""

    def __post_init__(self) -> None:
        problems = Problems()
        for name, form in _forms(type(self)).items():
            try:  # not by `at`, which costs more than most fields: a sweep makes thousands of jobs
                force_setattr(self, name, form.read(getattr(self, name)))
            except FieldError as error:
                problems.keep(error, *self.path_of(name))
        if not problems:
            problems += self.conflicts()
        problems.check()

    def conflicts(self) -> Iterable[Problem]:
        """Says what is right in itself and wrong beside the rest."""
        return ()

    @staticmethod
    def path_of(name: str) -> tuple[str, ...]:
        """Where a field is in a file."""
        return (name,)

    def to_plain(self, default: Checked | None = None) -> dict[str, Any]:
        """The fields that are not at their default, as a file has them."""
        default = type(self)() if default is None else default
        said = {name: (getattr(self, name), form.write) for name, form in _forms(type(self)).items()}
        return {name: write(value) for name, (value, write) in said.items() if value != getattr(default, name)}


@cache
def _forms(kind: type[Checked]) -> dict[str, Form]:
    types, hints = get_type_hints(kind), get_type_hints(kind, include_extras=True)
    return {name: _form(types[name], getattr(hints[name], "__metadata__", ())) for name in kind.__struct_fields__}


def _form(kind: Any, words: tuple[Any, ...]) -> Form:
    own = [word for word in words if isinstance(word, Form)]
    return own[0] if own else Form(_BY_TYPE[kind] if kind in _BY_TYPE else partial(_converted, kind))


def _converted(kind: Any, value: object) -> Any:
    """A value of a file or the command line, where every scalar is text, as this type."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        raise wrong(f"expected {type_word(kind)}, got {shown(value)}") from None


def type_word(kind: Any) -> str:
    """A type for people: N, TEXT, LIST."""
    types = [get_origin(one) or one for one in (get_args(kind) if type(None) in get_args(kind) else (kind,))]
    return next((_TYPES[one] for one in types if one in _TYPES), "VALUE")


def struct_from(kind: type[_S], value: object) -> _S:
    """A struct from a mapping of its fields, or the struct itself; what has no value is as if it were not there."""
    if isinstance(value, kind):
        return value
    known = kind.__struct_fields__
    if not isinstance(value, Mapping):
        raise wrong(f"expected a mapping with {', '.join(known)}, got {shown(value)}")
    problems = Problems(unknown_field(str(name), known) for name in value if name not in known)
    with problems.at():
        made = kind(**{name: value[name] for name in known if value.get(name) is not None})
    problems.check()
    return made
