"""What mpirun says when it fails: whom it blames, and its own sentence where nobody is to blame. Pure.

Its reports are blocks between lines of dashes or stars. Those that name a rank are only needed where the rank's own
node could not tell its end; the others are about mpirun itself: too few slots, a daemon that did not start or was lost.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

_RULE = re.compile(r"^[-*]{20,}\s*$", re.MULTILINE)
_EXITED = re.compile(r"Process name: \[\S+?,(?P<rank>\d+)\] Exit code: (?P<code>\d+)")
_SIGNALLED = re.compile(r"process rank (?P<rank>\d+) with PID \d+ on node \S+ exited on signal (?P<signal>\d+)")
_ABORTED = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d+) in communicator .+?with errorcode (?P<code>-?\d+)")
_NOISE = re.compile(r"Primary job +terminated normally|WARNING: ")
_LINES = 30
_LONGEST = 500  # characters of a message


class Blame(NamedTuple):
    """Why mpirun failed. `rank` is None where it is about mpirun itself."""

    rank: Optional[int]
    code: int  # as a shell says it
    signal: int
    message: str
    story: str


def read_words(text: str, code: int) -> Blame:
    """What its stderr says, given its exit code."""
    flat = " ".join(text.split())
    story = "\n".join([line for line in text.splitlines() if line.strip()][-_LINES:])
    for pattern in (_ABORTED, _SIGNALLED, _EXITED):
        match = pattern.search(flat)
        if match:
            found = match.groupdict()
            number = int(found.get("signal") or 0)
            exit_code = 128 + number if number else int(found.get("code") or code) & 255
            number = number or (exit_code - 128 if 128 < exit_code < 160 else 0)
            message = "it called MPI_Abort" if pattern is _ABORTED else ""
            return Blame(int(found["rank"]), exit_code or code, number, message, story)
    return Blame(None, code, 0, _sentence(text), story)


def _sentence(text: str) -> str:
    """The first thing that it says which is not only a remark: a paragraph of a report, or a line of anything else."""
    blocks = [block.strip() for block in _RULE.split(text) if block.strip()]
    block = next((block for block in blocks if not _NOISE.match(block)), "")
    first = block.split("\n\n" if _RULE.search(text) else "\n")[0]
    return " ".join(first.split())[:_LONGEST]
