"""How far a transfer is: a moving line on a terminal, a line now and then anywhere else; at the end the sum."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import click

from petctl.cli.terminal.text import duration
from petctl.console.commands import print_json
from petctl.console.terminal import raw
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.storage.transfer.transfer import Tally

EVERY = 5.0
ON_TERMINAL = 0.1


class Progress:
    """Shows a tally on stderr while a transfer runs."""

    def __init__(self, tally: Tally, quiet: bool = False) -> None:
        self._tally, self._quiet = tally, quiet
        self._over = threading.Event()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._show, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if not self._quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._tally.seconds = time.monotonic() - self._began
        self._over.set()
        if not self._quiet:
            self._thread.join()

    def _show(self) -> None:
        if sys.stderr.isatty():
            self._show_live()
            return
        while not self._over.wait(EVERY):
            click.echo(f"petctl: {self._line()}", err=True)

    def _show_live(self) -> None:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(Text(""), console=Console(file=raw(sys.stderr)), refresh_per_second=10, transient=True) as live:
            while not self._over.wait(ON_TERMINAL):
                live.update(Text(self._line(), overflow="ellipsis", no_wrap=True))

    def _line(self) -> str:
        tally = self._tally
        elapsed = max(time.monotonic() - self._began, 0.001)
        rate = tally.bytes / elapsed
        done = tally.bytes + tally.skipped_bytes
        more = "" if tally.all_found else "+"
        left = ""
        if tally.all_found and tally.bytes:
            left = f", {duration((tally.found_bytes - done) / rate)} left"
        return (
            f"{size(done)} of {size(tally.found_bytes)}{more}, "
            f"{tally.files + tally.skipped:,} of {tally.found:,}{more} files, {size(rate)}/s{left}"
        )


def report(tally: Tally, output: str, dry_run: bool, removed: int | None) -> None:
    """The last line, or the JSON document."""
    if output == "json":
        document: dict[str, Any] = {
            "files": tally.files,
            "bytes": tally.bytes,
            "skipped": tally.skipped,
            "skipped_bytes": tally.skipped_bytes,
            "seconds": round(tally.seconds, 3),
            "dry_run": dry_run,
        }
        if removed is not None:
            document["removed"] = removed
        print_json(document)
        return
    verb = "would copy" if dry_run else "copied"
    parts = [f"{verb} {counted(tally.files, 'file')}, {size(tally.bytes)} in {duration(tally.seconds)}"]
    if tally.skipped:
        parts.append(f"{tally.skipped:,} {'was' if tally.skipped == 1 else 'were'} already there")
    if removed is not None:
        parts.append(f"{'would remove' if dry_run else 'removed'} {removed:,}")
    click.echo(f"petctl: {'; '.join(parts)}", err=True)


def size(count: float) -> str:
    """Bytes as people say them: 512 B, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
