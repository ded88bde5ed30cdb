"""What a job gives back: ids of outputs, and where each goes.

    outputs: [model, samples]                              under the job's store, or in its directory
    outputs: {model: s3://bucket/models/today, samples: ""}

Each is a directory that the workers find as $PETCTL_OUTPUT_<ID>. Where a location leads is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, shown, wrong

NO_STORE = "none"  # for `store`: none, whatever the configuration says
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def variable_of(output: str) -> str:
    """The environment variable that leads to an output."""
    return "PETCTL_OUTPUT_" + output.upper().replace("-", "_")


def outputs(value: object) -> dict[str, str]:
    """id -> location; an empty one is under the store."""
    if isinstance(value, str):
        value = values.words(value)
    if isinstance(value, Mapping):
        entries = [(name, name, "" if place is None else place) for name, place in value.items()]
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        entries = [(position, name, "") for position, name in enumerate(value)]
    else:
        raise wrong(f"expected a list of ids, or a mapping of ids to locations, got {shown(value)}")
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for place, name, location in entries:
        try:
            text = values.text(name)
            if not _ID.fullmatch(text):
                raise wrong(f"an output's id has letters, digits, '-' and '_', at most 64, got {shown(name)}")
            twin = next((known for known in found if variable_of(known) == variable_of(text)), None)
            if twin is not None:
                raise wrong(f"{text!r} and {twin!r} would both be ${variable_of(text)}; rename one")
            found[text] = values.single_line(location)
        except FieldError as error:
            problems += [problem.under(place) for problem in error.problems]
    if problems:
        raise FieldError(problems)
    return found


def outputs_to_plain(value: dict[str, str]) -> list[str] | dict[str, str]:
    """As it is written in a file."""
    return dict(value) if any(value.values()) else list(value)
