"""What to run: the `Job`, as users say it; from the command line, from Python, or from a file (`petctl.job.file`).

job.py       the model; its parts are in command.py, quantities.py (also sizes), retries.py, values.py,
             roles.py, folders.py (also outputs), shape.py
resources.py, volumes.py   what each of its nodes has;   options.py   what it says to one kind of cluster alone
problems.py  everything that is wrong with a job, at once
"""

from petctl.job.spec.command import Command, JobFile, classify_command
from petctl.job.spec.job import IN_PLACE, Job, Rendezvous
from petctl.job.spec.quantities import Size, format_bytes, format_duration, parse_bytes, parse_duration, parse_size
from petctl.job.spec.resources import Resources

__all__ = [
    "IN_PLACE",
    "Command",
    "Job",
    "JobFile",
    "Rendezvous",
    "Resources",
    "Size",
    "classify_command",
    "format_bytes",
    "format_duration",
    "parse_bytes",
    "parse_duration",
    "parse_size",
]
