"""Structs that check themselves: every field converted, every problem reported at once.

What a field means is said where its struct is (job.py, pods.py); this module knows no field but by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import force_setattr

from petctl.job.spec.problems import FieldError, Problem, shown, unknown_field, wrong

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
