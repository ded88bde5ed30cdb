"""Starting a job's supervisor: by its submitter, or much later by whoever finds that it is due.

Whoever that is, the supervisor runs in its submitter's environment (`start_environment.py`). The starter takes the
supervisor's lock and hands it on, so that a job whose supervisor is coming up is never taken for one that has none, and
two starters cannot start two.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import List, Optional

from petctl.clusters.local.commands import start_apart
from petctl.clusters.local.controller.start_environment import start_words
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import LocalRequest, find_record
from petctl.files import release, take_lock

LOCK_OPTION = "--lock"


def start_supervisor(directory: JobDirectory, ended: bool = False) -> bool:
    """Starts it, unless it runs already. One of a job that is over only if `ended`, for nodes that need to hear it."""
    try:
        lock = take_lock(directory.supervisor_lock)
    except FileNotFoundError:  # the job was removed
        return False
    if lock is None:
        return False
    started = False
    try:
        record = find_record(directory)
        if record is None or (directory.outcome.exists() and not ended):
            return False
        if not directory.nodes.exists():  # the last one was killed before it started anything: this one begins anew
            directory.coordinator.unlink(missing_ok=True)
        start_detached([*LocalRequest.of(record).supervisor, LOCK_OPTION, str(lock)], directory, lock)
        started = True
    finally:
        (os.close if started else release)(lock)
    return True


def start_detached(argv: List[str], directory: JobDirectory, lock: int) -> None:
    """In its submitter's environment."""
    kept = start_words(directory)
    start_apart(argv, directory.supervisor_log, kept["environment"], lock, kept["umask"])


def take_over(lock: Optional[int], path: Path) -> Optional[int]:
    """The supervisor's own hold on the lock that its starter has handed on; None when somebody else was quicker.

    Its own: a process that the starter forked in that moment may share what was handed on, for as long as it lives.
    """
    if lock is not None:
        try:
            release(lock)
        except OSError:
            pass  # a number that means nothing here
    return take_lock(path)
