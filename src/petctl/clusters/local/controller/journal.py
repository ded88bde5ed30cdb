"""The journal of a local job: appends events at once, keeps status.json up to date, and writes the outcome once.

The status is replaced atomically, and the last one is always written: it has room of its own. Trouble with the disk
costs the record, never the job.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Dict, Mapping, Optional

from petctl.clusters.local.job_directory import JobDirectory, write_json, write_once
from petctl.clusters.local.record import find_status
from petctl.controller.journals.journal import Journal
from petctl.controller.journals.records import first_status
from petctl.errors import is_no_room
from petctl.files import read_json_or_none
from petctl.job.events import append_event, read_events
from petctl.job.record import JobRecord
from petctl.rendezvous.core.messages import Outcome, decode_outcome, encode

log = logging.getLogger(__name__)


class DirectoryJournal(Journal):
    """One job's journal, in its directory."""

    def __init__(self, directory: JobDirectory, record: JobRecord) -> None:
        super().__init__(find_status(directory) or first_status(record), read_events(directory.events))
        self.directory = directory
        self.outcome = self._read_outcome()
        self._full = False  # the disk was, when last written to

    def put_event(self, event: Dict[str, Any]) -> None:
        try:
            append_event(self.directory.events, event)
        except OSError as error:
            self._complain(f"cannot record an event ({error}): {event['sentence']}", error)

    def put_status(self, last: bool) -> bool:
        try:
            write_json(self.directory.status, self.status.pack(), reserved=last)
        except OSError as error:
            self._complain(f"cannot record the status: {error}", error)
            return False
        self._full = False
        return True

    def put_outcome(self, outcome: Outcome, facts: Mapping[str, Any]) -> Outcome:
        write_once(self.directory.outcome, {**encode(outcome), "finished": time.time()})
        return self._read_outcome() or outcome

    def _read_outcome(self) -> Optional[Outcome]:
        data = read_json_or_none(self.directory.outcome)
        return decode_outcome(data) if data is not None else None

    def cancelled(self) -> Optional[bool]:
        if not self.directory.cancel.exists():
            return None
        return bool((read_json_or_none(self.directory.cancel) or {}).get("kill"))

    def _complain(self, sentence: str, error: OSError) -> None:
        """Once about a full disk, on which the log is too; any other trouble each time."""
        full = is_no_room(error)
        if full and not self._full:
            log.error("%s; nothing but the end is recorded until there is space", sentence)
        elif not full:
            log.error("%s", sentence)
        self._full = full
