"""What to run: the `Job`, from a file, from the command line or from Python, and back to text.

    job.py       the model; its parts are in command.py, size.py, quantities.py, retries.py, values.py, roles.py,
                 folders.py, outputs.py, fields.py
    pods.py      ... and volumes.py: what it says about pods
    problems.py  everything that is wrong with a job, at once
    file/        job files in and out, YAML and JSON, with the place of every mistake

Where a job runs is `petctl.clusters`' business, and what becomes of it `petctl.jobs`'; job files of Batch AI are read
by `petctl.compat.batchai.jobfile`. Importing this package does not import PyYAML.
"""

from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.spec.command import Command, JobFile, classify_command
from petctl.job.spec.job import IN_PLACE, Job, Rendezvous
from petctl.job.spec.quantities import format_bytes, format_duration, parse_bytes, parse_duration
from petctl.job.spec.size import Size, parse_size

__all__ = [
    "IN_PLACE",
    "Command",
    "Job",
    "JobFile",
    "Rendezvous",
    "Size",
    "classify_command",
    "format_bytes",
    "format_duration",
    "job_from_dict",
    "job_to_dict",
    "job_to_yaml",
    "parse_bytes",
    "parse_duration",
    "parse_size",
    "read_job",
]
