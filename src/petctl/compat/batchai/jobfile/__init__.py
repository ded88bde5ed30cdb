"""Batch AI job files in: JSON or YAML of Azure Batch AI's shape, to a `Job`.

    read.py       the file -> Prepared: the Job, what has no effect here, its secrets; or every problem at once
    compile.py    the checked properties -> Job
    fields.py     every field of a job file, as a shape (`petctl.job.spec.shape`)
    durations.py  how long a job may take, in all its spellings
    tools.py      the nine tool blocks -> launcher, command line, processes
    volumes.py    shares, containers, file servers -> directories, by a resolver that is handed in
    report.py     the file as the service would report it: every key, unset ones null

What the file says and a Job has no field for is its `options.batchai` (`layout.py`). Where a job runs, where
accounts are kept and who keeps secrets is not known here.
"""

from petctl.compat.batchai.jobfile.compile import JobFile, Names, own_name, without_secrets
from petctl.compat.batchai.jobfile.read import read_document, read_file, read_mapping, read_settings
from petctl.compat.batchai.jobfile.report import as_reported, volumes_as_reported
from petctl.compat.batchai.jobfile.volumes import Found, Resolver, Volume, mounts_of

__all__ = [
    "Found",
    "JobFile",
    "Names",
    "Resolver",
    "Volume",
    "as_reported",
    "mounts_of",
    "own_name",
    "read_document",
    "read_file",
    "read_mapping",
    "read_settings",
    "volumes_as_reported",
    "without_secrets",
]
