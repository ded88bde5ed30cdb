"""What to run: the `Job`, from a file, from the command line or from Python, and back to text.

    job.py       the model; its parts are in command.py, size.py, quantities.py, retries.py, values.py; fields.py
    pods.py      ... and volumes.py: what it says about pods
    read.py      files and mappings in, by way of document.py, yaml_text.py, json_text.py, fill.py
    write.py     mappings and YAML out
    batchai/     job files of Batch AI in
    problems.py  everything that is wrong with a job, at once

Where a job runs is `petctl.clusters`' business, and what becomes of it `petctl.jobs`'. Importing this package does not
import PyYAML.
"""

from petctl.job.command import Command, JobFile, classify_command
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.job import IN_PLACE, Job, Rendezvous
from petctl.job.quantities import format_bytes, format_duration, parse_bytes, parse_duration
from petctl.job.size import Size, parse_size

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
