"""petctl data: files in object stores. The verbs that copy are here; those that look and remove in `browse.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

import click

from petctl.cli.data.browse import du, ls, rm, url
from petctl.cli.data.cache import cache
from petctl.cli.data.folders import both_ends, location_of, source_of, unmistakable
from petctl.console.commands import Decorated, Verbs, examples, output_option
from petctl.errors import UsageError
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.storage.stores.location import Location


@click.group(
    "data",
    cls=Verbs,
    epilog=examples(
        "petctl data up data/voc20 s3://bucket/data/voc20",
        "petctl data down az://account/container/models/best.pt",
        "petctl data cp s3://bucket/set az://account/container/set",
        "petctl data ls s3://bucket/data/",
    ),
)
def command() -> None:
    """Copy, list and remove files in object stores and on this machine.

    Locations: s3://BUCKET/PATH, az://ACCOUNT/CONTAINER/PATH, https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH,
    gs://BUCKET/PATH, file:///PATH or a plain path; @FOLDER/PATH is where petctl.yaml maps that folder to. Files and
    folders are recognised by themselves.
    """


for _verb in (ls, du, url, rm, cache):
    command.add_command(_verb)


def _copying(function: Decorated) -> Decorated:
    """The options of every verb that copies."""
    decorators: list[Callable[[Any], Any]] = [
        output_option(),
        click.option("--checksum", is_flag=True, help="Compare existing files by checksum, not time."),
        click.option("-v", "--verbose", is_flag=True, help="Print every file and its result on stderr."),
        click.option("-n", "--dry-run", is_flag=True, help="Only print what would be done."),
    ]
    for decorate in decorators:
        function = decorate(function)
    return function


@command.command(
    "up",
    epilog=examples(
        "petctl data up data/voc20                               where petctl.yaml maps it to",
        "petctl data up data/voc20 s3://bucket/data/voc20",
        "petctl data up model.pt az://account/container/models/",
        "petctl data up --dry-run . s3://bucket/all",
    ),
)
@click.argument("local", metavar="PATH")
@click.argument("remote", metavar="[LOCATION]", required=False)
@_copying
def up(local: str, remote: str | None, **options: Any) -> None:
    """Copy a file or folder of this machine to a store: to LOCATION, else where its folder is mapped to.

    A folder's content goes to exactly LOCATION; a file goes there, or into it when it ends with a slash. What is there
    already is skipped; a run that was interrupted goes on where it was.
    """
    source, target = both_ends(local) if remote is None else (source_of(local), location_of(remote))
    _expect_local(source, "the first", "petctl data down or cp")
    _copy(source, target, **options)


@command.command(
    "down",
    epilog=examples(
        "petctl data down data/voc20                             from where petctl.yaml maps it to",
        "petctl data down s3://bucket/data/voc20 data/voc20",
        "petctl data down az://account/container/models/best.pt     into this directory",
    ),
)
@click.argument("remote", metavar="LOCATION")
@click.argument("local", metavar="[PATH]", required=False)
@_copying
def down(remote: str, local: str | None, **options: Any) -> None:
    """Copy a file or folder of a store to this machine: to PATH, else under its own name into this directory.

    A mapped folder, or something in it, comes from where it is mapped to. Files appear under their names only when
    they are complete and their checksums fit.
    """
    if local is None and "://" not in remote and not remote.startswith("/"):
        target, source = both_ends(remote)
    else:
        source, target = unmistakable(remote), location_of(local or ".")
        _expect_local(target, "the second", "petctl data up or cp")
        if local is None and source.name:
            target = target.below(source.name)
    _copy(source, target, **options)


@command.command(
    "cp",
    epilog=examples(
        "petctl data cp s3://bucket/set az://account/container/set",
        "petctl data cp s3://bucket/a.bin s3://other/b.bin",
        "petctl data cp @data/voc20 @lab:data/voc20              between two clusters' folders",
    ),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@_copying
def cp(source: str, target: str, **options: Any) -> None:
    """Copy a file or folder from any location to any other, streamed through this machine."""
    _copy(source_of(source), location_of(target), **options)


@command.command(
    "sync",
    epilog=examples(
        "petctl data sync outputs s3://bucket/outputs",
        "petctl data sync --delete --yes s3://bucket/data data",
    ),
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--delete", is_flag=True, help="Remove files from TO that FROM does not have; ask first.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_copying
def sync(source: str, target: str, delete: bool, yes: bool, **options: Any) -> None:
    """Make the folder TO hold what the folder FROM holds; only TO is changed."""
    _copy(source_of(source), location_of(target), folders=True, delete=delete, yes=yes, **options)


def _expect_local(location: Location, which: str, instead: str) -> None:
    if not location.local:
        raise UsageError(f"{which} argument must be a path on this machine, not {location}; for stores use {instead}")


def _copy(
    source: Location,
    target: Location,
    *,
    output: str,
    checksum: bool,
    verbose: bool,
    dry_run: bool,
    folders: bool = False,
    delete: bool = False,
    yes: bool = False,
) -> None:
    from petctl.cli.data.confirm_removal import agree_to_remove
    from petctl.cli.data.progress import Progress, report
    from petctl.home import petctl_home
    from petctl.storage.transfer.plan import open_end, open_source, remove_all, superfluous
    from petctl.storage.transfer.transfer import Tally, transfer
    from petctl.submission.stores import surroundings

    known = surroundings(petctl_home())
    first = open_source(source, known)
    if folders and first.entry is not None:
        raise UsageError(f"{source} is a file, but sync needs folders; use: petctl data cp")
    second = open_end(replace(target, slash=True) if folders and not target.local else target, known)
    tally = Tally(note=_say if verbose else None)
    with Progress(tally, quiet=output == "json"):
        transfer(first, second, tally, checksum=checksum, dry_run=dry_run)
    removed = 0
    if delete:
        extra = superfluous(first, second)
        removed = extra.count
        if dry_run:
            for entry in extra:
                _say(entry.path, "would be removed")
        elif removed:
            agree_to_remove(f"{counted(extra.count, 'file')} that {source} does not have, from {target}", yes)
            remove_all(second, extra)
        extra.close()
    report(tally, output, dry_run, removed if delete else None)


def _say(path: str, what: str) -> None:
    click.echo(f"{path}: {what}", err=True)
