"""A status as it goes over the wire: what thousands of nodes have in common is said once.

    rounds[].blocks    {"0": [0, 8], "1": [8, 8], ...}   ->  [["0:1023", 0, 8]]
    nodes[].ranks      [8, 9, ..., 15]                    ->  "8:15"; fields at their default are left out
    progress.ranks     one object per rank                ->  a column per field, equal neighbours as [value, count]

A colon cannot be part of a node's name. 10,000 nodes of 8 ranks and 100 rounds fit in one frame. Pure.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

_NODE: Dict[str, Any] = {"address": "", "rank": None, "ranks": [], "restarts": 0, "pid": 0, "sentence": ""}
_RANK = ("rank", "node", "step", "steps_per_second")


def unpack(packed: Any) -> Dict[str, Any]:
    """The fields of a status from its short form."""
    status = dict(packed)
    status["nodes"] = [
        {**row, "ranks": list(_numbers(row["ranks"]))} if "ranks" in row else row for row in status.get("nodes", ())
    ]
    progress = status.get("progress")
    if progress:
        columns = progress["ranks"]
        ranks = [list(_numbers(columns["rank"])), *(list(_values(columns[name])) for name in _RANK[1:])]
        status["progress"] = {**progress, "ranks": [dict(zip(_RANK, row)) for row in zip(*ranks)]}
    return status


def pack_node(row: Mapping[str, Any]) -> Dict[str, Any]:
    """The short form of a node's fields."""
    short = {name: value for name, value in row.items() if name not in _NODE or value != _NODE[name]}
    if "ranks" in short:
        short["ranks"] = _ranges(short["ranks"])
    return short


def pack_progress(progress: Mapping[str, Any]) -> Dict[str, Any]:
    """The short form of the fields of progress."""
    rows = progress["ranks"]
    columns: Dict[str, Any] = {name: _runs(getattr(row, name) for row in rows) for name in _RANK[1:]}
    return {**progress, "ranks": {"rank": _ranges(row.rank for row in rows), **columns}}


def pack_members(members: Mapping[str, Sequence[int]]) -> List[Tuple[str, int, int]]:
    """Node -> first rank, number of ranks; in its short form, made once, since a job has many rounds."""
    blocks: List[Tuple[List[str], int, int]] = []
    for name, (first, count) in members.items():
        if blocks:
            names, start, each = blocks[-1]
            if each == count and first == start + each * len(names) and _follows(names[-1], name):
                names.append(name)
                continue
        blocks.append(([name], first, count))
    return [(names[0] if len(names) == 1 else f"{names[0]}:{names[-1]}", start, each) for names, start, each in blocks]


def members_in(blocks: Iterable[Tuple[str, int, int]]) -> Dict[str, List[int]]:
    """The long form."""
    members: Dict[str, List[int]] = {}
    for names, first, count in blocks:
        start, _, end = names.partition(":")
        for place, name in enumerate(map(str, range(int(start), int(end) + 1)) if end else [start]):
            members[name] = [first + place * count, count]
    return members


def _follows(name: str, later: str) -> bool:
    return name.isdigit() and later.isdigit() and later == str(int(name) + 1) and name == str(int(name))


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as "0:7,9"."""
    found: List[List[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{low}:{high}" if high > low else str(low) for low, high in found)


def _numbers(text: str) -> Iterator[int]:
    for part in filter(None, text.split(",")):
        low, _, high = part.partition(":")
        yield from range(int(low), int(high or low) + 1)


def _runs(values: Iterable[Any]) -> List[Any]:
    """Equal neighbours as [value, count], a single one as itself."""
    found: List[List[Any]] = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return [run[0] if run[1] == 1 else run for run in found]


def _values(runs: Iterable[Any]) -> Iterator[Any]:
    for run in runs:
        value, count = run if isinstance(run, list) else (run, 1)
        for _ in range(count):
            yield value
