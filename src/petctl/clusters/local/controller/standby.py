"""A second process that waits for the supervisor to die, and then is the supervisor.

It has everything imported and sleeps on the supervisor's lock, which the system gives it in the moment the holder is
gone; nobody polls, and no agent is needed. So a job is looked after also while all of its nodes are down. Where the
two are killed together, the agents bring a supervisor back as before. A job that waits in line needs none: whoever
looks at the line starts its supervisor anew.

It is started a while after the job: the first line does not need it, and a job that is short would pay for a process
that has hardly come up when it ends. Where others wait for their turn jobs tend to be short, and it comes later still.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import Optional, Sequence

OPTION = "--standby"
FIRST_DELAY = 2.0  # seconds after a job's start
CROWDED_DELAY = 10.0  # ... while others wait in line
DELAY = 0.1  # ... and after that of a supervisor that had to step in
AGAIN = 1.0  # between the death of one and the start of the next


class Standby:
    """Keeps one in place for as long as the supervisor works."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = [*argv, OPTION]
        self._process: Optional[subprocess.Popen[bytes]] = None

    async def keep(self, delay: float) -> None:
        """Starts it, and another whenever it dies; ends with `dismiss`, after this task was cancelled."""
        await asyncio.sleep(delay)
        while True:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, cwd="/", start_new_session=True)
            await end_of(self._process.pid)
            self._process.wait()
            await asyncio.sleep(AGAIN)

    def dismiss(self) -> None:
        """The job is over and needs no other supervisor."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def end_of(pid: int) -> None:
    """Returns when the process has ended; a child is left for its parent to reap."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        ended = loop.create_future()
        loop.add_reader(descriptor, lambda: None if ended.done() else ended.set_result(None))
        await ended
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
