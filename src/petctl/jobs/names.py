"""Ids of jobs: short, readable, typed by hand. `mnist-3f9k` is the name and four characters that are hard to confuse.

Whether an id is taken is known by the cluster alone; this file only makes candidates, and finds the one job that a
part of an id can mean.
"""

from __future__ import annotations

import difflib
import re
import secrets
from collections.abc import Iterable
from pathlib import PurePath
from typing import NamedTuple

from petctl.errors import NotFound, UsageError
from petctl.job.spec import Job

ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"  # without 0 o 1 i l
TAIL = 4
LONGEST_DERIVED = 24
LONGEST_ID = 63
MOST_LISTED = 8
_ID = re.compile(rf"[a-z0-9](?:[a-z0-9_.-]{{0,{LONGEST_ID - 2}}}[a-z0-9])?")


def name_of(job: Job) -> str:
    """The job's own name, or one from its command: train.py -> train, -m pkg.tool -> tool."""
    if job.name:
        return job.name
    word = job.command.words[0]
    if job.command.kind == "module":
        word = word.rpartition(".")[2]
    elif job.command.kind == "shell":
        word = word.split()[0]
    stem = PurePath(word).name
    stem = stem[:-3] if stem.endswith(".py") else stem
    cleaned = re.sub(r"[^a-z0-9_.]+", "-", stem.lower()).strip("-_.")[:LONGEST_DERIVED].rstrip("-_.")
    return cleaned or "job"


def new_id(name: str) -> str:
    """A candidate; the cluster says whether it is free."""
    return f"{name}-{''.join(secrets.choice(ALPHABET) for _ in range(TAIL))}"


def checked_id(job_id: str) -> str:
    """An id of the caller's own choice; a cluster may have narrower rules."""
    if not _ID.fullmatch(job_id):
        raise UsageError(
            f"the id {job_id!r} must have 1 to {LONGEST_ID} lower-case letters, digits, '-', '_' and '.', "
            "and start and end with a letter or a digit"
        )
    return job_id


class Called(NamedTuple):
    """What jobs are to whoever asks: front ends have words of their own."""

    noun: str
    listing: str


JOBS = Called("job", "petctl list")


def find_id(reference: str, ids: Iterable[str], called: Called = JOBS) -> str:
    """The one id that is, begins with or ends with `reference`."""
    known = sorted(ids)
    if reference in known:
        return reference
    found = [name for name in known if reference and (name.startswith(reference) or name.endswith(reference))]
    if len(found) == 1:
        return found[0]
    if found:
        more = f" and {len(found) - MOST_LISTED} more" if len(found) > MOST_LISTED else ""
        raise UsageError(f"{reference!r} matches {', '.join(found[:MOST_LISTED])}{more}; give more of the id")
    near = difflib.get_close_matches(reference, known, n=3, cutoff=0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else f"; `{called.listing}` shows them all"
    raise NotFound(f"there is no {called.noun} {reference!r}{hint}")
