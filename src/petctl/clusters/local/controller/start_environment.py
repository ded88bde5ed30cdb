"""The environment that a job's supervisor is started in: its submitter's, also when another process starts it later.

    JOB/start.json                      0600: all variables but those that look like secrets, whose names are listed
    /dev/shm/petctl-UID/HOME.JOB        0600, in a directory of 0700: the values of those; in memory, never on a disk

Both go when the job's first node has joined, or with the job. A restart of the machine takes the second, and so may the
end of the user's last session: then the job starts without those variables, and its events say which. The submitting
process holds them too, for the job that it starts itself.
"""

from __future__ import annotations

import json
import os
import stat
import time
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from petctl.clusters.local.commands import supervisor_environment
from petctl.clusters.local.job_directory import JobDirectory, sync, write_json
from petctl.files import read_json_or_none, replace_json
from petctl.job.record import JobRecord

MEMORY = Path("/dev/shm")
ABANDONED = 3600.0  # seconds after which what a killed submitter has left is removed

_held: Dict[str, Dict[str, str]] = {}  # by job directory: of jobs that this process has submitted


def keep_environment(directory: JobDirectory, final: Optional[JobDirectory] = None) -> None:
    """Writes down what the supervisor is to be started with, as it is here and now; its directory is for the caller to
    sync. `final`: the job's own directory, where this one is its draft."""
    from petctl.bundle.secret_scan import secret_variables  # rules that only a submitter needs

    umask = os.umask(0o077)
    os.umask(umask)
    environment = supervisor_environment(os.environ)
    secret = {name: environment.pop(name) for name in secret_variables(environment)}
    words = {"environment": environment, "withheld": sorted(secret), "umask": umask}
    write_json(directory.start, words, mode=0o600)
    sync(directory.start)
    if secret:
        _held[str((final or directory).path)] = secret
        with suppress(OSError):  # no such place, or it is full: the job may start without, and then says so
            _write(final or directory, secret)


def start_words(directory: JobDirectory) -> Dict[str, Any]:
    """The `environment` and `umask` to start the supervisor with; this process' own where none were kept."""
    kept = read_json_or_none(directory.start) or {}
    public = kept.get("environment")
    if not isinstance(public, dict):
        return {"environment": supervisor_environment(os.environ), "umask": -1}
    names = set(_names(kept))
    held = _held.get(str(directory.path)) or (_read(directory) if names else {})
    secret = {name: value for name, value in held.items() if name in names}
    return {"environment": {**public, **secret}, "umask": int(kept.get("umask", -1))}


def lost_variables(directory: JobDirectory, record: JobRecord) -> str:
    """Says which variables of its submitter this supervisor, and so its workers, have to do without; else empty."""
    names = [name for name in _withheld(directory, record) if name not in os.environ]
    if not names:
        return ""
    return (
        f"started without {_listed(names)}: kept only in memory, and lost since the job was submitted; {_keep(names)}"
    )


def waiting_note(directory: JobDirectory, record: JobRecord) -> str:
    """Says which variables a job that waits may have to do without; empty where there are none, or it has started."""
    if directory.begun() or directory.supervised():
        return ""
    names = _withheld(directory, record)
    if not names:
        return ""
    shown = f"{_listed(names)} {'looks like a secret' if len(names) == 1 else 'look like secrets'}"
    if _read(directory):
        return f"{shown}: kept in memory until the job starts, lost on a reboot or logout; {_keep(names)}"
    return f"{shown} and cannot be kept in memory: the job may start without; {_keep(names)}"


def _withheld(directory: JobDirectory, record: JobRecord) -> List[str]:
    """The variables of the submitter that are kept in memory only; without those that the job itself brings."""
    own = {*record.task.env, *record.secrets}
    return [name for name in _names(read_json_or_none(directory.start) or {}) if name not in own]


def _listed(names: List[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def _keep(names: List[str]) -> str:
    stored = names[0].lower().replace("_", "-")
    return f"to keep it: petctl secret set {stored}, then --secret {names[0]}={stored}"


def forget_environment(directory: JobDirectory) -> None:
    """Removes both: nobody needs to start the supervisor by them any more."""
    directory.start.unlink(missing_ok=True)
    _held.pop(str(directory.path), None)
    place = _place()
    if place is not None:
        with suppress(OSError):
            (place / _name(directory)).unlink()


def _names(kept: Mapping[str, Any]) -> List[str]:
    names = kept.get("withheld")
    return [str(name) for name in names] if isinstance(names, list) else []


def _place() -> Optional[Path]:
    """The user's own directory in memory; None where there is none, or another user has taken its name."""
    path = MEMORY / f"petctl-{os.geteuid()}"
    try:
        found = os.lstat(path)
    except OSError:
        return None
    own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return path if own else None


def _write(job: JobDirectory, secret: Mapping[str, str]) -> None:
    if not _is_in_memory(MEMORY):
        return
    with suppress(FileExistsError):
        (MEMORY / f"petctl-{os.geteuid()}").mkdir(mode=0o700)
    place = _place()
    if place is None:
        return
    _sweep(place, job.path.parent)
    path = place / _name(job)
    draft = path.with_name(f"{path.name}.{os.getpid()}")  # a name that `_sweep` knows
    replace_json(path, dict(secret), mode=0o600, draft=draft)


def _read(job: JobDirectory) -> Dict[str, str]:
    place = _place()
    if place is None:
        return {}
    try:
        with os.fdopen(os.open(place / _name(job), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)) as file:
            found = json.load(file)
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _name(job: JobDirectory) -> str:
    return f"{_home(job.path.parent)}.{job.id}"


def _home(jobs: Path) -> str:
    return sha256(os.fsencode(os.path.realpath(jobs))).hexdigest()[:16]


def _sweep(place: Path, jobs: Path) -> None:
    """Removes what was kept for jobs that never came to be, or were removed by hand."""
    prefix = f"{_home(jobs)}."
    for name in os.listdir(place):  # noqa: PTH208  names are enough, of what may be hundreds
        if name.startswith(prefix) and not (jobs / name[len(prefix) :]).exists():
            with suppress(OSError):
                if time.time() - (place / name).stat().st_mtime > ABANDONED:
                    (place / name).unlink()


def _is_in_memory(path: Path) -> bool:
    try:
        mounts = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return False
    kinds = [words[2] for words in map(str.split, mounts) if words[1] == str(path)]
    return bool(kinds) and kinds[-1] in ("tmpfs", "ramfs")
