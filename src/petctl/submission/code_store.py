"""A job's code in its store: STORE/code/ID/code.tar.gz, for all jobs that run the same, on whatever machine.

Objects appear whole, and whoever unpacks one proves it against its id: so one look at name and size tells whether it is
there. It is never removed: other machines may count on it. How a node gets it is in `agent/data/code_source.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.agent.data.code_source import STORED, find_stored
from petctl.bundle.bundle_cache import Cabinet
from petctl.errors import Damaged, NotFound
from petctl.storage.core.files import Depot, direct
from petctl.submission.code import bounds_of
from petctl.submission.results import make_grants
from petctl.submission.store_grants import keys_of

GRANT = "code"


def code_grant(store: Mapping[str, Any], identity: str) -> dict[str, Any]:
    """What the coordinator may sign for: this snapshot in the job's store, only to be read."""
    return {**store, "below": f"code/{identity}", "write": False}


def keep_code(code: Mapping[str, Any], grants: Mapping[str, Mapping[str, Any]], home: Path) -> None:
    """Makes the archive be on this machine, and in the job's store if there is one; what is there is not sent again."""
    identity, archive, place = str(code["id"]), Path(code["archive"]), grants.get(GRANT)
    if place is None:
        raise _lost(identity, "on this machine")
    depot = Depot(direct(make_grants({GRANT: {**place, "write": True}}, keys_of(home))))
    stored = find_stored(depot, GRANT)
    if archive.exists():
        size = archive.stat().st_size
        if stored is None or stored.size != size:
            depot.put(GRANT, STORED, str(archive), size)
    elif stored is not None:
        bounds = bounds_of(code)
        if bounds is not None and stored.size > bounds.archive:
            raise Damaged(f"the code in {place['location']} has {stored.size} bytes, more than its snapshot can have")
        Cabinet(home / "bundles").take_in(identity, lambda draft: depot.fetch(GRANT, stored, str(draft)), bounds)
    else:
        raise _lost(identity, f"on this machine, nor in {place['location']}")


def _lost(identity: str, where: str) -> NotFound:
    return NotFound(
        f"the job's code, snapshot {identity[:12]}, is no longer {where}; run today's code: petctl resubmit --new-code"
    )
