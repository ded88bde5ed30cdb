"""Removing the directory of a job that has ended, and the code that no other job needs. Whether it has ended is known
elsewhere.
"""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from petctl.clusters.local.controller.start_environment import forget_environment
from petctl.clusters.local.job_directory import JobDirectory
from petctl.errors import NotFound, PetctlError


def remove_directory(directory: JobDirectory) -> None:
    """Out of sight in one step, since a half-removed job must not be listed; then off the disk."""
    hidden = directory.path.with_name(f".new-{secrets.token_hex(6)}")
    try:
        directory.path.rename(hidden)
    except FileNotFoundError:
        raise NotFound(f"{directory.id} was just removed by another process") from None
    forget_environment(directory)
    try:
        shutil.rmtree(hidden)
    except OSError as error:  # what a container has written may be another user's
        left = f"{error.filename or hidden}: {error.strerror}"
        raise PetctlError(
            f"removed {directory.id}, but not all of its files: {left}; remove {hidden} yourself"
        ) from None
    _remove_unused_code(directory.home / "bundles")


def _remove_unused_code(bundles: Path) -> None:
    """Archives of which no job has a link any more."""
    archives = list(bundles.glob("*.tar.gz"))
    if archives:
        from petctl.bundle.bundle_cache import Cabinet

        Cabinet(bundles).remove_unused({path.name.partition(".")[0] for path in archives if _is_linked(path)})


def _is_linked(path: Path) -> bool:
    try:
        return path.stat().st_nlink > 1
    except FileNotFoundError:  # somebody else has removed it
        return False
