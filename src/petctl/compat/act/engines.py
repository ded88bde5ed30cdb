"""An image that nobody here can run: as in Batch AI's recipes, images of old documents are often not to be had."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from petctl.compat.act.config.accounts import Hidden
from petctl.compat.act.config.config import Config
from petctl.compat.missing_engine import lacks_engine
from petctl.home import petctl_home


def without_missing_engine(config: Config, say: Callable[[str], None]) -> Config:
    """The same configuration, but for its image where that is to run on this machine and no podman or docker works."""
    if not lacks_engine(petctl_home(), config.cluster, config.image):
        return config
    say(
        f"no podman or docker works here: not using the image {config.image}; the run starts without a container "
        f"on this machine"
    )
    return replace(config, image="", image_user="", image_password=Hidden())
