"""Why a job failed, from all that is known of it: its status, its events, and everything that its workers wrote.

    diagnose(handle)              a job of any cluster, also one that still runs
    diagnose_log(name, file)      any log, without a job

What failures look like is data (`causes.ini`). The root cause is that of the worker that failed first, as its agent
has told it; a line of a log that looks like a failure may be one that the job got over, and is only listed. Logs are
read as a stream: what is kept of them does not grow with their size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from petctl import causes
from petctl.agent.health.root_cause import cause_of, from_stderr
from petctl.errors import PetctlError
from petctl.rendezvous.core.messages import NOT_MISSED

if TYPE_CHECKING:
    from petctl.clusters.base import LogLine
    from petctl.jobs.api import JobHandle
    from petctl.jobs.status import ErrorStatus, Status

LAST_LINES = 20
_AROUND = 2  # lines before and behind the one that shows a cause
_LONGEST = 400  # characters of a line in an excerpt
_BLOCK = 1 << 20
_GATHERED = 16384  # of each stream: there may be thousands
_END = 65536


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One known cause and where it shows."""

    cause: str
    says: str
    advice: str
    transient: bool
    ranks: list[int]
    count: int  # lines of logs that show it, or failures where none does
    excerpt: list[str]  # the newest of those lines, and those around it
    where: str


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: the root cause first, where it is a known one."""

    job: str
    state: str
    sentence: str
    failed: bool  # as a whole, or once so far while it goes on
    root: Finding | None
    findings: list[Finding]
    last_lines: list[str]  # of the worker that failed first, else of the last that wrote something
    unread: str = ""  # why logs are missing from this


def diagnose(handle: JobHandle) -> Diagnosis:
    """Looks at everything that there is of this job."""
    status = handle.status()
    error = status.error or (status.last_failure if status.state != "succeeded" else None)
    evidence = _Evidence(error.rank if error else None)
    unread = ""
    try:
        for event in handle.events():
            _take_event(event, evidence)
        for line in handle.logs(blocks=True):
            evidence.gather(line)
    except PetctlError as failure:
        unread = str(failure)
    evidence.read_gathered()
    for path in _preparations(status):
        with suppress(OSError), open(path, "rb") as file:
            for block in _blocks(file):
                evidence.read(block, path.name, None)
    root = _root(status, error, evidence)
    return Diagnosis(
        job=status.id,
        state=status.state,
        sentence=status.sentence,
        failed=error is not None or status.state in ("failed", "lost"),
        root=evidence.finding(root) if root else None,
        findings=evidence.findings(root),
        last_lines=evidence.last_lines,
        unread=unread,
    )


def diagnose_log(name: str, file: BinaryIO) -> Diagnosis:
    """Looks at one log alone, as if a worker had written it before it failed."""
    evidence, end = _Evidence(None), b""
    for block in _blocks(file):
        evidence.read(block, name, None)
        end = (end + block)[-_END:]
    message, traceback = from_stderr(end)
    root = cause_of(1, "", message, traceback, end)
    return Diagnosis(
        job="",
        state="",
        sentence=message,
        failed=True,
        root=evidence.finding(root) if root else None,
        findings=evidence.findings(root),
        last_lines=evidence.last_lines,
    )


class _Evidence:
    """What was seen so far, by cause."""

    def __init__(self, rank: int | None) -> None:
        self._rank = rank  # whose last lines are wanted
        self._ranks: dict[str, set[int]] = {}
        self._counts: dict[str, int] = {}
        self._excerpts: dict[str, tuple[str, list[str]]] = {}
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._gathered: dict[tuple[int, int, str], bytearray] = {}  # lines that were not read yet
        self._failed: list[str] = []  # causes of failures that were counted, oldest first

    def gather(self, line: LogLine) -> None:
        """Takes in a line, or many: those of one stream are read together, which is quick, and shows neighbours."""
        source = (line.round, line.rank, line.stream)
        text = self._gathered.setdefault(source, bytearray())
        text += line.text
        if len(text) >= _GATHERED:
            self._read_gathered(source)

    def read_gathered(self) -> None:
        """Reads what is left of that."""
        for source in list(self._gathered):
            self._read_gathered(source)

    def _read_gathered(self, source: tuple[int, int, str]) -> None:
        number, rank, stream = source
        self.read(bytes(self._gathered.pop(source)), f"round {number}, rank {rank}, {stream}", rank)

    def read(self, data: bytes, where: str, rank: int | None) -> None:
        """Takes in some lines of a log."""
        text = data.decode("utf-8", "replace").replace("\0", "")
        if self._rank is None or rank == self._rank:
            self._last.extend(text.splitlines()[-LAST_LINES:])
        for start, end, cause in causes.scan(text):
            self._note(cause, rank)
            self._excerpts[cause] = (where, _around(text, start, end))

    def failed(self, cause: str, rank: int | None, where: str, words: str) -> None:
        """Takes in a failure that was told; what logs say of it says more."""
        self._failed.append(cause)
        if cause not in self._counts:
            self._excerpts[cause] = (where, [line[:_LONGEST] for line in words.splitlines()[-2 * _AROUND :]])
        self._ranks.setdefault(cause, set()).update([] if rank is None else [rank])

    def _note(self, cause: str, rank: int | None) -> None:
        self._counts[cause] = self._counts.get(cause, 0) + 1
        self._ranks.setdefault(cause, set()).update([] if rank is None else [rank])

    @property
    def last_lines(self) -> list[str]:
        return [line[:_LONGEST] for line in self._last if line.strip()]

    def finding(self, name: str) -> Finding:
        """All that is known of one cause."""
        cause = causes.known()[name]
        where, excerpt = self._excerpts.get(name, ("", []))
        return Finding(
            cause=name,
            says=cause.says,
            advice=cause.advice,
            transient=cause.transient,
            ranks=sorted(self._ranks.get(name, ())),
            count=self._counts.get(name, 0) or self._failed.count(name),
            excerpt=excerpt,
            where=where,
        )

    def findings(self, root: str) -> list[Finding]:
        """The root cause, then those of other failures, the newest first, then what logs show."""
        seen = [name for name in causes.known() if name in self._counts]
        ordered = dict.fromkeys([*([root] if root else []), *reversed(self._failed), *seen])
        return [self.finding(name) for name in ordered]


def _take_event(event: dict[str, Any], evidence: _Evidence) -> None:
    failure = event.get("failure")
    if event.get("kind") == "failure" and isinstance(failure, dict) and failure.get("cause") in causes.known():
        words = str(failure.get("message") or event.get("sentence", ""))
        evidence.failed(failure["cause"], failure.get("rank"), f"node {failure.get('node')}", words)
    elif event.get("kind") == "lost" and event.get("why") not in NOT_MISSED:
        cause = causes.find(str(event.get("sentence", "")))
        if cause:
            evidence.failed(cause, None, f"node {event.get('node')}", str(event["sentence"]))


def _root(status: Status, error: ErrorStatus | None, evidence: _Evidence) -> str:
    """The name of the root cause, or an empty string."""
    if error is None:
        cause = "" if status.state in ("succeeded", "running", "cancelled") else causes.find(status.sentence)
        if cause:
            evidence.failed(cause, None, "the job's end", status.sentence)
        return cause
    cause = error.cause or cause_of(error.code, error.signal, error.message, error.traceback)
    if cause not in causes.known():  # nothing, or what a newer version knows
        return ""
    evidence.failed(cause, error.rank, f"rank {error.rank} on node {error.node}", error.traceback or error.message)
    return cause


def _preparations(status: Status) -> Iterable[Path]:
    return sorted(Path(status.directory, "logs").glob("prepare-*.out")) if status.directory else ()


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, many at a time; one that is longer than a block is cut."""
    rest = b""
    while data := file.read(_BLOCK):
        whole, newline, rest = (rest + data).rpartition(b"\n")
        if not newline and len(rest) > _BLOCK:
            whole, rest = rest, b""
        if whole:
            yield whole + newline
    if rest:
        yield rest


def _around(text: str, start: int, end: int) -> list[str]:
    """The line from `start` to `end`, with its neighbours."""
    before = text[max(0, start - _AROUND * _LONGEST) : start].splitlines()[-_AROUND:]
    behind = text[end + 1 : end + 1 + _AROUND * _LONGEST].splitlines()[:_AROUND]
    return [line[:_LONGEST] for line in (*before, text[start:end], *behind) if line.strip()]
