"""petctl data cache: the copies of mapped folders that this machine keeps for its jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from petctl.console.commands import Verbs, examples, output_option, print_json
from petctl.text import counted

if TYPE_CHECKING:
    from petctl.agent.data.folder_cache import Cache


@click.group("cache", cls=Verbs, epilog=examples("petctl data cache ls", "petctl data cache clear"))
def cache() -> None:
    """Copies of mapped folders that this machine keeps for its jobs; the least recently used one goes first."""


@cache.command("ls", epilog=examples("petctl data cache ls", "petctl data cache ls -o json"))
@output_option()
def ls(output: str) -> None:
    """Show every copy: size, last use, whether a job uses it, where it comes from."""
    rows = [
        {
            "location": state.location,
            "bytes": state.size,
            "used": state.used,
            "in_use": state.in_use,
            "writable": state.writable,
            "directory": state.copy.files,
        }
        for state in sorted(_cache().states(), key=lambda state: -state.used)
    ]
    if output == "json":
        print_json(rows)
        return
    for row in rows:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(str(row["used"]))))
        click.echo(f"{row['bytes']:>15,}  {when}  {'in use' if row['in_use'] else '      '}  {row['location']}")


@cache.command("clear", epilog=examples("petctl data cache clear"))
@output_option()
def clear(output: str) -> None:
    """Remove every copy that no job uses and that holds nothing that is not in its store."""
    count, size = _cache().clear()
    if output == "json":
        print_json({"removed": count, "bytes": size})
    else:
        click.echo(f"petctl: removed {counted(count, 'copy', 'copies')}, {counted(size, 'byte')}", err=True)


def _cache() -> Cache:
    from petctl.agent.data.folder_cache import Cache
    from petctl.home import petctl_home
    from petctl.submission.folder_mounts import cache_limit

    return Cache(str(petctl_home() / "cache" / "folders"), cache_limit())
