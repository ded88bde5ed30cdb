"""file: list what is in a job's directories, stream one file while it is written."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from petctl.compat.batchai.cli import options
from petctl.compat.batchai.cli.base_command import NOTHING, Verbs, detail, group, option, say, say_idle, was_given
from petctl.compat.batchai.cli.resources import FILE_ROW

if TYPE_CHECKING:
    from petctl.compat.batchai.service.names import Address
    from petctl.jobs import JobHandle

ASK_EVERY = 1.0

directory_option = option(
    "-d, --output-directory-id directory ID",
    "An output directory of the job file, or stdouterr.",
    default="stdouterr",
    show_default=True,
)


def add_job_files(job: Verbs) -> None:
    """`job file list` and `job file stream`."""
    files = group("file", "Files of a job.", job, FILE_ROW)

    @options.verb(files, "list -j mnist", "list -j mnist -d MODEL -o table")
    @directory_option
    @options.path_option
    @options.expiry_option
    def list_(address: Address, directory: str, path: str, expiry: int) -> object:
        """List the files of a directory, with links."""
        from petctl.compat.batchai.service.files import list_files, list_stored
        from petctl.compat.batchai.service.jobs import output_directory

        place = output_directory(options.home(), address, directory)
        if place is None:
            raise _elsewhere(address, directory)
        if isinstance(place, Path):
            detail(f"{directory} is {place}")
            say_idle(["--expiry"] if was_given("expiry") else [])
            return list_files(place, path)
        detail(f"{directory} is {place.location}")
        return list_stored(place, path, 60 * expiry)

    @options.verb(files, "stream -j mnist -f stdout.txt")
    @option("-f, --file-name NAME", "The file; it may not be there yet.", required=True)
    @directory_option
    @options.path_option
    def stream(address: Address, file_name: str, directory: str, path: str) -> object:
        """Print a file as it grows; ends when the job has ended."""
        from petctl.compat.batchai.service.jobs import handle_of, output_directory

        handle = handle_of(options.home(), address)
        place = output_directory(options.home(), address, directory)
        ended = _ending(handle)
        if isinstance(place, Path):
            _stream_file(place, path, file_name, handle, ended)
        elif directory == "stdouterr" and _is_log(file_name):
            _stream_logs(handle, file_name)
        elif place is None:
            raise _elsewhere(address, directory)
        else:
            from petctl.compat.batchai.service.files import follow_stored

            _print(follow_stored(place, f"{path}/{file_name}", ended))
        status = handle.status()
        if status.state in ("failed", "lost"):
            say(f"the job has {'failed' if status.state == 'failed' else 'been lost'}: {status.sentence}")
        return NOTHING


def _stream_file(root: Path, path: str, name: str, handle: JobHandle, ended: Callable[[], bool]) -> None:
    from petctl.compat.batchai.service.files import follow, list_files
    from petctl.compat.batchai.service.resource_store import Missing
    from petctl.compat.batchai.service.storage import inside

    file = inside(root, f"{path}/{name}")
    detail(f"streaming {file}")
    _print(follow(file, ended))
    if not file.exists():
        there = ", ".join(entry["name"] for entry in list_files(root, path)) if file.parent.is_dir() else ""
        raise Missing(
            f"the job has ended ({handle.status().sentence}), and there is no file {name!r} in {file.parent}; "
            f"there are: {there or 'none'}"
        )


def _is_log(name: str) -> bool:
    """Whether what is in the file is also in the job's logs: stdout.txt, stderr-3.txt."""
    return re.fullmatch(r"std(out|err)(-\d+)?\.txt", name) is not None


def _stream_logs(handle: JobHandle, name: str) -> None:
    """Where the directory is not on this machine, the same lines come by the cluster's own way, and at once."""
    stream, _, rank = name.removesuffix(".txt").partition("-")
    detail("the directory is not on this machine: the lines come from the job's logs")
    lines = handle.logs(follow=True, rank=int(rank) if rank else None)
    _print(line.text for line in lines if f"std{line.stream}" == stream)


def _print(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _ending(handle: JobHandle) -> Callable[[], bool]:
    """Whether the job has ended, asked at most once a second: a file that is written fast is looked at often."""
    asked, over = 0.0, False

    def ended() -> bool:
        nonlocal asked, over
        if not over and time.monotonic() - asked >= ASK_EVERY:
            status = handle.status()
            over = status.final and status.finished is not None
            asked = time.monotonic()
        return over

    return ended


def _elsewhere(address: Address, directory: str) -> Exception:
    from petctl.errors import UsageError

    return UsageError(
        f"{directory} of job {address.name!r} is on its nodes only, not on a mount that this machine has; "
        f"see: batchai job node exec -j {address.name}"
    )
