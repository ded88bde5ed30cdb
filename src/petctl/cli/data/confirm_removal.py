"""Asking before files are removed: on a terminal the user is asked, anywhere else --yes must have been said."""

from __future__ import annotations

import sys

import click

from petctl.errors import UsageError


def agree_to_remove(what: str, yes: bool) -> None:
    """Returns when `what` may be removed; raises otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"this would remove {what}; nothing was removed. Confirm with --yes, or see with --dry-run")
    if not click.confirm(f"Remove {what}?", err=True):
        raise click.Abort
