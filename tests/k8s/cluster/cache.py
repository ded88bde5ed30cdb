"""Things that are slow to make and never change: made once, outside the checkout, complete or not there at all."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Callable

Make = Callable[[Path], None]

_started = time.monotonic()


def say(sentence: str) -> None:
    """One line of progress, with the seconds since the start."""
    print(f"[{time.monotonic() - _started:5.1f} s] {sentence}", file=sys.stderr, flush=True)


def home() -> Path:
    """Where everything that is not part of the checkout lies."""
    default = Path.home() / ".cache" / "petctl-dev"
    place = Path(os.environ.get("PETCTL_DEV_CACHE") or default).resolve() / "k8s"
    place.mkdir(parents=True, exist_ok=True)
    return place


def made(name: str, announcement: str, make: Make) -> Path:
    """A directory of the cache; made beside its place and renamed when complete, so a killed run leaves no half."""
    final = home() / name
    if final.exists():
        return final
    with (home() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if final.exists():
            return final
        for half in home().glob(f".{name}.half-*"):  # of a run that was killed: whoever makes it holds the lock
            shutil.rmtree(half)
        say(announcement)
        begun = time.monotonic()
        half = Path(tempfile.mkdtemp(prefix=f".{name}.half-", dir=home()))
        try:
            make(half)
            half.chmod(0o755)
            half.rename(final)
        finally:
            shutil.rmtree(half, ignore_errors=True)
        say(f"{name}: {time.monotonic() - begun:.0f} s, {size(final) >> 20} MB in {final}")
    return final


def size(directory: Path) -> int:
    """Bytes of all files below a directory."""
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
