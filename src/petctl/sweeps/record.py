"""The directory of a sweep, $PETCTL_HOME/sweeps/NAME/: what was asked for, and what has happened.

    sweep.json     the points, the jobs made from them, the code that all of them run; written once
    limits.json    how many at once, which metric, when to stop: replaced when it is said anew
    events.jsonl   appended, by whoever drives the sweep or wishes something of it; the history is a fold over it
    lock           held (flock) by whoever drives it
    code.tar.gz    a link to the snapshot, so that it lives as long as the sweep
    driver.log     what a driver without a terminal had to say

A sweep is there when its directory has its name, which happens in one step. What events mean is not known here.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from petctl.errors import InternalError, NotFound, PetctlError, UsageError
from petctl.files import is_locked, make_private_directory, read_json_or_none, release, take_lock
from petctl.home import petctl_home, write_json
from petctl.job.events import append_event, parse_events
from petctl.job.file.read import job_from_dict
from petctl.job.spec import Job

Decoded = TypeVar("Decoded")
CODE = "code.tar.gz"
ABANDONED = 3600.0  # seconds after which nobody makes or removes a sweep any more
LONGEST_NAME = 48  # so that a cluster takes NAME-0001-2 for an id
_NAME = re.compile(rf"[a-z0-9](?:[a-z0-9_.-]{{0,{LONGEST_NAME - 2}}}[a-z0-9])?")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How a sweep is driven. Texts are as they were said; `decide` and `measure` know what they mean."""

    jobs: int = 0  # at once; 0: the cluster's line decides
    retries: int = 0  # of a point that failed, beyond its job's own restarts
    metric: str = ""
    regex: str = ""  # finds the metric in what rank 0 prints; empty: the job reports it
    goal: str = "min"
    take: str = "last"  # which of a job's values counts: "last" or "best"
    stop_when: list[str] = []
    early_stop: str = ""  # "median"
    warm_up: str = ""  # steps, or a time
    until: str = ""


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point: its parameters, and where its job differs from the other points'."""

    values: dict[str, str]
    job: dict[str, Any] = {}


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `request` tells whether the same is asked for again; `key` is in the labels of its jobs."""

    name: str
    key: str
    created: float
    cluster: str
    cwd: str
    request: str
    job: dict[str, Any]
    points: list[Point]
    code: dict[str, Any] = {}  # as in the first job's plan, without its archive

    @property
    def parameters(self) -> list[str]:
        return list(self.points[0].values)

    def job_of(self, number: int) -> Job:
        """The job of a point; they are counted from 1."""
        return job_from_dict({**self.job, **self.points[number - 1].job}, where=f"point {number}")

    def id_of(self, number: int, attempt: int) -> str:
        """The id of the attempt: NAME-007, then NAME-007-2."""
        width = max(3, len(str(len(self.points))))
        return f"{self.name}-{number:0{width}d}" + (f"-{attempt}" if attempt > 1 else "")


class SweepDirectory:
    """One sweep's directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        return self.path.name

    def sweep(self) -> Sweep:
        """What was asked for."""
        return _decoded(self.path / "sweep.json", Sweep)

    def code(self, sweep: Sweep) -> dict[str, Any] | None:
        """The snapshot that every job runs, as a cluster's plan takes it; None where they run in place."""
        return {**sweep.code, "archive": str(self.path / CODE)} if sweep.code else None

    def limits(self) -> Limits:
        return _decoded(self.path / "limits.json", Limits)

    def set_limits(self, limits: Limits) -> None:
        write_json(self.path / "limits.json", msgspec.to_builtins(limits), durable=True)

    def note(self, kind: str, **facts: Any) -> dict[str, Any]:
        """Appends an event; others append too."""
        event = {"time": time.time(), "kind": kind, **facts}
        try:
            append_event(self.path / "events.jsonl", event)
        except OSError as error:
            raise PetctlError(f"{self.path} could not be written: {error.strerror}") from None
        return event

    def events(self, after: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Events behind this place of the file, and the place behind them; a line that was cut off is skipped."""
        try:
            with (self.path / "events.jsonl").open("rb") as file:
                file.seek(after)
                data = file.read()
        except FileNotFoundError:
            return [], after
        whole = data[: data.rfind(b"\n") + 1]
        return parse_events(whole), after + len(whole)

    def driven(self) -> bool:
        """Whether somebody drives it."""
        return is_locked(self.path / "lock")

    def take(self) -> int:
        """Returns the lock of the one who drives it, to be released or handed on."""
        try:
            descriptor = take_lock(self.path / "lock")
        except FileNotFoundError:
            raise NotFound(f"the sweep {self.name} was just removed") from None
        if descriptor is None:
            raise PetctlError(
                f"another petctl is driving the sweep {self.name}; watch it with: "
                f"petctl sweep status --watch {self.name}"
            )
        return descriptor

    @contextmanager
    def driving(self, held: int | None = None) -> Iterator[None]:
        """Nobody else drives it meanwhile. `held`: the lock, where another process has handed it on."""
        descriptor = self.take() if held is None else held
        try:
            yield
        finally:
            release(descriptor)

    def remove(self) -> None:
        """Out of sight in one step."""
        hidden = self.path.with_name(f".new-{secrets.token_hex(6)}")
        self.path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def sweeps_directory() -> Path:
    return petctl_home() / "sweeps"


def checked_name(name: str) -> str:
    """A name that begins the ids of jobs."""
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a sweep cannot be named {name!r}: 1 to {LONGEST_NAME} lower-case letters, digits, '-', '_' and '.', "
            "with a letter or a digit at both ends"
        )
    return name


def create(sweep: Sweep, limits: Limits, files: Mapping[str, Path]) -> SweepDirectory | None:
    """Makes the directory, with links to `files` in it; None when there is a sweep of that name."""
    parent = sweeps_directory()
    make_private_directory(parent)
    for left in parent.glob(".new-*"):  # of somebody who was killed
        with suppress(FileNotFoundError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
    draft = parent / f".new-{secrets.token_hex(6)}"
    draft.mkdir(mode=0o700)
    try:
        write_json(draft / "sweep.json", msgspec.to_builtins(sweep), durable=True)
        write_json(draft / "limits.json", msgspec.to_builtins(limits), durable=True)
        for name, source in files.items():
            _link(source, draft / name)
        try:
            draft.rename(parent / sweep.name)
        except OSError:
            if not (parent / sweep.name / "sweep.json").exists():
                raise
            return None
        return SweepDirectory(parent / sweep.name)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def find(name: str) -> SweepDirectory:
    """The sweep of this name, or of the only one that begins or ends so."""
    known = [folder.name for folder in every()]
    found = [one for one in known if name and (one.startswith(name) or one.endswith(name))]
    chosen = name if name in known else found[0] if len(found) == 1 else ""
    if chosen:
        return SweepDirectory(sweeps_directory() / chosen)
    if found:
        raise UsageError(f"{name!r} matches {', '.join(found[:8])}; give more of the name")
    there = f"; there are {', '.join(known[:8])}" if known else "; there is none yet"
    raise NotFound(f"there is no sweep {name!r}{there}")


def every() -> list[SweepDirectory]:
    """All sweeps, by name."""
    try:
        paths = sorted(path for path in sweeps_directory().iterdir() if path.name[0] != "." and path.is_dir())
    except FileNotFoundError:
        return []
    return [SweepDirectory(path) for path in paths]


def _link(source: Path, place: Path) -> None:
    try:
        os.link(source, place)
    except OSError:  # a file system without hard links
        shutil.copyfile(source, place)


def _decoded(path: Path, kind: type[Decoded]) -> Decoded:
    data = read_json_or_none(path)
    try:
        if data is not None:
            return msgspec.convert(data, kind)
    except msgspec.ValidationError:
        pass
    raise InternalError(
        f"{path} is missing or damaged; forget the sweep with: petctl sweep rm --keep-jobs {path.parent.name}"
    )
