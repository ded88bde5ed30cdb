"""batchai list-usages: what there is of everything that could run out, and what of it is in use."""

from __future__ import annotations

from typing import Any

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import leaf

WORKSPACES_PER_GROUP = 800


def _row(found: Any) -> dict[str, Any]:
    return {"Name": found["name"]["localizedValue"], "Current": found["currentValue"], "Limit": found["limit"]}


@leaf(None, "list-usages", "batchai list-usages -o table", row=_row)
@options.location_option
def list_usages(location: str) -> object:
    """List usage and limits: node slots, clusters, nodes. There are no quotas; a limit of -1 is none."""
    from petctl.clusters.local.pools import pool
    from petctl.clusters.local.queue.queue_claims import LOCAL, slots_of
    from petctl.clusters.local.queue.slots import default_slots
    from petctl.compat.batchai.service.resource_store import Tree
    from petctl.config.settings import cluster_settings, positive_setting

    home = options.home()
    tree = Tree(home)
    groups = [("groups", name) for name in tree.names((), "groups")]
    views = pool.read_all(home)
    used = sum(claim.granted for claim in slots_of(home, LOCAL).claims())
    slots = positive_setting(cluster_settings(LOCAL), LOCAL, "slots", default_slots())
    spaces = max((len(tree.names((place,), "workspaces")) for place in groups), default=0)
    return [
        _usage("Slots", "node slots of cluster local", used, slots),
        _usage("Nodes", "nodes of clusters", sum(view["nodes"] for view in views), -1),
        _usage("Clusters", "clusters", len(views), -1),
        _usage("Workspaces", "workspaces in the fullest group", spaces, WORKSPACES_PER_GROUP),
    ]


def _usage(name: str, words_: str, current: int, limit: int) -> dict[str, Any]:
    return {
        "currentValue": current,
        "limit": limit,
        "name": {"localizedValue": words_, "value": name},
        "unit": "Count",
    }
