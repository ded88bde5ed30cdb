"""The life of a job as its user sees it: submit, find, follow, scale, cancel, remove. The Python API.

    api.py       submit, resubmit, get, render; JobHandle
    listing.py   list_jobs: of one cluster, or of all that answer
    status.py    Status: one model for every cluster
    diagnosis.py why a job failed, as far as that is known by a name
    names.py     ids such as mnist-3f9k, and finding a job by a part of one
    registry.py  a cache of ended jobs, so that `list` stays quick; can be deleted at any time
    secrets.py   set, list and remove secrets

Where and how a job runs is `petctl.clusters`. Nothing is imported until it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from petctl.clusters.base import AlreadyExists as AlreadyExists
    from petctl.clusters.base import LogLine as LogLine
    from petctl.jobs.api import JobHandle as JobHandle
    from petctl.jobs.api import get as get
    from petctl.jobs.api import render as render
    from petctl.jobs.api import resubmit as resubmit
    from petctl.jobs.api import submit as submit
    from petctl.jobs.listing import list_jobs as list_jobs
    from petctl.jobs.status import Status as Status

_LAZY = {
    "AlreadyExists": "petctl.clusters.base",
    "JobHandle": "petctl.jobs.api",
    "LogLine": "petctl.clusters.base",
    "Status": "petctl.jobs.status",
    "get": "petctl.jobs.api",
    "list_jobs": "petctl.jobs.listing",
    "render": "petctl.jobs.api",
    "resubmit": "petctl.jobs.api",
    "submit": "petctl.jobs.api",
}

__all__ = ["AlreadyExists", "JobHandle", "LogLine", "Status", "get", "list_jobs", "render", "resubmit", "submit"]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'petctl.jobs' has no attribute {name!r}")
