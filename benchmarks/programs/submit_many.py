"""Submits the jobs of a list through the Python API, each once: usage: submit_many.py IDS NOTES RAN.

What was accepted is noted, one line each. Killed at any moment it is simply started again: those without a note are
submitted under the same id, and `AlreadyExists` says of one that it had been accepted just then.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import petctl
from petctl.jobs import AlreadyExists

# Made with O_EXCL (set -C), so that a second run of the same job is seen.
COMMAND = 'set -C; echo ran > "{ran}/$PETCTL_JOB_ID" || echo "$PETCTL_JOB_ID" >> "{ran}.twice"; sleep {seconds}'


def main() -> None:
    """Submit what is left."""
    ids, notes, ran = (Path(word) for word in sys.argv[1:])
    done = (
        {line.split()[0] for line in notes.read_text().splitlines() if line.endswith(".")} if notes.exists() else set()
    )
    out = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, job_id in enumerate(ids.read_text().split()):
        if job_id in done:
            continue
        job = petctl.Job(shell=COMMAND.format(ran=ran, seconds=number % 10 / 10), name="short", code="none")
        word = "accepted"
        try:
            petctl.submit(job, id=job_id)
        except AlreadyExists:
            word = "known"
        os.write(out, f"{job_id} {word} {time.monotonic()} .\n".encode())


if __name__ == "__main__":
    main()
