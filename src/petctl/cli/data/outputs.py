"""petctl outputs: what a job has made, wherever it lies: list it, bring it here, link to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Iterator

import click

from petctl.cli.options import job_argument
from petctl.console.commands import Verbs, examples, output_option, print_json
from petctl.errors import NoSuchPlace, UsageError

if TYPE_CHECKING:
    from petctl.job.record import Output
    from petctl.storage.stores.credentials import Surroundings
    from petctl.storage.stores.endpoint import Entry
    from petctl.storage.transfer.plan import End

id_argument = click.argument("output_id", metavar="[ID]", required=False, default="")
path_argument = click.argument("path", metavar="[PATH]", required=False, default="")


@click.group(
    "outputs",
    cls=Verbs,
    epilog=examples(
        "petctl outputs ls mnist-3f9k",
        "petctl outputs get mnist-3f9k model",
        "petctl outputs url mnist-3f9k model best.pt",
    ),
)
def command() -> None:
    """List, fetch and link what a job wrote to $PETCTL_OUTPUT_DIR.

    It is taken from the job's store, or from its directory when it has none; also while the job runs.
    """


@command.command("ls", epilog=examples("petctl outputs ls mnist-3f9k", "petctl outputs ls -o json mnist-3f9k model"))
@job_argument
@id_argument
@path_argument
@output_option()
def ls(job: str, output_id: str, path: str, output: str) -> None:
    """List the files of a job's outputs, or of one output: size, time, name."""
    rows = []
    chosen = _chosen(job, output_id)
    for one in chosen:
        for prefix, entry in _entries(one, path):
            rows.append({"id": one.id, "path": prefix + entry.path, "size": entry.size, "modified": entry.modified})
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(row["modified"]))))
        click.echo(f"{row['size']:>15,}  {when}  {row['path']}")
    if not rows:
        places = ", ".join(one.location for one in chosen)
        click.echo(f"petctl: no files in {places}", err=True)


@command.command(
    "get",
    epilog=examples(
        "petctl outputs get mnist-3f9k                       into ./mnist-3f9k-outputs",
        "petctl outputs get --to best mnist-3f9k model",
        "petctl outputs get mnist-3f9k model best.pt",
    ),
)
@job_argument
@id_argument
@path_argument
@click.option("--to", metavar="DIR", help="Directory to write to; default: ./JOB-outputs.")
@output_option()
def get(job: str, output_id: str, path: str, to: str | None, output: str) -> None:
    """Bring a job's outputs here, each into a folder of its name; what is here already is skipped."""
    from pathlib import Path

    from petctl.cli.data.progress import Progress, report
    from petctl.jobs import get as find
    from petctl.storage.stores.location import parse_location
    from petctl.storage.transfer.plan import open_end
    from petctl.storage.transfer.transfer import Tally, transfer

    target = Path(to) if to else Path(f"{find(job).id}-outputs")
    tally = Tally()
    with Progress(tally, quiet=output == "json"):
        for one in _chosen(job, output_id):
            source, known = _open(one, path)
            if source.entry is None and not source.folder:
                if path:
                    raise NoSuchPlace(f"there is no {path} in the output {one.id or one.location}")
                continue
            place = target / one.id / path
            place.parent.mkdir(parents=True, exist_ok=True)
            transfer(source, open_end(parse_location(str(place)), known), tally)
    report(tally, output, False, None)
    if output != "json":
        click.echo(target)


@command.command("url", epilog=examples("petctl outputs url mnist-3f9k model best.pt"))
@job_argument
@click.argument("output_id", metavar="ID")
@click.argument("path", metavar="PATH")
@click.option("--expires", default="1h", show_default=True, help="The link expires after: 30m, 12h, 7d.")
@output_option()
def url(job: str, output_id: str, path: str, expires: str, output: str) -> None:
    """Print a link with which anybody can read one file of an output, until it expires."""
    from petctl.job.spec.quantities import parse_duration
    from petctl.storage.stores.bucket import Bucket

    try:
        seconds = int(parse_duration(expires))
    except ValueError as error:
        raise UsageError(f"--expires: {error}") from None
    (one,) = _chosen(job, output_id)
    end, _ = _open(one, path)
    if end.entry is None:
        raise NoSuchPlace(f"there is no file {path} in the output {one.id}: {end.location} does not exist")
    if not isinstance(end.place, Bucket):
        raise UsageError(f"{end.location} is on this machine; a link needs a file in an object store")
    link = end.place.url(end.path, seconds)
    if output == "json":
        print_json({"location": str(end.location), "url": link, "seconds": seconds})
    else:
        click.echo(link)


def _chosen(job: str, output_id: str) -> list[Output]:
    """The output that is meant, or all: everything below the common place, and those with a place of their own."""
    from petctl.jobs import get as find

    everything, *declared = find(job).outputs()
    if not output_id:
        inside = f"{everything.location}/"
        return [everything, *(one for one in declared if not one.location.startswith(inside))]
    for one in declared:
        if one.id == output_id:
            return [one]
    found = _folders(everything)
    if output_id in found:  # never declared, but made
        return [everything._replace(id=output_id, location=f"{everything.location}/{output_id}")]
    names = sorted({*found, *(one.id for one in declared)})
    raise UsageError(f"the job has no output {output_id!r}; its outputs: {', '.join(names) or 'none'}")


def _folders(output: Output) -> list[str]:
    end, _ = _open(output, "")
    return [entry.path for entry in end.place.children(end.path) if entry.folder] if end.folder else []


def _entries(output: Output, path: str) -> Iterator[tuple[str, Entry]]:
    """Every file, with what its name begins with: as it is in $PETCTL_OUTPUT_DIR."""
    end, _ = _open(output, path)
    prefix = "".join(f"{part}/" for part in (output.id, path) if part)
    if end.entry is not None:
        yield prefix.rstrip("/").removesuffix(end.location.name), end.entry._replace(path=end.location.name)
        return
    if path and not end.folder:
        raise NoSuchPlace(f"there is no {path} in the output {output.id or output.location}")
    for entry in end.place.entries(end.path) if end.folder else ():
        yield prefix, entry


def _open(output: Output, path: str) -> tuple[End, Surroundings]:
    """The place of an output, reached as the job's nodes reach it."""
    from dataclasses import replace

    from petctl.home import petctl_home
    from petctl.storage.stores.location import parse_location
    from petctl.storage.transfer.plan import open_end
    from petctl.submission.stores import surroundings

    known = surroundings(petctl_home())
    location = parse_location(output.location)
    if output.settings:
        known = replace(known, stores={location.root: output.settings})
    return open_end(location.below(path) if path else location, known), known
