"""Options of one kind of cluster: what a job says to that kind alone, under `options: {KIND: {...}}` or by -O.

A kind's options are the fields of a struct, with types, defaults and, as the annotation's second word, their help:

    class RackOptions(Options, frozen=True):
        rack: Annotated[int, "The rack to run in."] = 0

Which kind has which is in `petctl.kinds`. Nothing else of a kind is imported for them. Options of other kinds than the
cluster's have no effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from petctl.job.spec.problems import Problem, Problems, did_you_mean, shown, wrong
from petctl.job.spec.shape import Checked, struct_from, type_word
from petctl.kinds import canonical_kind, kinds_with_options, load_options

if TYPE_CHECKING:
    from petctl.job.spec.job import Job
    from petctl.job.task import Layout


class Options(Checked, frozen=True, kw_only=True):
    """Options of one kind; every field has a default. A `Form` in its annotation reads what needs more than a type."""

    unset: ClassVar[str] = "none"  # how the help calls a default that is empty

    def node_layout(self, job: Job, job_id: str) -> Layout | None:
        """What the job's nodes have beside the usual because of these options, whatever the cluster."""
        return None


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
    default, types, hints = kind(), get_type_hints(kind), get_type_hints(kind, include_extras=True)
    found = []
    for name in kind.__struct_fields__:
        usual = getattr(default, name)
        empty = usual is None or usual in ("", [], {})
        said = kind.unset if empty else str(usual).lower() if isinstance(usual, bool) else str(usual)
        words = [word for word in getattr(hints[name], "__metadata__", ()) if isinstance(word, str)]
        found.append(OptionHelp(name, type_word(types[name]), said, "".join(words[:1])))
    return found


def convert_options(value: object) -> dict[str, Options]:
    """What a job says under `options`, by kind."""
    if not isinstance(value, Mapping):
        raise wrong(f"expected a mapping of kinds to their options, got {shown(value)}")
    found, problems = dict[str, Options](), Problems()
    for written, said in value.items():
        name, schema = canonical_kind(str(written)), find_options(str(written))
        if schema is None:
            problems.append(Problem((str(written),), no_options(str(written)), at_name=True))
        elif name in found:
            problems.append(Problem((written,), f"these are {name}'s options again; keep one", at_name=True))
        else:
            with problems.at(written):
                found[name] = struct_from(schema, {} if said is None else said)
    problems.check()
    return found


def no_options(kind: str) -> str:
    """Says that a kind has no options, and the nearest one that has."""
    known = kinds_with_options()
    near = did_you_mean(kind, known) or f"; kinds that have: {', '.join(known)}"
    return f"no kind of cluster {shown(kind)} has options here{near}"


def options_to_plain(options: Mapping[str, Options]) -> dict[str, Any]:
    """The same as a job file has it."""
    return {kind: found.to_plain() for kind, found in options.items()}
