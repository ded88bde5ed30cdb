"""petctl compat: put front ends on the PATH, take them away, list what there is; never in a real program's way."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from petctl.compat.act import package as actpackage
from petctl.compat.act.package import MARK, Where, is_ours, may_be_written, user_folder
from petctl.console.commands import Verbs, examples, output_option, print_json
from petctl.errors import UsageError
from petctl.files import replacing

FRONT_ENDS = {
    "act": {"act": "petctl.compat.act.cli", "a": "petctl.compat.act.cli.a"},
    "az": {"az": "petctl.compat.batchai.cli.az"},
    "batchai": {"batchai": "petctl.compat.batchai.cli.batchai"},
}
PROGRAMS = {name: module for programs in FRONT_ENDS.values() for name, module in programs.items()}
DIRECTORY = "~/.local/bin"
PACKAGE = "# package: "

_directory = click.option(
    "--dir", "directory", default=DIRECTORY, show_default=True, metavar="DIR", help="Where programs are."
)
_package_folder = click.option(
    "--package-dir", "package_folder", metavar="DIR", help="act: its Python package there, for PYTHONPATH."
)
_name = click.argument("name", type=click.Choice(sorted(FRONT_ENDS)))


@click.group(
    "compat",
    cls=Verbs,
    epilog=examples(
        "petctl compat install az",
        "petctl compat install act",
        "petctl compat list",
        "petctl compat uninstall az",
        "batchai --help",
    ),
)
def command() -> None:
    """Command lines of other systems, over petctl: `batchai`, and `az` and `act`, which are installed on demand."""


@command.command(
    "install",
    epilog=examples(
        "petctl compat install az",
        "petctl compat install az --dir ~/bin --force",
        "petctl compat install act                        `act`, `a`, and python -m act.aml_client",
        "petctl compat install act --python ~/venv/bin/python",
    ),
)
@_name
@_directory
@click.option("--python", metavar="PATH", help="act: the interpreter that gets its package; else `python` of the PATH.")
@_package_folder
@click.option("--no-package", is_flag=True, help="act: only the programs.")
@click.option("--force", is_flag=True, help="Also where that hides another program of the name.")
@output_option()
def install(
    name: str,
    directory: str,
    python: str | None,
    package_folder: str | None,
    no_package: bool,
    force: bool,
    output: str,
) -> None:
    """Write a small program of that name, which calls petctl; for act also `a` and a package. Hides nothing."""
    if name != "act" and (python or package_folder or no_package):
        raise UsageError("--python, --package-dir and --no-package are for act, which alone has a package")
    folder = user_folder(directory)
    targets = [folder / program for program in FRONT_ENDS[name]]
    hidden = [path for target in targets for path in _hidden(target)]
    where = None if no_package or name != "act" else _package_place(python, package_folder)
    if where is not None and where.hidden is not None:
        hidden.append(where.hidden)
    if hidden and not force:
        raise UsageError(
            f"there is {hidden[0]} already, and {targets[0]} would hide or replace it; "
            f"--force does that, --dir DIR puts it elsewhere"
        )
    package = None if where is None else actpackage.write(where.folder)
    for target in targets:
        _write(target, package)
    if output == "json":
        paths = {"programs": list(map(str, targets)), "package": str(package or "")}
        print_json({"installed": str(targets[0]), **paths, "hides": list(map(str, hidden))})
        return
    for path in [*targets, package] if package else targets:
        click.echo(path)
    for path in hidden:
        click.echo(f"petctl: it hides {path}; to undo that: petctl compat uninstall {name}", err=True)
    if str(folder) not in os.environ.get("PATH", "").split(os.pathsep):
        click.echo(f"petctl: {folder} is not on your PATH; add it: export PATH={folder}:$PATH", err=True)
    if package_folder and package:
        click.echo(f"petctl: for python -m act.aml_client: export PYTHONPATH={package.parent}", err=True)
    if name == "act" and not no_package and package is None:
        click.echo(
            "petctl: there is no `python` on the PATH, so `python -m act.aml_client` is not installed; choose "
            "one with --python PATH",
            err=True,
        )


@command.command("uninstall", epilog=examples("petctl compat uninstall az", "petctl compat uninstall act"))
@_name
@_directory
@_package_folder
@output_option()
def uninstall(name: str, directory: str, package_folder: str | None, output: str) -> None:
    """Remove what `petctl compat install` wrote; never another program or package."""
    folder = user_folder(directory)
    targets = [folder / program for program in FRONT_ENDS[name]]
    there = [target for target in targets if target.exists()]
    for target in there:
        if not is_ours(target):
            raise UsageError(f"{target} was not created by petctl, so it stays; remove it yourself if you want to")
    packages = {package for target in there if (package := _package_of(target)) is not None}
    if package_folder:
        packages.add(user_folder(package_folder) / actpackage.NAME)
    own = [package for package in packages if is_ours(package)]
    removed = [*there, *own]
    if not removed:
        raise UsageError(f"there is no {targets[0]}; 'petctl compat list' shows what is installed")
    for package in own:
        actpackage.remove(package)
    for target in there:
        target.unlink()
    if output == "json":
        print_json({"removed": str(removed[0]), "all": [str(path) for path in removed]})
        return
    for path in removed:
        click.echo(f"petctl: {path} is removed", err=True)


@command.command("list", epilog=examples("petctl compat list", "petctl compat list -o json"))
@_directory
@output_option()
def list_(directory: str, output: str) -> None:
    """List the front ends, and which program of each name a shell would find."""
    rows = []
    for name in sorted(PROGRAMS):
        found = _others(name, None, user_folder(directory))
        first = found[0] if found else None
        kind = "petctl's" if first and (is_ours(first) or name == "batchai") else "not petctl's" if first else "none"
        rows.append({"name": name, "program": str(first or ""), "is": kind})
    if output == "json":
        print_json(rows)
        return
    from petctl.cli.terminal.table import print_table

    print_table(["NAME", "PROGRAM", "IS"], [[row["name"], row["program"] or "-", row["is"]] for row in rows])


def _hidden(target: Path) -> list[Path]:
    """What would not be found any more, or be replaced."""
    own = [target] if target.exists() and not is_ours(target) else []
    return own + _others(target.name, target)


def _package_place(python: str | None, package_folder: str | None) -> Where | None:
    interpreter = python or shutil.which("python")
    if interpreter is None and package_folder is None:
        return None
    where = actpackage.find_where(interpreter or "", package_folder)
    there = where.folder / actpackage.NAME
    if not may_be_written(there):
        raise UsageError(f"{there} is not petctl's, so it stays; put the package elsewhere with --package-dir DIR")
    return where


def _package_of(program: Path) -> Path | None:
    """The package that was written together with a program."""
    lines = program.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((Path(line.removeprefix(PACKAGE)) for line in lines if line.startswith(PACKAGE)), None)


def _write(target: Path, package: Path | None) -> None:
    # -P: what lies in the user's directory must not be taken for a module of petctl's
    call = f'exec {shlex.quote(sys.executable)} -P -m {PROGRAMS[target.name]} "$@"'
    beside = [f"{PACKAGE}{package}"] if package else []
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as file:
            file.write("\n".join(["#!/bin/sh", MARK, *beside, call, ""]).encode())
            os.fchmod(file.fileno(), 0o755)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another directory with --dir") from None


def _others(name: str, target: Path | None, *more: Path) -> list[Path]:
    """Programs of this name that a shell finds, in its order; not those of ours, unless all are asked for."""
    folders = [*(Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder), *more]
    found = [folder / name for folder in dict.fromkeys(folders)]
    there = [path for path in found if path.is_file() and os.access(path, os.X_OK)]
    return there if target is None else [path for path in there if path != target and not is_ours(path)]
