"""What others see of pinned code: a zip at the configuration's `code_path`, written by `init`.

Runs never use it as it lies there: it can change at any time. Where nothing is pinned yet on this machine it is taken
as code once, and pinned.
"""

from __future__ import annotations

import stat
import tarfile
import tempfile
import zipfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from petctl.compat.act.config.accounts import opened
from petctl.compat.act.config.config import Config
from petctl.compat.act.pins import Pin, keep, withheld
from petctl.errors import NoSuchPlace
from petctl.home import petctl_home

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first day a zip knows: the same code makes the same file
_PIECE = 1 << 20


def publish(config: Config, pinned: Pin) -> str:
    """Sends a pinned snapshot to `code_path`; the location, or nothing where there is no such place."""
    if config.code_path is None:
        return ""
    from petctl.storage.core.body import local_error
    from petctl.storage.stores.location import parse_location
    from petctl.storage.transfer.plan import open_end, open_source
    from petctl.storage.transfer.transfer import Tally, transfer
    from petctl.submission.stores import surroundings

    with tempfile.TemporaryDirectory(prefix="petctl-code-") as scratch, _opened(config):
        packed = Path(scratch, "code.zip")
        try:
            write_zip(Path(pinned.code["archive"]), packed)
        except OSError as error:
            raise local_error(error, str(packed)) from None
        known = surroundings(petctl_home())
        target = open_end(parse_location(config.code_path.location), known)
        transfer(open_source(parse_location(str(packed)), known), target, Tally())
    return config.code_path.location


def pin_published(config: Config) -> Pin | None:
    """Pins what lies at `code_path`; None where nothing does."""
    if config.code_path is None:
        return None
    from petctl.bundle.bundle_cache import Cabinet
    from petctl.bundle.snapshot import take
    from petctl.bundle.sources import tree_of
    from petctl.submission.code import code_record
    from petctl.submission.stores import fetch_from_store

    home, location = petctl_home(), config.code_path.location
    with tempfile.TemporaryDirectory(prefix="petctl-code-") as scratch:
        packed = Path(scratch, "code.zip")
        try:
            with _opened(config):
                fetch_from_store(home, location, packed)
        except NoSuchPlace:
            return None
        with tree_of(str(packed)) as tree:
            snapshot = take(
                tree.path,
                exclude=withheld(config),
                patterns=config.exclude,
                allow_secrets=config.allow_secrets,
                gitignore=False,
            )
            archive = Cabinet(home / "bundles").put(snapshot)
            return keep(config, snapshot, code_record(snapshot, archive, location))


def write_zip(archive: Path, target: Path) -> None:
    """The zip of a packed snapshot, with its links and exec bits; the same bytes for the same code."""
    with (
        tarfile.open(archive, "r|gz") as entries,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed,
    ):
        for entry in entries:
            item = zipfile.ZipInfo(entry.name, _EPOCH)
            item.create_system = 3  # whose modes mean something
            item.compress_type = zipfile.ZIP_DEFLATED
            if entry.issym():
                item.external_attr = (stat.S_IFLNK | 0o777) << 16
                packed.writestr(item, entry.linkname)
                continue
            item.external_attr = (stat.S_IFREG | entry.mode & 0o777) << 16
            item.file_size = entry.size
            content = entries.extractfile(entry)
            assert content is not None
            with packed.open(item, "w") as file:
                while piece := content.read(_PIECE):
                    file.write(piece)


def _opened(config: Config) -> AbstractContextManager[None]:
    account = config.code_path.account if config.code_path else None
    return opened([account]) if account else nullcontext()
