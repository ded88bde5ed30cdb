"""The words of `petctl sweep` -> points, and a job for each of them.

A parameter's ${NAME} is filled in every word and option of the command line, and in every value of the job file, before
a job is made of them: so what a value does to the job is checked for each point before the first is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from petctl.errors import SpecError, UsageError

if TYPE_CHECKING:
    from petctl.job.spec import Job
    from petctl.job.spec.document import Document
    from petctl.job.spec.job import Prepared
    from petctl.sweeps.space import Point

_SHELL = ("shell", "prepare")  # there, ${OTHER} is the shell's own
_AS_THEY_ARE = ("name", "cluster", "output")  # of the sweep as a whole
_WHOLE = ("restarts", "priority", "processes", "gpus")  # options of a job that are whole numbers


class _WholeOrNamed(click.types.IntParamType):
    """A whole number, or a text in which it is yet to be filled."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if isinstance(value, str) and "${" in value else super().convert(value, param, ctx)


def takes_names(command: click.Command) -> click.Command:
    """Lets ${NAME} stand in options of a job that are whole numbers too."""
    for option in command.params:
        if option.name in _WHOLE:
            option.type = _WholeOrNamed()
    return command


def points_of(parameters: Sequence[str], random: int | None, seed: int | None, file: str | None) -> list[Point]:
    """The points that the options ask for."""
    from petctl.sweeps.pointfile import read_points
    from petctl.sweeps.space import check_names, draw, grid, parse_parameter

    parsed = [parse_parameter(text) for text in parameters]
    rows = read_points(file) if file else None
    if not parsed and rows is None:
        raise UsageError(
            "no parameters: give one with its values: -p lr=0.1,0.01, or a file of points: "
            "--points FILE ('petctl sweep --help' lists the commands)"
        )
    check_names([*(rows[0] if rows else ()), *(parameter.name for parameter in parsed)])
    if random is None:
        if seed is not None:
            raise UsageError("--seed needs --random N")
        return grid(parsed, rows or [{}])
    if rows is not None:
        raise UsageError("give either --random or --points, not both")
    return draw(parsed, random, seed or 0)


def jobs_of(options: Mapping[str, Any], points: Sequence[Point]) -> list[Job]:
    """A job for each point; one that cannot be is told with its values."""
    from petctl.cli.job_options import prepare_job
    from petctl.sweeps.space import in_words

    texts = {name: value for name, value in options.items() if name not in _AS_THEY_ARE and _is_text(value)}
    _refuse_unknown(texts, points[0])
    files = _Files(points[0])
    jobs = []
    for number, point in enumerate(points):
        quiet = options["quiet"] or number > 0  # one remark is enough
        filled = {**options, **_filled(texts, point), "quiet": quiet}
        try:
            filled |= {name: _whole(name, filled[name]) for name in _WHOLE}
            jobs.append(prepare_job(filled, partial(files.read, point)).job)
        except SpecError as error:
            raise SpecError(f"{error}\n(in the point {in_words(point)})" if len(points) > 1 else str(error)) from None
    return jobs


def _whole(name: str, value: str | int | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        raise SpecError(f"--{name}: {value!r} is not a whole number") from None


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, tuple) and all(isinstance(item, str) for item in value))


def _filled(texts: Mapping[str, Any], point: Point) -> dict[str, Any]:
    from petctl.job.file.fill import fill

    tree, _ = fill({name: list(value) if isinstance(value, tuple) else value for name, value in texts.items()}, point)
    assert isinstance(tree, dict)
    return {name: tuple(value) if isinstance(value, list) else value for name, value in tree.items()}


def _refuse_unknown(texts: Mapping[str, Any], point: Point) -> None:
    """A ${NAME} that no parameter fills is a slip of the pen that would cost every job."""
    from petctl.job.file.fill import names_in
    from petctl.job.spec.problems import did_you_mean

    strict = {name: list(value) if isinstance(value, tuple) else value for name, value in texts.items()}
    for name in _SHELL:
        strict.pop(name, None)
    for name in sorted(names_in(strict) - set(point)):
        near = did_you_mean(name, point)
        raise UsageError(
            f"${{{name}}}: there is no parameter {name!r}; write $${{{name}}} for this very text"
            f"{near or '; parameters are ' + ', '.join(point)}"
        )


class _Files:
    """Job files, parsed once for all points."""

    def __init__(self, parameters: Point) -> None:
        self._parameters = set(parameters)
        self._parsed: dict[str, tuple[Document, set[str]]] = {}

    def read(self, point: Point, path: str, sets: Mapping[str, str]) -> Prepared:
        """The job in a file; parameters that it does not name are fine."""
        from petctl.job.file.fill import names_in
        from petctl.job.file.read import document_of, foreign_format, job_of
        from petctl.job.spec.job import Prepared

        both = sorted(self._parameters & set(sets))
        if both:
            raise UsageError(f"{both[0]} is a parameter and has a value from --set too; keep one")
        if path not in self._parsed:
            document = document_of(path)
            self._parsed[path] = document, names_in(document.root)
        document, names = self._parsed[path]
        if foreign := foreign_format(document.root):
            return self._read_foreign(foreign, document, names, sets)
        own = {name: value for name, value in point.items() if name in names}
        return Prepared(job_of(document, {**sets, **own}))

    def _read_foreign(self, system: Any, document: Document, names: set[str], sets: Mapping[str, str]) -> Prepared:
        from petctl.sweeps.space import variable

        path = document.name
        if said := sorted(names & self._parameters):
            name = said[0]
            raise UsageError(f"{path}: in a {system.NAME} job file ${{{name}}} is not filled; write ${variable(name)}")
        read: Prepared = system.read_job_file(document, sets)
        if read.secrets:
            raise UsageError(
                f"{path}: contains secrets, which a sweep cannot keep; store them first: petctl secret set NAME"
            )
        return read
