"""The supervisor's pen: appends events at once, and keeps status.json a picture of the moment.

The picture is replaced atomically, and the last one is always written: it has room of its own. Trouble with the disk
costs the record, never the job. When a picture is made is `controller/status/journal.py`'s.
"""

from __future__ import annotations

import logging
from typing import Any, Dict

from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import find_status, write_status
from petctl.controller.status.journal import Chronicle
from petctl.controller.status.records import append_event, first_status, read_events
from petctl.errors import is_no_room
from petctl.job.record import JobRecord

log = logging.getLogger("petctl.supervisor")


class Recorder(Chronicle):
    """One job's chronicle, in its directory."""

    def __init__(self, directory: JobDirectory, record: JobRecord) -> None:
        super().__init__(find_status(directory) or first_status(record), read_events(directory.events))
        self.directory = directory
        self._full = False  # the disk was, when last written to

    def put_event(self, event: Dict[str, Any]) -> None:
        try:
            append_event(self.directory.events, event)
        except OSError as error:
            self._complain(f"cannot record an event ({error}): {event['sentence']}", error)

    def put_status(self, last: bool) -> bool:
        try:
            write_status(self.directory, self.status, reserved=last)
        except OSError as error:
            self._complain(f"cannot record the status: {error}", error)
            return False
        self._full = False
        return True

    def _complain(self, sentence: str, error: OSError) -> None:
        """Once about a full disk, on which the log is too; any other trouble each time."""
        full = is_no_room(error)
        if full and not self._full:
            log.error("%s; nothing but the end is recorded until there is space", sentence)
        elif not full:
            log.error("%s", sentence)
        self._full = full
