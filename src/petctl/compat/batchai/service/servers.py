"""File servers: a directory each, which clusters and jobs mount by the server's name."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from petctl.compat.batchai.service.machines import server_settings
from petctl.compat.batchai.service.names import Address, check_name
from petctl.compat.batchai.service.resource_store import Tree
from petctl.compat.batchai.service.resources import trail_of
from petctl.compat.batchai.service.storage import DATA


def create_server(home: Path, address: Address, given: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """A file server in a workspace; its directory is empty at first."""
    tree = Tree(home)
    check_name("file server", address.name)
    trail = trail_of("fileservers", address)
    record = {
        "created": time.time(),
        "settings": server_settings(given, words),
        "directory": str(tree.directory(trail) / DATA),
    }
    with tree.locked():
        tree.make(trail, record, (DATA,))
    return record
