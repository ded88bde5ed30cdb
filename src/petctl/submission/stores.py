"""What petctl knows about the user's object stores, put together: environment, configuration, secrets, records."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from petctl.config.settings import store_settings
from petctl.secret_file import secret_value
from petctl.storage.stores.credentials import Surroundings


def surroundings(home: Path) -> Surroundings:
    """For `petctl.storage.stores`, which knows neither configuration nor secrets."""
    return Surroundings(os.environ, store_settings(), partial(secret_value, home), home / "uploads")


def fetch_from_store(home: Path, location: str, target: Path) -> None:
    """Brings one object into a file of this machine."""
    from petctl.storage.stores.location import parse_location
    from petctl.storage.transfer.plan import open_end, open_source
    from petctl.storage.transfer.transfer import Tally, transfer

    known = surroundings(home)
    source = open_source(parse_location(location), known)
    transfer(source, open_end(parse_location(str(target)), known), Tally())
