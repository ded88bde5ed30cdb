"""Which failures a job is restarted from: exit codes, ranges of them, and words: known causes, or groups of them.

    retry_on: [3, 128-255, signals, network, transient]       on the command line also 3,128-255,signals,network

A job holds them in one order and one way of writing. What a failure costs is the rendezvous' business; how causes are
known, that of `petctl.causes`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from petctl import causes
from petctl.job.spec import values
from petctl.job.spec.problems import Problems, did_you_mean, shown, wrong

Codes = tuple[int, int]  # the lowest and the highest, both included

SIGNALS = "signals"
_SIGNAL_CODES = (129, 192)  # a worker that was killed by signal N has the code 128 + N
_CODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?", re.ASCII)
_EXPECTED = "expected exit codes from 1 to 255, such as 3 or 128-255, signals, transient or the name of a cause"


def retry_on(value: object) -> list[str]:
    """Codes in rising order, then words; none: every failure is restarted from."""
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        value = [value]
    if not isinstance(value, Sequence) or isinstance(value, (bytes, bytearray)):
        raise wrong(f"expected a list of exit codes and causes, got {shown(value)}")
    codes: set[Codes] = set()
    words: set[str] = set()
    problems = Problems()
    for position, entry in enumerate(value):
        with problems.at(position):
            for word in values.text(entry).replace(",", " ").split():
                if word in _groups() or word in causes.known():
                    words.add(word)
                else:
                    codes.add(_codes(word))
    problems.check()
    return [_written(*pair) for pair in sorted(codes)] + sorted(words)


def retried_codes(words: Iterable[str]) -> tuple[Codes, ...]:
    """What `retry_on` gave, as ranges of exit codes."""
    codes = [_SIGNAL_CODES if word == SIGNALS else _codes(word) for word in words if not _is_cause(word)]
    return tuple(codes)


def retried_causes(words: Iterable[str]) -> tuple[str, ...]:
    """... and as names of causes, each once."""
    named = [causes.transient() if word == causes.TRANSIENT else (word,) for word in words if _is_cause(word)]
    return tuple(dict.fromkeys(name for names in named for name in names))


def _groups() -> tuple[str, ...]:
    return SIGNALS, causes.TRANSIENT


def _is_cause(word: str) -> bool:
    return word != SIGNALS and not word[0].isdigit()


def _codes(word: str) -> Codes:
    match = _CODES.fullmatch(word)
    if not match:
        raise wrong(f"{_EXPECTED}, got {shown(word)}{did_you_mean(word, [*_groups(), *causes.known()])}")
    low, high = int(match[1]), int(match[2] or match[1])
    if not 1 <= low <= high <= 255:
        raise wrong(f"{_EXPECTED}, got {shown(word)}")
    return low, high


def _written(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"
