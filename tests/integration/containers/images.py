"""Images made on the spot from what this machine has: its Python, a shell, and the libraries that they need."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Sequence
from pathlib import Path

MARK = "/etc/image-of-petctls-tests"
DIRECTORIES = ("tmp", "proc", "sys", "dev", "etc", "run", "usr/bin")
MPI_TREES = ("usr/lib/*/openmpi", "usr/lib/*/pmix2", "usr/share/openmpi", "etc/openmpi")
LEFT_OUT = {"test", "idlelib", "site-packages", "dist-packages", "ensurepip", "__pycache__", "lib2to3", "tkinter"}


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


def bare_image(path: Path) -> Path | None:
    """A shell and nothing else: neither Python nor a C library, so that nothing there can be of use to an agent."""
    busybox = shutil.which("busybox")
    if busybox is None or libraries([busybox]):
        return None
    image = ImageFile(path)
    image.programs(busybox)
    for name in ("sh", "echo", "env", "sleep", "touch", "test", "kill"):
        image.link(f"/bin/{name}", busybox)
    return image.close()


def python_image(path: Path, torch: str) -> Path:
    """This interpreter as python3, and what PyTorch needs of the system, where there is one to be mounted."""
    heavy = [str(file) for file in Path(torch).parent.parent.glob("lib/python3*/site-packages/torch/lib/libtorch_*.so")]
    image = ImageFile(path)
    _add_python(image, os.path.realpath(sys.executable), sysconfig.get_path("stdlib"), heavy)
    image.text(MARK, "yes\n")
    image.text("/srv/train/train.py", "import os, sys; print(os.getcwd(), *sys.argv)\n")
    return image.close()


def old_image(path: Path, version: str) -> Path | None:
    """A Python that is too old for an agent, if pyenv has one of this version."""
    found = _of_pyenv(version)
    if found is None:
        return None
    image = ImageFile(path)
    _add_python(image, *found, [])
    return image.close()


def mpi_image(path: Path, version: str) -> Path | None:
    """What images of old documents had: an old Python, Open MPI and a shell."""
    mpirun, found = shutil.which("orterun"), _of_pyenv(version)
    if mpirun is None or found is None:
        return None
    image = ImageFile(path)
    _add_python(image, *found, [])
    trees = [place for pattern in MPI_TREES for place in Path("/").glob(pattern)]
    plugins = [str(file) for place in trees for file in place.rglob("*.so")]
    image.programs(mpirun, str(Path(mpirun).with_name("orted")), more=plugins)
    for place in trees:
        image.tree(str(place))
    image.link("/usr/bin/mpirun", mpirun)
    image.text(MARK, "yes\n")
    return image.close()


def _of_pyenv(version: str) -> tuple[str, str] | None:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = sorted(root.glob(f"{version}.*"))
    return (str(found[-1] / "bin" / f"python{version}"), str(found[-1] / "lib" / f"python{version}")) if found else None


def _add_python(image: ImageFile, program: str, library: str, more: Sequence[str]) -> None:
    extensions = [str(file) for file in Path(library, "lib-dynload").glob("*.so")]
    image.programs(program, "/bin/sh", "/bin/bash", "/bin/cp", more=[*extensions, *more])
    image.tree(library)
    for name in ("python3", "python"):
        image.link(f"/usr/bin/{name}", program)
