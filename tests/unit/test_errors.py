"""The drawing of all errors shows what there is."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import petctl.errors

_EVERY = """
import importlib, json, pkgutil
import petctl
from petctl.errors import PetctlError

for module in pkgutil.walk_packages(petctl.__path__, "petctl."):
    if "__main__" not in module.name and ".startup" not in module.name:  # these act when they are imported
        importlib.import_module(module.name)

def walk(kind):
    for below in kind.__subclasses__():
        if not below.__name__.startswith("_"):
            yield [below.__name__, kind.__name__, below.code, below.__module__]
        yield from walk(below)

print(json.dumps(list(walk(PetctlError))))
"""
_LINE = re.compile(
    r"^    ((?:\|   |    )*)(?:[|`]-- )(\w+) +(\d+)   (input|platform|petctl) +(\S.*?)"
    r"(?: \(([a-z_.]+)(, as all below)?\))?$"
)


def test_the_drawing_is_complete_and_true() -> None:
    done = subprocess.run([sys.executable, "-c", _EVERY], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    real = {name: (parent, code, module) for name, parent, code, module in json.loads(done.stdout)}
    drawn: dict[str, tuple[str, int, str]] = {}
    above = ["PetctlError"]
    below = ""  # the module that a whole branch shares
    for line in (petctl.errors.__doc__ or "").splitlines():
        found = _LINE.match(line)
        if found is None:
            assert "-- " not in line, f"cannot be read: {line}"
            continue
        depth, name, code, _, _, module, shared = found.groups()
        level = len(depth) // 4 + 1
        if level == 1:
            below = module if shared else ""
        parent = above[level - 1]
        above[level:] = [name]
        drawn[name] = (parent, int(code), f"petctl.{module or below or 'errors'}")
    assert drawn == real
