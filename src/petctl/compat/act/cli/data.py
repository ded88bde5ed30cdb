"""act ls, upload, download, rm, url: files of the folders that the configuration maps."""

from __future__ import annotations

import time
from functools import partial

import click

from petctl.cli.data.progress import Progress, size
from petctl.cli.terminal.text import duration
from petctl.compat.act import data
from petctl.compat.act.cli.flags import Flags, verb
from petctl.compat.batchai.cli.base_command import confirm, say
from petctl.console.commands import print_json
from petctl.text import counted

_paths = click.argument("paths", metavar="PATH...", nargs=-1, required=True)


@verb(
    "ls",
    "act ls data/voc20                        also data/voc2012: it is the beginning of names",
    "act -c eu ls data/",
    "act ls -o json output/run1",
    heeds=("cluster", "output"),
)
@click.argument("prefixes", metavar="PREFIX...", nargs=-1, required=True)
def ls(said: Flags, prefixes: tuple[str, ...]) -> None:
    """List the files in the blob whose names begin with PREFIX: size, time, name; then their sum.

    PREFIX begins with a mapped folder: data/... where the YAML has data_folder.
    """
    config = said.config()
    found = {item.name: item for prefix in prefixes for item in data.listed(config, prefix)}
    if said.json:
        print_json([item._asdict() for item in found.values()])
        return
    for item in found.values():
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item.time))
        click.echo(f"{item.size:>15,}  {when}  {item.name}")
    if not found:
        say(f"nothing begins with {' or '.join(prefixes)} in the blob of {config.name}")
    else:
        total = sum(item.size for item in found.values())
        say(f"{counted(len(found), 'file')}, {counted(total, 'byte')} ({size(total)})")


@verb(
    "upload",
    "act u data/voc20",
    "act -c eu u data/voc20 output/best.pt",
    "act -c eu -f we3v32 u data/voc20         from one cluster's blob to another's",
    heeds=("cluster", "from_cluster", "output"),
)
@_paths
def upload(said: Flags, paths: tuple[str, ...]) -> None:
    """Copy files or folders of this machine to the blob; with -f from the blob of another configuration.

    What is there already is skipped; a run that was interrupted goes on where it was.
    """
    config = said.config()
    source = said.source()
    _tell(said, [data.upload(config, path, source, progress=_shown(said)) for path in paths])


@verb("download", "act d data/coco", "act -c eu d output/best.pt", heeds=("cluster", "output"))
@_paths
def download(said: Flags, paths: tuple[str, ...]) -> None:
    """Copy files or folders from the blob to this machine; what is here already is skipped."""
    config = said.config()
    _tell(said, [data.download(config, path, progress=_shown(said)) for path in paths])


@verb(
    "rm",
    "act rm data/coco                         never data/coco2017",
    "act rm -y output/old",
    heeds=("cluster", "yes", "output"),
)
@_paths
def rm(said: Flags, paths: tuple[str, ...]) -> None:
    """Remove exactly these files, or folders with everything in them, from the blob; asks on a terminal only.

    It cannot be undone. What only begins with the same letters stays.
    """
    config = said.config()
    numbers = {path: data.count(config, path) for path in paths}
    for path, number in numbers.items():
        confirm(f"Remove {path} ({counted(number, 'file')}) from the blob of {config.name}?", said.yes)
    removed = {path: data.remove(config, path) for path in paths}
    if said.json:
        print_json({"removed": removed})
        return
    for path, number in removed.items():
        say(f"removed {path}: {counted(number, 'file')}")


@verb("url", "act url output/best.pt", heeds=("cluster", "output"))
@_paths
def url(said: Flags, paths: tuple[str, ...]) -> None:
    """Print a link for each file, with which anybody can read it for 30 days."""
    config = said.config()
    links = {path: data.url(config, path) for path in paths}
    if said.json:
        print_json(links)
        return
    for one in links.values():
        click.echo(one)


def _shown(said: Flags) -> data.Progress:
    """How far a transfer is, on stderr."""
    return partial(Progress, quiet=said.json)


def _tell(said: Flags, moves: list[data.Moved]) -> None:

    if said.json:
        print_json(
            [
                {
                    "source": move.source,
                    "target": move.target,
                    "files": move.tally.files,
                    "bytes": move.tally.bytes,
                    "skipped": move.tally.skipped,
                    "same": move.same,
                }
                for move in moves
            ]
        )
        return
    for move in moves:
        if move.same:
            say(f"{move.source} is already in place: nothing to copy")
            continue
        tally = move.tally
        were = "was" if tally.skipped == 1 else "were"
        already = f"; {tally.skipped:,} {were} already there" if tally.skipped else ""
        copied = f"copied {counted(tally.files, 'file')}, {size(tally.bytes)} in {duration(tally.seconds)}"
        say(f"{copied} to {move.target}{already}")
