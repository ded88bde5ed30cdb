"""The process that looks after one local job: `python -m petctl.clusters.local.controller.supervisor JOBDIR`.

    lock -> epoch -> JobController (petctl.controller), with the parts of this machine

It outlives the command that started it. Killed at any moment, it is replaced by its standby, or else by a new one
that an agent starts, which takes up where the job's files and the nodes' reports say it is; the lock keeps it the
only one.

Standard library and petctl's own agent side only: its start-up is part of every job's first line.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path
from typing import Optional

from petctl.clusters.local.controller.journal import DirectoryJournal
from petctl.clusters.local.controller.local_nodes import LocalNodes
from petctl.clusters.local.controller.local_seat import LocalSeat
from petctl.clusters.local.controller.result_upload import Sending
from petctl.clusters.local.controller.spawn import LOCK_OPTION, take_over
from petctl.clusters.local.controller.standby import OPTION
from petctl.clusters.local.job_directory import JobDirectory, raise_epoch
from petctl.clusters.local.queue.node_quota import NodeQuota
from petctl.clusters.local.queue.queue import look
from petctl.clusters.local.record import find_record, find_status
from petctl.controller.job_controller import JobController
from petctl.controller.seat import REQUEUED
from petctl.errors import PetctlError
from petctl.files import release, wait_for_lock
from petctl.job.record import JobRecord
from petctl.log_setup import log_to_stderr

log = logging.getLogger("petctl.clusters.local.controller.supervisor")  # it runs as __main__


async def _control(directory: JobDirectory, record: JobRecord, epoch: int) -> int:
    quota, journal = NodeQuota(directory, record), DirectoryJournal(directory, record)
    nodes = LocalNodes(directory, journal, record, quota)
    seat = LocalSeat(directory, nodes.request, quota)
    signing = Sending(directory, record, journal.event, journal.touch)
    return await JobController(record, epoch, journal, nodes, seat, signing).run()


def supervise(path: Path, standby: bool = False, lock: Optional[int] = None) -> int:
    """Looks after the job unless somebody does already; as a standby, as soon as nobody does. `lock`: the
    supervisor's, from whoever has started it."""
    directory = JobDirectory(path)
    record = find_record(directory)
    if record is None:
        print(f"petctl: {path} is not the directory of a job", file=sys.stderr)
        return 2
    held = wait_for_lock(directory.supervisor_lock) if standby else take_over(lock, directory.supervisor_lock)
    if held is None:
        return 0
    status = find_status(directory)
    if status is not None and status.finished:
        # It ended, or was buried, before an agent's request for a supervisor was carried out; or its supervisor was
        # killed before it could start those whose turn it was.
        look(directory.home, record.cluster)
        return 0
    code = asyncio.run(_control(directory, record, raise_epoch(directory)))
    if code == REQUEUED:
        release(held)
        look(directory.home, record.cluster)  # it may be due again
    return 0


def main() -> int:
    """Entry of the detached process; what it prints goes to supervisor.log."""
    words = sys.argv[1:]
    lock = int(words[2]) if words[1:2] == [LOCK_OPTION] and words[2:] and words[2].isdigit() else None
    if len(words) != (1 if lock is None else 3) + (OPTION in words):
        print(
            f"usage: python -m petctl.clusters.local.controller.supervisor JOBDIR [{OPTION}|{LOCK_OPTION} N]",
            file=sys.stderr,
        )
        return 2
    # The shell that detached us ignores these on our behalf; workers must get them as the user's own programs do.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    log_to_stderr(logging.INFO)
    try:
        return supervise(Path(words[0]), OPTION in words, lock)
    except PetctlError as error:
        log.error("%s", error)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
