"""An image that nobody here can run: as in Batch AI's recipes, images of old documents are often not to be had."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from petctl.act.accounts import Hidden
from petctl.act.config import Config


def without_missing_engine(config: Config, say: Callable[[str], None]) -> Config:
    """The same configuration, but for its image where that is to run on this machine and no podman or docker works."""
    if not config.image:
        return config
    from petctl.clusters.base import find_cluster
    from petctl.clusters.local.cluster import LocalCluster
    from petctl.clusters.local.engines import find_engine
    from petctl.errors import UsageError
    from petctl.jobs.home import petctl_home

    where = find_cluster(config.cluster, petctl_home())
    if not isinstance(where, LocalCluster):
        return config
    try:
        find_engine(where.settings, config.image)
    except UsageError:
        say(f"no podman or docker works here: the image {config.image} is not used, the run goes bare on this machine")
        return replace(config, image="", image_user="", image_password=Hidden())
    return config
