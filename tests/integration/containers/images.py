"""Images made on the spot from what this machine has: its Python, a shell, and the libraries that they need."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

MARK = "/etc/image-of-petctls-tests"
DIRECTORIES = ("tmp", "proc", "sys", "dev", "etc", "run", "usr/bin")
LEFT_OUT = {"test", "idlelib", "site-packages", "dist-packages", "ensurepip", "__pycache__", "lib2to3", "tkinter"}
OLD_PYTHON = """
import runpy, sys
sys.version_info = (3, 7, 0, "final", 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class ImageFile:
    """The file system of an image, as the tar file that `import` reads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._tar = tarfile.TarFile(path, "w")
        self._has: set[str] = set()
        for name in DIRECTORIES:
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            self._tar.addfile(member)

    def text(self, name: str, content: str, mode: int = 0o644) -> None:
        member = tarfile.TarInfo(name.lstrip("/"))
        data = content.encode()
        member.size, member.mode = len(data), mode
        self._tar.addfile(member, io.BytesIO(data))

    def programs(self, *paths: str, more: Sequence[str] = ()) -> None:
        """Programs at their own places, with every library that they and `more` load from the system."""
        for path in {*paths, *libraries([*paths, *more])} - self._has:
            self._tar.add(os.path.realpath(path), path.lstrip("/"), recursive=False)
            self._has.add(path)

    def link(self, name: str, target: str) -> None:
        member = tarfile.TarInfo(name.lstrip("/"))
        member.type, member.linkname = tarfile.SYMTYPE, target
        self._tar.addfile(member)

    def tree(self, root: str) -> None:
        for place, folders, files in os.walk(root):
            folders[:] = [name for name in folders if name not in LEFT_OUT and not name.startswith("config-")]
            for file in (Path(place, name) for name in files):
                self._tar.add(file.resolve(), str(file).lstrip("/"))

    def close(self) -> Path:
        self._tar.close()
        return self.path


def libraries(paths: Iterable[str]) -> set[str]:
    """What the dynamic loader of this machine would load for them, less what they bring along."""
    found: set[str] = set()
    for path in paths:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        found.update(re.findall(r"(?:^\s*|=> )(/\S+) \(0x", listed, re.MULTILINE))
    return {path for path in found if "/site-packages/" not in path}


def shell_image(path: Path) -> Path:
    """A shell, and no Python."""
    image = ImageFile(path)
    image.programs("/bin/sh")
    return image.close()


def python_image(path: Path, torch: str) -> Path:
    """This interpreter as python3, and what PyTorch needs of the system, where there is one to be mounted."""
    image = ImageFile(path)
    program, library = os.path.realpath(sys.executable), sysconfig.get_path("stdlib")
    extensions = [str(file) for file in Path(library, "lib-dynload").glob("*.so")]
    heavy = [str(file) for file in Path(torch).parent.parent.glob("lib/python3*/site-packages/torch/lib/libtorch_*.so")]
    image.programs(program, "/bin/sh", "/bin/bash", "/bin/cp", more=[*extensions, *heavy])
    image.tree(library)
    image.link("/usr/bin/python3", program)
    image.text(MARK, "yes\n")
    image.text("/usr/lib/old.py", OLD_PYTHON)
    image.text("/opt/old/python3", f'#!/bin/sh\nexec {program} /usr/lib/old.py "$@"\n', mode=0o755)
    return image.close()
