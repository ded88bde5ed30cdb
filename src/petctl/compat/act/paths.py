"""Where a path of the project is, on this machine and in a container, and what opens that container.

    data/voc20      data: a folder that the configuration maps (`data_folder`); voc20: something in it

Nothing is asked of a store here. The credentials are those of the account's own file, and no others where it has some.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Iterator, NamedTuple

from petctl.errors import Refused, UsageError

if TYPE_CHECKING:
    from petctl.compat.act.config.config import BlobFolder, Config
    from petctl.storage.stores.credentials import Surroundings
    from petctl.storage.stores.location import Location


class Spot(NamedTuple):
    """A path in a mapped folder: as seen from the project, on this machine, and in its blob container."""

    path: str
    here: Location
    there: Location
    place: BlobFolder


def find_spot(config: Config, path: str) -> Spot:
    """Where a path of the project is; UsageError where it leads out, or its folder is not mapped."""
    from petctl.storage.stores.location import parse_location

    inside = _inside(config, path)
    folder, _, rest = inside.partition("/")
    place = config.folders.get(folder)
    if place is None:
        known = ", ".join(f"{name} ({mapped.location})" for name, mapped in sorted(config.folders.items()))
        raise UsageError(
            f"{path}: {folder or 'the project itself'} is not a mapped folder; "
            + (f"the mapped folders are: {known}. " if known else "no folder is mapped yet. ")
            + f"Map it under config_param in {config.file or 'aux_data/aml/aml.yaml'}: "
            + f"{folder or 'NAME'}_folder: {{azure_blob_config_file: FILE, path: PATH}}"
        )
    there = parse_location(place.location)
    slash = path.endswith("/")
    there = replace(there.below(rest) if rest else there, slash=slash)
    here = parse_location(str(config.root / inside) + ("/" if slash else ""))
    return Spot(inside, here, there, place)


def opens(place: BlobFolder | None) -> Surroundings:
    """What opens a mapped folder: the credentials that its account's file holds, or else those that petctl knows."""
    from petctl.home import petctl_home
    from petctl.submission.stores import surroundings

    known = surroundings(petctl_home())
    if place is None:
        return known
    account = place.account
    if account.endpoint:
        own = f"az://{account.name}"
        others = {name: value for name, value in known.stores.items() if not f"{name}/".startswith(f"{own}/")}
        known = replace(known, stores={**others, own: {"endpoint": account.endpoint}})
    if not account.key and not account.sas:
        return known
    # The key wins: a SAS may have expired, or permit less.
    secrets = {f"azure-{account.name}-key": account.key} if account.key else {f"azure-{account.name}-sas": account.sas}
    environ = {name: value for name, value in known.environ.items() if not name.startswith("AZURE_STORAGE_")}
    return replace(known, environ=environ, secret=lambda name: secrets.get(name, ""))


@contextmanager
def told(*places: BlobFolder | None) -> Iterator[None]:
    """Refusals name the file that the credentials come from."""
    from petctl.storage.core.store_errors import KEYS
    from petctl.storage.stores.store_errors import NoSuchBucket

    try:
        yield
    except (Refused, NoSuchBucket) as error:
        text = str(error)
        for place in places:
            if place is not None and f"az://{place.account.name}/{place.account.container}" in text:
                keys = f"see account_key and sas_token in {account_file(place)}"
                text = text.replace(KEYS["az"], keys).replace("see AZURE_STORAGE_SAS_TOKEN", keys)
                if isinstance(error, NoSuchBucket):
                    text = f"{text} (container_name in {account_file(place)})"
                elif keys not in text:
                    text = f"{text}; {keys}"
                break
        raise type(error)(text) from None


def account_file(place: BlobFolder) -> str:
    """The file that the account comes from, for sentences."""
    return str(place.account.file or "the blob account's file")


def _inside(config: Config, path: str) -> str:
    """A path as seen from the project's directory."""
    root = os.path.abspath(config.root)  # noqa: PTH100  links stay what they are called
    whole = os.path.normpath(os.path.join(root, os.path.expanduser(path)))  # noqa: PTH111, PTH118
    if not f"{whole}/".startswith(f"{root.rstrip('/')}/"):
        # The same project by another name: a link leads to it.
        root, whole = os.path.realpath(root), os.path.realpath(whole)
    if not path or not f"{whole}/".startswith(f"{root.rstrip('/')}/"):
        raise UsageError(f"{path!r} is not in the project {config.root}; write a path in one of its mapped folders")
    return whole[len(root.rstrip("/")) + 1 :]
