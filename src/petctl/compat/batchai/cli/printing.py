"""What a verb answers, printed as Azure's command line would: json, jsonc, table, tsv or not at all, after a query."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from petctl.errors import UsageError

FORMATS = ("json", "jsonc", "table", "tsv", "none")
Row = Callable[[Any], Mapping[str, Any]]

_UNSEEN = ("id", "type", "etag")  # of tables
_COLOURS = {"key": "\033[94m", "text": "\033[33m", "word": "\033[36m", "end": "\033[0m"}
_TOKEN = re.compile(
    r'(?P<key>"(?:[^"\\]|\\.)*")(?=:)|(?P<text>"(?:[^"\\]|\\.)*")|(?P<word>-?\d[\d.eE+-]*|true|false|null)'
)


def columns(said: str) -> Row:
    """A table's row, "Name name, VM Size vmSize": by where in an answer the value of each column is: a.b; id/8 is the
    ninth part of an id."""
    paths = [column.strip().rpartition(" ") for column in said.split(",")]
    return lambda found: {name: _dig(found, path) for name, _, path in paths}


def _dig(found: Any, path: str) -> Any:
    names, _, part = path.partition("/")
    for name in names.split("."):
        found = found.get(name)
    if not part:
        return found
    parts = found.split("/")
    return parts[int(part)] if int(part) < len(parts) else None


def print_answer(answer: object, form: str, query: str | None, row: Row | None = None) -> None:
    """Prints it; `row` makes a table's row of one object where no query has chosen the columns."""
    data = _sorted(answer)
    if query:
        data = select(data, query)
        if data is None and form in ("table", "tsv"):
            return
    if form == "none":
        text = ""
    elif form == "table":
        text = table(data, None if query else row)
    elif form == "tsv":
        text = tsv(data)
    else:
        text = json.dumps(data, indent=2, ensure_ascii=False)
        if form == "jsonc" and sys.stdout.isatty() and "NO_COLOR" not in os.environ:
            text = _TOKEN.sub(_coloured, text)
    if text:
        print(text)


def select(data: object, query: str) -> Any:
    """What a JMESPath query finds; a query that is none says where."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        return jmespath.search(query, data)
    except JMESPathError as error:
        first = str(error).splitlines()[0]
        raise UsageError(f"--query {query!r} is not a JMESPath, or does not match: {first}") from None


def table(data: object, row: Row | None = None) -> str:
    """Columns with a line below their names; a column in which any object has another one is left out."""
    items = [item for item in (data if isinstance(data, list) else [data]) if item is not None]
    nested = {name for item in items if isinstance(item, dict) for name in item if isinstance(item[name], (dict, list))}
    rows = [dict(row(item)) if row and isinstance(item, dict) else _row(item, nested) for item in items]
    names = list(dict.fromkeys(name for cells in rows for name in cells))
    if not names:
        return ""
    from petctl.cli.terminal.text import table as aligned

    texts = [[_cell(cells.get(name)) for name in names] for cells in rows]
    widths = [max(len(cells[k]) for cells in (names, *texts)) for k in range(len(names))]
    return aligned(names, [["-" * width for width in widths], *texts])


def tsv(data: object) -> str:
    """Values with tabs between them, a line for each object; what is nested is counted or empty."""
    items = data if isinstance(data, list) else [data]
    return "\n".join(_line(item) for item in items)


def _line(item: object) -> str:
    values: Sequence[object] = [item]
    if isinstance(item, dict):
        values = list(item.values())
    elif isinstance(item, list):
        values = item
    return "\t".join(_field(value) for value in values)


def _field(value: object) -> str:
    if isinstance(value, list):
        return str(len(value))
    if isinstance(value, dict):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _row(item: object, nested: set[str]) -> dict[str, object]:
    if isinstance(item, dict):
        names = [name for name in item if name not in nested and name not in _UNSEEN]
        return {name[:1].upper() + name[1:]: item[name] for name in names}
    if isinstance(item, list):
        return {f"Column{number}": value for number, value in enumerate(item, 1)}
    return {"Result": item}


def _cell(value: object) -> str:
    return "" if value is None else str(value)


def _sorted(value: object) -> Any:
    """As Azure's tools give them: keys in the order of the alphabet, whatever made the object."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value


def _coloured(found: re.Match[str]) -> str:
    return f"{_COLOURS[found.lastgroup or 'end']}{found[0]}{_COLOURS['end']}"
