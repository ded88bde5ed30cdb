"""Points from a file: a table with a header (.csv), a list of mappings (.json, .yaml) or one mapping per line (.jsonl).

Numbers stay the text that was written: 1e-3 is 1e-3, whatever a reader would make of it.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from petctl.errors import UsageError
from petctl.sweeps.space import MOST_POINTS, Point, check_names

LARGEST_FILE = 16 << 20
KINDS = (".csv", ".json", ".jsonl", ".yaml", ".yml")


def read_points(path: str) -> list[Point]:
    """The file's rows, each with the same names."""
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise UsageError(f"{path}: the name of a file of points must end in {', '.join(KINDS)}")
    try:
        with Path(path).open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    if len(data) > LARGEST_FILE:
        raise UsageError(f"{path}: larger than 16 MiB; is this the right file?")
    rows = _rows(path, kind, text)
    if not rows:
        raise UsageError(f"{path}: there is no point in it")
    if len(rows) > MOST_POINTS:
        raise UsageError(f"{path}: has {len(rows)} points; a sweep can have at most {MOST_POINTS}")
    try:
        check_names([str(name) for name in rows[0][1]])
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    names = set(rows[0][1])
    for place, row in rows:
        if set(row) != names:
            odd = ", ".join(sorted(map(str, set(row) ^ names)))
            raise UsageError(f"{path}: {place} differs from the first point in {odd}; every point needs the same names")
    return [{name: _text(value, f"{path}: {place}", name) for name, value in row.items()} for place, row in rows]


def _rows(path: str, kind: str, text: str) -> list[tuple[str, dict[str, Any]]]:
    """Each row, and where it is."""
    if kind == ".csv":
        reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
        try:
            lines = [(reader.line_num, row) for row in reader if row]
        except csv.Error as error:
            raise UsageError(f"{path}: line {reader.line_num} cannot be parsed: {error}") from None
        header = lines[0][1] if lines else []
        if len(set(header)) < len(header):
            raise UsageError(f"{path}: two columns have the same name: {', '.join(header)}")
        for number, row in lines[1:]:
            if len(row) != len(header):
                raise UsageError(f"{path}: line {number} has {len(row)} values for {len(header)} names")
        return [(f"line {number}", dict(zip(header, row, strict=True))) for number, row in lines[1:]]
    try:
        if kind == ".jsonl":
            lines_ = [(f"line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
            found: list[tuple[str, Any]] = [(place, _json(line)) for place, line in lines_]
        else:
            found = [(f"point {number}", row) for number, row in enumerate(_list(path, kind, text), 1)]
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: cannot be parsed: {error}") from None
    for place, row in found:
        if not isinstance(row, dict) or not row:
            raise UsageError(f"{path}: {place} must be a mapping of names to values, such as lr: 0.1")
    return found


def _list(path: str, kind: str, text: str) -> list[Any]:
    if kind == ".json":
        rows = _json(text)
    else:
        import yaml

        try:
            rows = yaml.load(text, _loader())
        except yaml.YAMLError as error:
            raise ValueError(" ".join(str(error).split())) from None
    if not isinstance(rows, list):
        raise UsageError(f"{path}: expected a list of points, each a mapping of names to values")
    return rows


def _loader() -> type[Any]:
    """A reader of YAML that leaves every value a text."""
    import yaml

    class Loader(yaml.BaseLoader):
        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            _once([str(name.value) for name, _ in node.value])
            return dict(super().construct_mapping(node, deep))

    return Loader


def _json(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_mapping)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    _once([name for name, _ in pairs])
    return dict(pairs)


def _once(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{twice[0]} is given twice")


def _text(value: object, place: str, name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str):
        raise UsageError(f"{place}: {name} must be text or a number")
    return value
