"""Starting a job's supervisor: by its submitter, or much later by whoever finds that it is due.

Whoever that is, the supervisor runs in its submitter's environment, which therefore lies in the job's directory,
readable by its user alone, until the job has a node. The starter takes the supervisor's lock and hands it on, so that
a job whose supervisor is coming up is never taken for one that has none, and two starters cannot start two.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from petctl.clusters.local.argv import supervisor_environment
from petctl.clusters.local.jobdir import JobDirectory, read_json, sync, take_lock, write_json

LOCK_OPTION = "--lock"


def keep_environment(directory: JobDirectory) -> None:
    """Writes down what the supervisor is to be started with, as it is here and now; its directory is for the caller to
    sync."""
    umask = os.umask(0o077)
    os.umask(umask)
    words = {"environment": supervisor_environment(os.environ), "umask": umask}
    write_json(directory.start, words, mode=0o600)
    sync(directory.start)


def start_supervisor(directory: JobDirectory) -> bool:
    """Starts it, unless somebody looks after the job already or it is over."""
    try:
        lock = take_lock(directory.supervisor_lock)
    except FileNotFoundError:  # the job was removed
        return False
    if lock is None:
        return False
    try:
        record = read_json(directory.job)
        if record is None or directory.outcome.exists():
            return False
        if not directory.nodes.exists():  # the last one was killed before it started anything: this one begins anew
            directory.coordinator.unlink(missing_ok=True)
        start_detached([*record["plan"]["supervisor"], LOCK_OPTION, str(lock)], directory, lock)
        return True
    finally:
        os.close(lock)


def bring_back(directory: JobDirectory, record: Mapping[str, Any]) -> None:
    """Starts the supervisor of a job whose nodes, in their containers, cannot do so themselves; unless it has one."""
    lock = take_lock(directory.supervisor_lock)
    if lock is not None:
        try:
            start_detached([*record["plan"]["supervisor"], LOCK_OPTION, str(lock)], directory, lock)
        finally:
            os.close(lock)


def start_detached(argv: List[str], directory: JobDirectory, lock: int) -> None:
    """Through a shell that ends at once, so that the supervisor is nobody's child and never a zombie of ours."""
    kept = read_json(directory.start) or {}
    with open(directory.supervisor_log, "ab", buffering=0) as output:
        subprocess.run(
            ["/bin/sh", "-c", '"$@" &', "sh", *argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=_environment(kept),
            umask=int(kept.get("umask", -1)),
            start_new_session=True,
            pass_fds=(lock,),
            check=True,
        )


def take_over(lock: Optional[int], path: Path) -> Optional[int]:
    """The supervisor's own hold on the lock that its starter has handed on; None when somebody else was quicker.

    Its own: a process that the starter forked in that moment may share what was handed on, for as long as it lives.
    """
    if lock is not None:
        try:
            fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)
        except OSError:
            pass  # a number that means nothing here
    return take_lock(path)


def _environment(kept: Mapping[str, Any]) -> Dict[str, str]:
    environment = kept.get("environment")
    return dict(environment) if isinstance(environment, dict) else supervisor_environment(os.environ)
