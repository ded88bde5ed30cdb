"""Options of one kind of cluster: what a job says to that kind alone, under `options: {KIND: {...}}` or by -O.

A kind's options are the fields of a struct, with types, defaults and, as the annotation's second word, their help:

    class RackOptions(Options, frozen=True):
        rack: Annotated[int, "The rack to run in."] = 0

Which kind has which is in `petctl.kinds`. Nothing else of a kind is imported for them. Options of other kinds than the
cluster's have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import force_setattr

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, did_you_mean, shown, wrong
from petctl.job.spec.shape import struct_from
from petctl.kinds import canonical_kind, kinds_with_options, load_options

if TYPE_CHECKING:
    from petctl.job.spec.job import Job
    from petctl.job.task import Layout

_TYPES = {bool: "true|false", int: "N", float: "NUMBER", str: "TEXT", list: "LIST", dict: "MAPPING"}
_CONVERTERS: dict[Any, Callable[[object], Any]] = {
    bool: values.truth,
    str: values.text,
    list[str]: values.words,
    dict[str, Any]: values.mapping,
}


class Options(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """Options of one kind; every field has a default. A kind whose values need more than their type converts them
    itself in `__post_init__`."""

    unset: ClassVar[str] = "none"  # how the help calls a default that is empty

    def __post_init__(self) -> None:
        problems = []
        for name, hint in get_type_hints(type(self)).items():
            if name in self.__struct_fields__:
                try:
                    force_setattr(self, name, _converted(getattr(self, name), hint))
                except FieldError as error:
                    problems += [problem.under(name) for problem in error.problems]
        if problems:
            raise FieldError(problems)

    def node_layout(self, job: Job, job_id: str) -> Layout | None:
        """What the job's nodes have beside the usual because of these options, whatever the cluster."""
        return None

    def to_plain(self) -> dict[str, Any]:
        """The fields that are not at their default, as a job file has them."""
        default = type(self)()
        changed = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in changed.items() if value != getattr(default, name)}


class OptionHelp(NamedTuple):
    """One option, as the help lists it."""

    name: str
    type: str
    default: str
    help: str


_S = TypeVar("_S", bound=Options)


def find_options(kind: str) -> type[Options] | None:
    """The struct of a kind's options; None where it has none, or there is no such kind."""
    found: type[Options] | None = load_options(kind)
    return found


def options_for(options: Mapping[str, Options], kind: type[_S]) -> _S:
    """A job's options of one kind, or their defaults."""
    return next((found for found in options.values() if isinstance(found, kind)), None) or kind()


def describe_options(kind: type[Options]) -> list[OptionHelp]:
    """All options of a kind, in their order."""
    default, hints = kind(), get_type_hints(kind, include_extras=True)
    return [_help(kind, name, hints[name], getattr(default, name)) for name in kind.__struct_fields__]


def convert_options(value: object) -> dict[str, Options]:
    """What a job says under `options`, by kind."""
    if not isinstance(value, Mapping):
        raise wrong(f"expected a mapping of kinds to their options, got {shown(value)}")
    found: dict[str, Options] = {}
    problems: list[Problem] = []
    for written, said in value.items():
        name, schema = canonical_kind(str(written)), find_options(str(written))
        if schema is None:
            problems.append(Problem((str(written),), no_options(str(written)), at_name=True))
        elif name in found:
            problems.append(Problem((written,), f"these are {name}'s options again; keep one", at_name=True))
        else:
            try:
                found[name] = struct_from(schema, {} if said is None else said)
            except FieldError as error:
                problems += [problem.under(written) for problem in error.problems]
    if problems:
        raise FieldError(problems)
    return found


def no_options(kind: str) -> str:
    """Says that a kind has no options, and the nearest one that has."""
    known = kinds_with_options()
    near = did_you_mean(kind, known) or f"; kinds that have: {', '.join(known)}"
    return f"no kind of cluster {shown(kind)} has options here{near}"


def options_to_plain(options: Mapping[str, Options]) -> dict[str, Any]:
    """The same as a job file has it."""
    return {kind: found.to_plain() for kind, found in options.items()}


def _help(kind: type[Options], name: str, hint: Any, default: object) -> OptionHelp:
    annotated = get_origin(hint) is Annotated
    hint, text = (get_args(hint)[0], str(get_args(hint)[1])) if annotated else (hint, "")
    empty = default is None or default in ("", [], {})
    usual = kind.unset if empty else str(default).lower() if isinstance(default, bool) else str(default)
    return OptionHelp(name, _type_word(hint), usual, text)


def _type_word(hint: Any) -> str:
    types = [get_origin(one) or one for one in (get_args(hint) if type(None) in get_args(hint) else (hint,))]
    return next((_TYPES[one] for one in types if one in _TYPES), "VALUE")


def _converted(value: object, hint: Any) -> Any:
    """A value of a file or the command line, where every scalar is text, as this type."""
    if hint in _CONVERTERS:
        return _CONVERTERS[hint](value)
    try:
        return msgspec.convert(value, hint, strict=False)
    except msgspec.ValidationError:
        raise wrong(f"expected {_type_word(hint)}, got {shown(value)}") from None
