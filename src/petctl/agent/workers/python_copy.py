"""Copies the interpreter that runs this, with the libraries it needs, to a place from which it runs in any container.

    DIRECTORY/bin/loader        the dynamic loader of the system that the copy was made on
    DIRECTORY/bin/python3       the interpreter
    DIRECTORY/lib/              its shared libraries, the C library included
    DIRECTORY/lib/python3.X/    the standard library; nothing that was installed beside it
    DIRECTORY/lib/ca.pem        certificates of authorities, where that system has some (storage/core/http_client.py
                                reads them)

    DIRECTORY/bin/loader --library-path DIRECTORY/lib DIRECTORY/bin/python3 ...

A program needs the C library that it was built for, but no other part of its system: the kernel is the machine's. So an
agent runs in an image that has no Python, a very old one, another C library (musl) or none. No variable is set for
this, so workers inherit nothing of it. The image must be for the machine's kind of processor, as it must anyway.

Which libraries are needed is not worked out: a process imports every extension module, and its loader is asked.

On this machine petctl's own interpreter is copied. On Kubernetes `petctl-agent copy-python DIRECTORY` copies that of
another image, in a container that runs before the node's.
"""

from __future__ import annotations

import shutil
import ssl
import subprocess
import sys
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Iterable, List, Set

from petctl.errors import UsageError

USAGE = "Usage: petctl-agent copy-python DIRECTORY\n\nCopies the Python that runs this, for images without one.\n"
_LAYOUT = 2  # raised when copies are made in another way
_PROGRAM = 3  # PT_INTERP, the entry of a program that names its loader
_LEFT_OUT = {
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data"),
    *("site-packages", "dist-packages"),
}
_UNUSED = ("_test", "_ctypes_test", "xx", "_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis", "ossaudiodev")
_USUAL_CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
# Names of hosts and users are looked up too. Older C libraries load a part of themselves for that, another one where
# nothing says how to look (no nsswitch.conf), and one to end threads.
_LOADED = """
import ctypes, importlib, pwd, socket, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        pass
for look in (lambda: socket.getaddrinfo("localhost", 1), lambda: pwd.getpwuid(0)):
    try:
        look()
    except (OSError, KeyError):
        pass
for name in ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2", "libgcc_s.so.1"):
    try:
        ctypes.CDLL(name)
    except OSError:
        pass

class Loaded(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Loaded), ctypes.c_size_t, ctypes.c_void_p)
def show(library, size, data):
    print((library.contents.name or b"").decode())
    return 0

ctypes.CDLL(None).dl_iterate_phdr(show, None)
"""


class CannotCopy(Exception):
    """This interpreter cannot be taken along; the text says why."""


def copy_name() -> str:
    """The name for a copy of the interpreter that runs this; another interpreter, or a newer one, has another name."""
    program = _program()
    found = program.stat()
    facts = (_LAYOUT, str(program), found.st_size, found.st_mtime_ns, sys.version)
    return f"{sys.version_info[0]}.{sys.version_info[1]}-{sha256(repr(facts).encode()).hexdigest()[:16]}"


def fill(directory: Path) -> None:
    """Copies everything into a directory; CannotCopy or OSError says why that is not possible."""
    program, base = _program(), {"base": sys.base_prefix, "installed_base": sys.base_prefix}
    base["platbase"] = base["installed_platbase"] = sys.base_exec_prefix
    found = {Path(sysconfig.get_path(name, vars=base)) for name in ("stdlib", "platstdlib")}
    places = sorted(place for place in found if place.is_dir())
    for place in places:
        target = directory / place.relative_to(sys.base_prefix)
        shutil.copytree(place, target, ignore=_ignored, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    for folder in ("bin", "lib"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy2(program, directory / "bin" / "python3")
    shutil.copy2(loader_of(program), directory / "bin" / "loader")
    for library in sorted(_libraries(program, places)):
        shutil.copy2(library, directory / "lib" / Path(library).name)
    paths = ssl.get_default_verify_paths()
    certificates = [Path(path) for path in (paths.cafile, paths.openssl_cafile, *_USUAL_CERTIFICATES) if path]
    for path in [path for path in certificates if path.is_file()][:1]:
        shutil.copyfile(path, directory / "lib" / "ca.pem")


def loader_of(program: Path) -> str:
    """The dynamic loader that a program names."""
    with open(program, "rb") as file:
        head = file.read(64)
        if head[:4] != b"\x7fELF" or head[4] != 2:
            raise CannotCopy(f"{program} is not a 64-bit program")

        def number(data: bytes, at: int, size: int) -> int:
            return int.from_bytes(data[at : at + size], "little" if head[5] == 1 else "big")

        file.seek(number(head, 32, 8))
        size = number(head, 54, 2)
        table = file.read(size * number(head, 56, 2))
        for at in range(0, len(table), size):
            if number(table, at, 4) == _PROGRAM:
                file.seek(number(table, at + 8, 8))
                return file.read(number(table, at + 32, 8)).rstrip(b"\0").decode()
    raise CannotCopy(f"{program} is linked statically, and cannot load the modules that an agent needs")


def _program() -> Path:
    """The interpreter itself, also from within a virtual environment."""
    return Path(getattr(sys, "_base_executable", None) or sys.executable).resolve()


def _libraries(program: Path, places: Iterable[Path]) -> Set[str]:
    """Every shared library that the interpreter and its extension modules load."""
    extensions = [file.name for place in places for file in place.glob("lib-dynload/*.so")]
    names = sorted(name.partition(".")[0] for name in extensions if not name.startswith(_UNUSED))
    asked = subprocess.run([program, "-I", "-S", "-c", _LOADED, *names], stdout=subprocess.PIPE, check=False)
    if asked.returncode != 0:
        raise CannotCopy(f"{program} cannot list the libraries it loads: exit code {asked.returncode}")
    found = [path for path in asked.stdout.decode().splitlines() if path.startswith("/")]  # one is the kernel's
    return {path for path in found if "/lib-dynload/" not in path and Path(path).resolve() != program}


def _ignored(place: str, names: List[str]) -> Set[str]:
    return {name for name in names if name in _LEFT_OUT or name.startswith("config-") or ".opt-" in name}


def main(words: List[str]) -> int:
    """`petctl-agent copy-python DIRECTORY`."""
    if len(words) != 1 or words[0].startswith("-"):
        print(USAGE, end="")
        return 0 if words[:1] in (["--help"], ["-h"]) else UsageError.code
    try:
        fill(Path(words[0]))
    except (CannotCopy, OSError) as error:
        print(f"petctl-agent: this Python cannot be copied to {words[0]}: {error}", file=sys.stderr)
        return UsageError.code
    return 0
