"""Code that is to run, as an immutable snapshot: found, checked, named after its content, packed and kept.

This is the submitting side only: a node unpacks with the standard library (`petctl.agent`).

    text --sources--> a tree --tree, ignore--> files --hashing, index--> manifest --archive--> ID.tar.gz in the cache

A snapshot is its manifest (`manifest.py`): the id depends on names, contents and exec bits, and on nothing else. Where
code comes from is known by `sources.py` alone. This package must not know of jobs, clusters or object stores.
"""

from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.manifest import Entry
from petctl.bundle.snapshot import Snapshot, take

__all__ = ["Cabinet", "Entry", "Snapshot", "take"]
