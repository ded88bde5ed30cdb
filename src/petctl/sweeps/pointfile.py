"""Points from a file: a table with a header (.csv), a list of mappings (.json, .yaml) or one mapping per line (.jsonl).

Numbers stay the text that was written: 1e-3 is 1e-3, whatever a reader would make of it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from petctl.errors import UsageError
from petctl.job.file.documents import read_text
from petctl.job.file.json_text import parse_json
from petctl.job.file.yaml_text import parse_yaml
from petctl.job.spec.document import Builder, Document, Value
from petctl.sweeps.space import MOST_POINTS, Point, check_names

LARGEST_FILE, MOST_VALUES = 16 << 20, 1 << 20
KINDS = (".csv", ".json", ".jsonl", ".yaml", ".yml")


def read_points(path: str) -> list[Point]:
    """The file's rows, each with the same names."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise UsageError(f"{path}: the name of a file of points must end in {', '.join(KINDS)}")
    text = read_text(path, "file of points", LARGEST_FILE)
    rows = _table(path, text) if kind == ".csv" else _mappings(path, kind, text)
    if not rows:
        raise UsageError(f"{path}: there is no point in it")
    if len(rows) > MOST_POINTS:
        raise UsageError(f"{path}: has {len(rows)} points; a sweep can have at most {MOST_POINTS}")
    try:
        check_names(list(rows[0][1]))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    names = set(rows[0][1])
    for place, row in rows:
        if set(row) != names:
            odd = ", ".join(sorted(set(row) ^ names))
            raise UsageError(
                f"{place}: this point differs from the first one in {odd}; every point needs the same names"
            )
    return [row for _, row in rows]


def _table(path: str, text: str) -> list[tuple[str, Point]]:
    """Each row, and where it is."""
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        lines = [(f"{path}: line {reader.line_num}", row) for row in reader if row]
    except csv.Error as error:
        raise UsageError(f"{path}: line {reader.line_num} cannot be parsed: {error}") from None
    header = lines[0][1] if lines else []
    if len(set(header)) < len(header):
        raise UsageError(f"{path}: two columns have the same name: {', '.join(header)}")
    for place, row in lines[1:]:
        if len(row) != len(header):
            raise UsageError(f"{place} has {len(row)} values for {len(header)} names")
    return [(place, dict(zip(header, row, strict=True))) for place, row in lines[1:]]


def _mappings(path: str, kind: str, text: str) -> list[tuple[str, Point]]:
    if kind == ".jsonl":
        lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
        whole = [parse_json(line, Builder(f"{path}: line {number}", MOST_VALUES)) for number, line in lines]
        return [_point(document, document.root, document.name) for document in whole]
    document = (parse_json if kind == ".json" else parse_yaml)(text, Builder(path, MOST_VALUES))
    if not isinstance(document.root, list):
        raise UsageError(f"{path}: expected a list of points, each a mapping of names to values")
    return [_point(document, row, document.place((number,))[0]) for number, row in enumerate(document.root)]


def _point(document: Document, row: Value, place: str) -> tuple[str, Point]:
    document.check()
    if not isinstance(row, Mapping) or not row:
        raise UsageError(f"{place}: a point must be a mapping of names to values, such as lr: 0.1")
    for name, value in row.items():
        if not isinstance(value, str):
            raise UsageError(f"{place}: {name} must be text or a number; put quotes around a word such as null")
    return place, {name: str(value) for name, value in row.items()}
