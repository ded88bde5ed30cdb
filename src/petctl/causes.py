"""Failures that have a name: finds them in what a worker wrote, and in how it ended. What they look like is data, in
`causes.ini`.

    find(text)              the name of the first known cause that a line of the text shows, or ""
    ended(signal, code)     the same for an end that speaks for itself
    scan(text)              every line that shows a cause, with its name

Pure, but for reading that file once. Which text counts is the caller's choice: `agent/health/root_cause.py` for the
worker that failed first, `jobs/diagnosis.py` for all logs of a job.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Dict, Iterator, List, NamedTuple, Sequence, Tuple

HANG, PREPARE, HOST_MEMORY, MISSING_MODULE = "hang", "prepare", "host-out-of-memory", "missing-module"
TRANSIENT = "transient"  # the group of those that may not come again
_REACH = ".{0,400}"
_LITTLE = re.compile(r"\\.|\[[^]]*\]")  # what stands for one character, and is not that one
_GROUP = re.compile(r"\([^()]*\)[?*+]?")
_NOT_PLAIN = re.compile(r".[?*]|.\{[^}]*\}|[\0^$.+]")


class Sign(NamedTuple):
    """One way to see a cause in a line. One of `words` is in every line that it fits: looking for those is quick."""

    words: Sequence[str]
    pattern: str


class Cause(NamedTuple):
    """One section of the file; on nodes only what it takes to find it."""

    name: str
    says: str
    advice: str
    transient: bool
    lasting: bool
    signs: Sequence[Sign]
    signals: Sequence[str]
    exits: Sequence[int]

    def lines(self, text: str) -> Iterator[Tuple[int, int]]:
        """Where the lines of a text are that show it."""
        for words, pattern in self.signs:
            if not any(word in text for word in words):
                continue
            for match in re.finditer(pattern, text, re.MULTILINE):
                start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.start())
                yield start, len(text) if end < 0 else end


@lru_cache(maxsize=1)
def known() -> Dict[str, Cause]:
    """All causes by name, in the order in which they are looked for."""
    import configparser
    import pkgutil

    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read_string((pkgutil.get_data("petctl", "causes.ini") or b"").decode())
    return {name: _cause(name, dict(parser[name])) for name in parser.sections()}


def _cause(name: str, said: Dict[str, str]) -> Cause:
    return Cause(
        name,
        said.get("says", ""),
        said.get("advice", ""),
        said.get(TRANSIENT) == "yes",
        said.get("lasting") == "yes",
        [Sign(_words(line), line.replace(".*", _REACH)) for line in said.get("match", "").splitlines() if line],
        said.get("signals", "").split(),
        [int(code) for code in said.get("exit", "").split()],
    )


def _words(pattern: str) -> List[str]:
    """Of each alternative the longest text that must be in whatever it fits; empty where there is none."""
    plain, groups = _LITTLE.sub("\0", pattern), 1
    while groups:
        plain, groups = _GROUP.subn("\0", plain)
    return [max(_NOT_PLAIN.split(part), key=len) for part in plain.split("|")]


def find(text: str) -> str:
    """The first cause, in the order of the file, that a line of this text shows; empty: none."""
    return next((cause.name for cause in known().values() if next(cause.lines(text), None)), "")


def ended(signal: str, code: int) -> str:
    """What this end alone says; a shell tells the signal that ended its command as 128 and its number."""
    for cause in known().values():
        if signal in cause.signals or (not signal and code in cause.exits):
            return cause.name
    return ""


def scan(text: str) -> List[Tuple[int, int, str]]:
    """(start, end, cause) of every line that shows one, in the order of the text; each line has one cause."""
    found: Dict[int, Tuple[int, int, str]] = {}
    for cause in known().values():
        for start, end in cause.lines(text):
            found.setdefault(start, (start, end, cause.name))
    return sorted(found.values())


def transient() -> Tuple[str, ...]:
    """The names of those that may not come again."""
    return tuple(cause.name for cause in known().values() if cause.transient)


@lru_cache(maxsize=1)
def lasting() -> Tuple[str, ...]:
    """The names of those that would come again as they are."""
    return tuple(cause.name for cause in known().values() if cause.lasting)
