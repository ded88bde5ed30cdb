"""The coordinator of one job in a pod: the same `JobController` as on the user's machine, with a pod's parts.

It starts no node and knows no interface of a cluster: nodes come by themselves, named by their index. Killed, it is
started again in the same container (`init_process.py`) and remembers what is in the container (`state_dir.py`). In
another container it knows only what the nodes tell: which round runs, what was spent, how many nodes are wanted, and
the rounds before, which some of them keep for it; the time limit counts from its own start there.
"""

from __future__ import annotations

import asyncio
import logging
import os

from petctl.controller.job_controller import JobController
from petctl.controller.job_files import Material
from petctl.controller.journals.container import ContainerJournal
from petctl.controller.journals.event_printer import Printer
from petctl.controller.journals.records import first_status
from petctl.controller.options import CoordinateOptions
from petctl.controller.platform_nodes import PlatformNodes
from petctl.controller.pod_seat import PodSeat
from petctl.controller.seat import OVER
from petctl.controller.signing import Signing
from petctl.controller.state_dir import Memory
from petctl.log_setup import log_to_stderr
from petctl.storage.core.grants import Grants

EPOCHS = 1_000_000  # of one container: its own counter is below that, the counter of containers above
PRINT_WAIT = 5.0  # seconds for a reader to take the last events
STOP_WAIT = 0.5  # ... of a coordinator that was asked to stop: there will be another


def run(options: CoordinateOptions, start: int, ready: int) -> int:
    """The process: `start` is its number in this container, `ready` is written to when it listens."""
    log_to_stderr(logging.INFO)
    material = Material(options.job)
    printer = Printer(torn=start > 0)
    code = asyncio.run(_coordinate(options, material, start, ready, printer))
    printer.finish(PRINT_WAIT if code == OVER else STOP_WAIT)
    return code


async def _coordinate(options: CoordinateOptions, material: Material, start: int, ready: int, printer: Printer) -> int:
    record, memory = material.record, Memory(options.state)
    epoch = (options.replacement + 1) * EPOCHS + start
    archive = str(memory.archive) if material.join_code(memory.archive) else ""
    journal = ContainerJournal(first_status(record), epoch, memory.events, options.message, printer)
    nodes = PlatformNodes(
        record.id,
        record.config,
        bool(record.request.get("numbered", True)),
        memory,
        material.wanted,
        empty=options.replacement == 0 or options.nobody,
        gone=options.nobody and start == 0,  # by the next start in this container some may run
    )
    grants = material.grants()
    signing = Signing(bool(grants), lambda: Grants(grants), journal.event, journal.touch)
    seat = PodSeat(options, start, material, archive, journal, lambda: os.write(ready, b"."))
    return await JobController(record, epoch, journal, nodes, seat, signing).run()
