"""petctl data ls, du, url and rm: what looks at a store, links to it, and removes from it."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Iterable, Iterator

import click

from petctl.cli.data.folders import source_of, unmistakable
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import NoSuchPlace, UsageError
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.storage.stores.endpoint import Entry
    from petctl.storage.stores.location import Location
    from petctl.storage.transfer.plan import End


@click.command(
    "ls",
    epilog=examples(
        "petctl data ls s3://bucket/data/",
        "petctl data ls @data/voc20               where petctl.yaml maps the folder data to",
        "petctl data ls -r az://account/container",
        "petctl data ls -r -o json s3://bucket | jq length",
    ),
)
@click.argument("location")
@click.option("-r", "--recursive", is_flag=True, help="List subfolders too.")
@output_option()
def ls(location: str, recursive: bool, output: str) -> None:
    """List a folder, or show one file: size, time, name. Lines come as the store sends them."""
    end = _open(source_of(location))
    rows: Iterable[Entry]
    if end.entry is not None:
        rows = [end.entry]
    else:
        rows = end.place.entries(end.path) if recursive else end.place.children(end.path)
        if end.path and not end.folder:
            raise NoSuchPlace(f"{end.location} does not exist (neither a file nor a folder)")
    lines = _json_lines(rows) if output == "json" else (_line(entry) for entry in rows)
    flushed = 0.0
    for line in lines:
        sys.stdout.write(line)
        if time.monotonic() - flushed > 0.2:  # the first line at once, the others not one by one
            sys.stdout.flush()
            flushed = time.monotonic()


@click.command(
    "du", epilog=examples("petctl data du s3://bucket/data", "petctl data du -o json s3://bucket/a s3://bucket/b")
)
@click.argument("locations", metavar="LOCATION...", nargs=-1, required=True)
@output_option()
def du(locations: tuple[str, ...], output: str) -> None:
    """Say how many bytes and files there are at a location."""
    found = []
    for location in locations:
        end = _open(source_of(location), must=True)
        files = size = 0
        for entry in [end.entry] if end.entry is not None else end.place.entries(end.path):
            files += 1
            size += entry.size
        found.append({"location": str(end.location), "bytes": size, "files": files})
        if output != "json":
            click.echo(f"{size:>15,}  {files:>9,} {'file ' if files == 1 else 'files'}  {end.location}")
    if output == "json":
        print_json(found)


@click.command(
    "url", epilog=examples("petctl data url s3://bucket/model.pt", "petctl data url --expires 7d s3://bucket/model.pt")
)
@click.argument("location")
@click.option("--expires", default="1h", show_default=True, help="The link expires after: 30m, 12h, 7d.")
@output_option()
def url(location: str, expires: str, output: str) -> None:
    """Print a link with which anybody can read one file, until it expires."""
    from petctl.job.spec.quantities import parse_duration
    from petctl.storage.stores.bucket import Bucket

    try:
        seconds = int(parse_duration(expires))
    except ValueError as error:
        raise UsageError(f"--expires: {error}") from None
    end = _open(unmistakable(location), must=True)
    if end.entry is None:
        raise UsageError(f"{end.location} is a folder; a link needs one file")
    if not isinstance(end.place, Bucket):
        raise UsageError(f"{end.location} is on this machine; a link needs a file in a store")
    link = end.place.url(end.path, seconds)
    if output == "json":
        print_json({"location": str(end.location), "url": link, "seconds": seconds})
    else:
        click.echo(link)


@click.command(
    "rm",
    epilog=examples(
        "petctl data rm s3://bucket/model.pt",
        "petctl data rm --dry-run s3://bucket/old",
        "petctl data rm --yes s3://bucket/old/",
    ),
)
@click.argument("location")
@click.option("-y", "--yes", is_flag=True, help="Remove a folder without asking.")
@click.option("-n", "--dry-run", is_flag=True, help="Only print what would be removed.")
@output_option()
def rm(location: str, yes: bool, dry_run: bool, output: str) -> None:
    """Remove a file, or a folder with everything in it; never what only begins with the same letters.

    Where a file and a folder have the same name the file is meant; with a slash at the end, the folder.
    """
    from petctl.cli.data.confirm_removal import agree_to_remove
    from petctl.storage.stores.folder import LocalFolder
    from petctl.storage.transfer.plan import remove_all

    end = _open(unmistakable(location), must=True)
    removed = 0
    if end.entry is not None:
        if not dry_run:
            end.place.remove([end.path])
        removed = 1
    else:
        entries = end.place.own_entries(end.path) if isinstance(end.place, LocalFolder) else end.place.entries(end.path)
        if dry_run:
            for entry in entries:
                removed += 1
                if output != "json":
                    click.echo(end.location.below(entry.path))
        else:
            agree_to_remove(f"everything in {end.location}", yes)
            removed = remove_all(end, entries)
            if isinstance(end.place, LocalFolder):
                end.place.remove_empty(end.path)
    if output == "json":
        print_json({"location": str(end.location), "removed": 0 if dry_run else removed, "found": removed})
    else:
        click.echo(f"petctl: {'would remove' if dry_run else 'removed'} {counted(removed, 'file')}", err=True)


def _open(location: Location, must: bool = False) -> End:
    from petctl.home import petctl_home
    from petctl.storage.transfer.plan import open_end, open_source
    from petctl.submission.stores import surroundings

    return (open_source if must else open_end)(location, surroundings(petctl_home()))


def _line(entry: Entry) -> str:
    if entry.folder:
        return f"{'':>15}  {'':19}  {entry.path}/\n"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry.modified))
    return f"{entry.size:>15,}  {when}  {entry.path}\n"


def _json_lines(entries: Iterable[Entry]) -> Iterator[str]:
    """One JSON array, as a stream."""
    begin = "[\n"
    for entry in entries:
        document: dict[str, Any] = {"path": entry.path, "folder": entry.folder}
        if not entry.folder:
            document |= {"size": entry.size, "modified": entry.modified, "tag": entry.tag}
        yield begin + json.dumps(document)
        begin = ",\n"
    yield "[]\n" if begin == "[\n" else "\n]\n"
