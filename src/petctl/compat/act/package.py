"""The package `act` for `python -m act.aml_client`: two small files, marked as petctl's, that hand over to petctl.

It lies where an interpreter of the user's choice looks for packages. That interpreter need not have petctl: the command
line is run by petctl's own, and only `create_aml_client` wants petctl to be importable.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from petctl.errors import UsageError
from petctl.files import replace

MARK = "# petctl compat: made by `petctl compat install`"
NAME = "act"
_ASK = """
import os, site, sysconfig
import importlib.util as util
found = util.find_spec("act")
place = sysconfig.get_paths()["purelib"]
if not os.access(place if os.path.isdir(place) else os.path.dirname(place), os.W_OK) and site.ENABLE_USER_SITE:
    place = site.getusersitepackages()
print(place)
print(found.origin or list(found.submodule_search_locations)[0] if found else "")
"""
_INIT = '{mark}\n"""AML Command Transfer over petctl; remove it with: petctl compat uninstall act"""\n'
_CLIENT = '''{mark}
"""python -m act.aml_client: the command line `act`. In programs: create_aml_client, where petctl can be imported."""

import os
import sys

PYTHON = {python!r}

if __name__ == "__main__":
    try:
        os.execv(PYTHON, [PYTHON, "-P", "-m", "petctl.compat.act.cli"] + sys.argv[1:])
    except OSError as error:
        sys.exit("act: %s cannot be run (%s); write this file anew: petctl compat install act" % (PYTHON, error))

try:
    from petctl.compat.act.client import AMLClient, create_aml_client
except ImportError as error:
    raise ImportError(
        "create_aml_client needs petctl in the interpreter that imports it, and %s has none (%s); "
        "pip install petctl there, or run your program with %s" % (sys.executable, error, PYTHON)
    )

__all__ = ["AMLClient", "create_aml_client"]
'''


class Where(NamedTuple):
    """Where a package `act` is to lie, and what else of that name its interpreter would find."""

    folder: Path
    hidden: Path | None


def user_folder(text: str) -> Path:
    """A directory as a user writes it; a ~ that names nobody stays what it is."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111  pathlib raises there


def find_where(python: str, folder: str | None) -> Where:
    """By an interpreter, or a folder that the user puts on PYTHONPATH."""
    if folder is not None:
        return Where(user_folder(folder), None)
    try:
        done = subprocess.run([python, "-c", _ASK], cwd="/", capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{python} cannot be run ({error}); name an interpreter with --python PATH") from None
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) != 2:
        raise UsageError(f"{python} does not report its package directory; choose another with --python PATH")
    place, found = Path(lines[0]), Path(lines[1]) if lines[1] else None
    return Where(place, found if found is not None and not may_be_written(found) else None)


def write(folder: Path) -> Path:
    """Makes the package, or replaces one of ours."""
    target = folder / NAME
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in (("__init__.py", _INIT), ("aml_client.py", _CLIENT)):
            draft = folder / f".petctl-{name}.{os.getpid()}"  # outside: a directory that holds nothing is nobody's
            replace(target / name, text.format(mark=MARK, python=sys.executable), draft=draft)
    except OSError as error:
        raise UsageError(
            f"cannot write {target}: {error.strerror}; name another interpreter with --python PATH, "
            "a directory of your own with --package-dir DIR, or leave the package out with --no-package"
        ) from None
    return target


def remove(target: Path) -> None:
    """Removes exactly what was written, and what Python has made of it; other files stay, with their directory."""
    for name in ("__init__", "aml_client"):
        for path in [target / f"{name}.py", *(target / "__pycache__").glob(f"{name}.*.pyc")]:
            path.unlink(missing_ok=True)
    for folder in (target / "__pycache__", target):
        try:
            folder.rmdir()
        except OSError:  # not empty, or never there
            pass


def may_be_written(package: Path) -> bool:
    """Whether it is nobody else's: not there, one of ours, or a directory that a killed install has left empty."""
    return not package.exists() or is_ours(package) or (package.is_dir() and not any(package.iterdir()))


def is_ours(path: Path) -> bool:
    """Whether a file, or a package's directory, was made here."""
    try:
        with (path / "__init__.py" if path.is_dir() else path).open("rb") as file:
            return MARK.encode() in file.read(512)
    except OSError:
        return False
