"""This machine's Open MPI as volumes for pods whose image has none: 100 MB of packages need not be part of an image.

Its plugins and texts are mounted where it looks for them; programs and libraries are collected into one directory.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

PROGRAMS = ("mpirun", "orted")
PLACES = ("/usr/lib/x86_64-linux-gnu/openmpi", "/usr/share/openmpi", "/etc/openmpi")
_LIBRARY = re.compile(r"=> (/\S+)")
_SYSTEM = re.compile(r"lib(c|m|dl|rt|pthread|util|resolv)\.so|ld-linux")  # of the image's own C library


def collect(directory: Path) -> None:
    """Copies programs to `bin` and all libraries that these and the plugins need to `lib`."""
    binaries, libraries = directory / "bin", directory / "lib"
    binaries.mkdir(parents=True)
    libraries.mkdir()
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program is not None, f"{name} is missing; install openmpi-bin"
        shutil.copy(program, binaries / name)
    plugins = Path(PLACES[0]).rglob("*.so")
    objects = [*binaries.iterdir(), *plugins, Path("/usr/lib/x86_64-linux-gnu/libmpi.so.40")]
    shown = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, timeout=60).stdout
    for library in {Path(path) for path in _LIBRARY.findall(shown)} | {objects[-1]}:
        if not _SYSTEM.match(library.name):
            shutil.copy(library, libraries / library.name)


def template(directory: Path, packages: Path) -> dict[str, Any]:
    """A piece of a pod template whose container has Open MPI and these Python packages."""
    mounted = {"/opt/openmpi": str(directory), "/packages": str(packages), **{place: place for place in PLACES}}
    names = {path: f"openmpi-{number}" for number, path in enumerate(mounted)}
    variables = {
        "PATH": "/opt/openmpi/bin:/usr/local/bin:/usr/bin:/bin",
        "LD_LIBRARY_PATH": "/opt/openmpi/lib",
        "PYTHONPATH": "/packages",
    }
    container = {
        "volumeMounts": [{"name": name, "mountPath": path, "readOnly": True} for path, name in names.items()],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
    }
    volumes = [{"name": name, "hostPath": {"path": mounted[path]}} for path, name in names.items()]
    return {"spec": {"containers": [container], "volumes": volumes}}
