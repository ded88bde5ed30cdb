"""The workers' log files: how they are named, and how the end of one is read.

    LOGDIR/round-0001/rank-0.out, rank-0.err, rank-0.error.json

Workers write them, `log_cap.py` cuts them, `log_follow.py` follows them, `uploader.py` sends them to a store in
segments:

    round-0001/rank-0.out.000000      the first MiB, .000001 the next
"""

from __future__ import annotations

import os
import re
from typing import Iterable, List, NamedTuple, Optional, Tuple

_ROUND = re.compile(r"round-(\d{4,})\Z")
_FILE = re.compile(r"rank-(\d+)\.(out|err)\Z")
_SEGMENT = re.compile(r"(.+)\.(\d{6,})\Z")

SEGMENT = 1 << 20  # bytes; in a store a log is kept in pieces of this size


class LogName(NamedTuple):
    """Which file this is; sorts in the order of rounds and ranks."""

    round: int
    rank: int
    stream: str


def round_directory(log_dir: str, number: int) -> str:
    """Where the files of a round are."""
    return os.path.join(log_dir, f"round-{number:04d}")


def log_file(log_dir: str, round_number: int, rank: int, stream: str) -> str:
    """What a worker's stdout (`out`) or stderr (`err`) is."""
    return os.path.join(round_directory(log_dir, round_number), f"rank-{rank}.{stream}")


def error_file(log_dir: str, round_number: int, rank: int) -> str:
    """Where torch's `record` leaves the exception of a worker."""
    return os.path.join(round_directory(log_dir, round_number), f"rank-{rank}.error.json")


def parse_round(name: str) -> Optional[int]:
    """The number of a round's directory, None for any other name."""
    match = _ROUND.match(name)
    return int(match.group(1)) if match else None


def parse_file(name: str) -> Optional[Tuple[int, str]]:
    """Rank and stream of a log file's name, None for any other name."""
    match = _FILE.match(name)
    return (int(match.group(1)), match.group(2)) if match else None


def segment_name(name: str, number: int) -> str:
    """What a stretch of a log file is called in a store."""
    return f"{name}.{number:06d}"


def parse_segment(name: str) -> Optional[Tuple[LogName, int]]:
    """Which file's which segment it is, from its path below the logs; None for any other name."""
    match = _SEGMENT.match(name)
    directory, _, file = match.group(1).rpartition("/") if match else ("", "", "")
    number, parsed = parse_round(directory), parse_file(file)
    if match is None or number is None or parsed is None:
        return None
    return LogName(number, *parsed), int(match.group(2))


def list_logs(log_dir: str) -> List[Tuple[LogName, str]]:
    """All log files there are, in the order of rounds and ranks, each with its path."""
    found: List[Tuple[LogName, str]] = []
    for directory, number in _rounds(log_dir):
        try:
            names = os.listdir(directory)
        except OSError:
            continue
        for name in names:
            parsed = parse_file(name)
            if parsed is not None:
                found.append((LogName(number, *parsed), os.path.join(directory, name)))
    return sorted(found)


def _rounds(log_dir: str) -> Iterable[Tuple[str, int]]:
    try:
        names = os.listdir(log_dir)
    except OSError:
        return
    for name in names:
        number = parse_round(name)
        if number is not None:
            yield os.path.join(log_dir, name), number


def read_end(path: str, limit: int) -> bytes:
    """The last `limit` bytes of a file that may be huge, missing or growing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, limit, max(0, size - limit))
    except OSError:
        return b""
    finally:
        os.close(fd)


def is_full(directory: str) -> bool:
    """Whether there is no room for another line."""
    try:
        return os.statvfs(directory).f_bavail == 0
    except OSError:
        return False


def dropped_marker(count: int) -> bytes:
    """The line that stands for what is gone."""
    return b"\n[petctl: %d bytes were dropped here to stay within log_cap]\n" % count
