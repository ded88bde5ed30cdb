"""The one error of this package: a sentence for the person at the terminal."""

from __future__ import annotations


class ClusterError(Exception):
    """What happened, where, and what to do next; shown without a traceback."""
