"""petctl compat: put the `az` stand-in on the PATH, take it away, list what there is; never in a real one's way."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from petctl.cli.options import examples, output_option, print_json
from petctl.errors import UsageError

PROGRAMS = {
    "az": "petctl.cli.compat.az",
    "batchai": "petctl.cli.compat.batchai",
}
MARK = "# petctl compat: made by `petctl compat install`"
DIRECTORY = "~/.local/bin"

_directory = click.option(
    "--dir", "directory", default=DIRECTORY, show_default=True, metavar="DIR", help="Where programs are."
)
_name = click.argument("name", type=click.Choice(sorted(PROGRAMS)))


@click.group(
    "compat",
    epilog=examples("petctl compat install az", "petctl compat list", "petctl compat uninstall az", "batchai --help"),
)
def command() -> None:
    """Command lines of other systems, over petctl: `batchai`, and a stand-in for `az` that is installed on demand."""


@command.command("install", epilog=examples("petctl compat install az", "petctl compat install az --dir ~/bin --force"))
@_name
@_directory
@click.option("--force", is_flag=True, help="Also where that hides another program of the name.")
@output_option()
def install(name: str, directory: str, force: bool, output: str) -> None:
    """Write a small program of that name, which calls petctl. Refuses to hide a real one."""
    target = Path(directory).expanduser().absolute() / name
    hidden = _others(name, target)
    if target.exists() and not _ours(target):
        hidden.insert(0, target)
    if hidden and not force:
        raise UsageError(
            f"there is {hidden[0]} already, and {target} would hide or replace it; "
            f"--force does that, --dir DIR puts it elsewhere"
        )
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{name}.{os.getpid()}")
        draft.write_text(_script(name), encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; take another place with --dir") from None
    if output == "json":
        print_json({"installed": str(target), "hides": [str(path) for path in hidden]})
        return
    click.echo(target)
    for path in hidden:
        click.echo(f"petctl: it hides {path}; undo that with: petctl compat uninstall {name}", err=True)
    if str(target.parent) not in os.environ.get("PATH", "").split(os.pathsep):
        click.echo(f"petctl: {target.parent} is not on your PATH; add it: export PATH={target.parent}:$PATH", err=True)


@command.command("uninstall", epilog=examples("petctl compat uninstall az"))
@_name
@_directory
@output_option()
def uninstall(name: str, directory: str, output: str) -> None:
    """Remove a program that `petctl compat install` wrote; never another one."""
    target = Path(directory).expanduser().absolute() / name
    if not target.exists():
        raise UsageError(f"there is no {target}; 'petctl compat list' shows what is installed")
    if not _ours(target):
        raise UsageError(f"{target} was not made by petctl, so it stays; remove it yourself if you mean it")
    target.unlink()
    if output == "json":
        print_json({"removed": str(target)})
    else:
        click.echo(f"petctl: {target} is removed", err=True)


@command.command("list", epilog=examples("petctl compat list", "petctl compat list -o json"))
@_directory
@output_option()
def list_(directory: str, output: str) -> None:
    """List the front ends, and which program of each name a shell would find."""
    rows = []
    for name in sorted(PROGRAMS):
        found = _others(name, None, Path(directory).expanduser().absolute())
        first = found[0] if found else None
        kind = "petctl's" if first and (_ours(first) or name == "batchai") else "not petctl's" if first else "none"
        rows.append({"name": name, "program": str(first or ""), "is": kind})
    if output == "json":
        print_json(rows)
        return
    from petctl.cli.table import print_table

    print_table(["NAME", "PROGRAM", "IS"], [[row["name"], row["program"] or "-", row["is"]] for row in rows])


def _others(name: str, target: Path | None, *more: Path) -> list[Path]:
    """Programs of this name that a shell finds, in its order; not those of ours, unless all are asked for."""
    folders = [*(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder), *more]
    found = [folder / name for folder in dict.fromkeys(folders)]
    there = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    return there if target is None else [path for path in there if path != target and not _ours(path)]


def _ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return MARK.encode() in file.read(512)
    except OSError:
        return False


def _script(name: str) -> str:
    # -P: what lies in the user's directory must not be taken for a module of petctl's
    return f'#!/bin/sh\n{MARK}\nexec {shlex.quote(sys.executable)} -P -m {PROGRAMS[name]} "$@"\n'
