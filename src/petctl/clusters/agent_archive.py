"""Builds what petctl brings along to other machines: archives of one file each, which any Python runs.

    petctl-agent.pyz      all that a machine needs to become a node; Python 3.9
    petctl-operator.pyz   the operator for Kubernetes, and the agent that it hands out; Python 3.11

The same sources give the same bytes, whenever and wherever they are built: sorted names, one fixed time, no byte code.
The agent has its sources as they are. The operator's are without docstrings, since Helm keeps its archive twice, in an
object that has little room; lines keep their numbers, so that tracebacks stay true.

    python -m petctl.clusters.agent_archive [DIRECTORY]
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from petctl.files import replacing

PACKAGE = Path(__file__).resolve().parent.parent
AGENT, OPERATOR, REST = "petctl-agent.pyz", "petctl-operator.pyz", "petctl-agent.rest"
AGENT_PARTS = (
    *("__init__.py", "errors.py", "files.py", "http_proxy.py", "log_setup.py", "retry.py", "text.py"),
    *("causes.py", "causes.ini"),
    *("rendezvous", "storage/__init__.py", "storage/core", "agent", "controller", "elastic"),
    *(f"job/{name}.py" for name in ("__init__", "events", "fields", "record", "status", "task")),
)
OPERATOR_PARTS = (
    *AGENT_PARTS,
    *("config", "kinds.py", "kube", "unattended.py"),
    *(f"clusters/{name}.py" for name in ("__init__", "agent_archive", "base", "certificate", "job_files", "node_ends")),
    "clusters/kubernetes",
)
FOR_SUBMITTERS = {
    "petctl/kube/pod_logs.py",
    *(
        f"petctl/clusters/kubernetes/{name}.py"
        for name in (
            *("backend", "build_record", "kubernetes_job", "job_owner"),
            *(
                "commands/__init__",
                "commands/admin_volumes",
                "commands/import_",
                "commands/operator",
                "commands/volume",
            ),
            *("convert/__init__", "convert/convert", "convert/converted"),
            *("convert/launcher_args", "convert/validation"),
            *("pods/pod_events", "pods/pod_options", "pods/schema"),
        )
    ),
}
"""What an operator never imports: Helm keeps its archive twice, in an object that has little room."""
OLD_PYTHON = "this needs Python"
"""What an archive says first under a Python that is too old for it."""
_SHEBANG = b"#!/usr/bin/env python3\n"
_ENTRY = """\
import sys

if sys.version_info < {least}:
    sys.exit("{old} %d.%d or newer, and here is %d.%d" % ({least} + sys.version_info[:2]))

from {module} import main

sys.exit(main())
"""
_UNPACKING = """\
import os, sys, zlib

place = {place!r}
if not os.path.exists(place):
    draft = "%s.%d" % (place, os.getpid())
    try:
        data = __loader__.get_data(os.path.join(__loader__.archive, "data"))
        if {rest!r}:
            with open(os.path.join(os.path.dirname(__loader__.archive), {rest!r}), "rb") as file:
                data += file.read()
        with open(draft, "wb") as file:
            file.write(zlib.decompress(data))
        os.replace(draft, place)
    except OSError as error:
        sys.exit("petctl cannot be unpacked: %s" % error)
sys.path[0] = place
{entry}"""
_FOR_THE_AGENT, _FOR_THE_OPERATOR = (
    ("petctl.controller.cli", (3, 9)),
    ("petctl.clusters.kubernetes.operator.run", (3, 11)),
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format knows
_OF_THE_AGENT = tuple(f"petctl/{part}" if part.endswith((".py", ".ini")) else f"petctl/{part}/" for part in AGENT_PARTS)


@cache
def agent_bytes() -> bytes:
    """The agent's archive. The operator's has all that goes into it, and makes it of that, if this runs from there."""
    return _zipped({"__main__.py": _entry(*_FOR_THE_AGENT), **_of_the_agent()})


@cache
def agent_files(directory: str) -> Mapping[str, bytes]:
    """The same as two files that lie side by side, for pods: each fits into an object that `kubectl apply` must take.

    They take three quarters of the room, since all of it is compressed as one. The first unpacks itself, with the
    other, into that directory of the machine where it runs.
    """
    sources = {"__main__.py": _entry(*_FOR_THE_AGENT), **_of_the_agent()}
    return dict(zip((AGENT, REST), _unpacking(*_FOR_THE_AGENT, f"{directory}/agent", sources, REST), strict=True))


def _of_the_agent() -> dict[str, bytes]:
    import zipfile

    if not PACKAGE.parent.is_file():
        return _sources(AGENT_PARTS)
    with zipfile.ZipFile(PACKAGE.parent) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith(_OF_THE_AGENT)}


def operator_bytes(directory: str = "") -> bytes:
    """The operator's archive; with a directory of the machine where it runs it takes less, and unpacks itself there."""
    sources = {"__main__.py": _entry(*_FOR_THE_OPERATOR)}
    for name, text in _sources(OPERATOR_PARTS).items():
        if name not in FOR_SUBMITTERS:
            sources[name] = without_docstrings(text.decode()).encode() if name.endswith(".py") else text
    if not directory:
        return _zipped(sources)
    return _unpacking(*_FOR_THE_OPERATOR, f"{directory}/operator", sources)[0]


def build_agent(target: Path) -> Path:
    """Writes the agent's archive; whoever runs the old one meanwhile is not disturbed."""
    return _write(target, agent_bytes())


def build_operator(target: Path) -> Path:
    """The same for the operator's."""
    return _write(target, operator_bytes())


def _sources(parts: tuple[str, ...]) -> dict[str, bytes]:
    """Name in the archive -> what it holds."""
    found: list[Path] = []
    for part in parts:
        path = PACKAGE / part
        found += path.rglob("*.py") if path.is_dir() else [path]
    return {path.relative_to(PACKAGE.parent).as_posix(): path.read_bytes() for path in sorted(found)}


def without_docstrings(text: str) -> str:
    """The same program without strings that are statements of their own; each other one stays at its place."""
    lines = text.splitlines(keepends=True)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
            before, after = lines[first].encode()[: node.col_offset], lines[last].encode()[node.end_col_offset :]
            if not before.strip() and not after.strip():
                word = '"-"'  # not empty: a dataclass without one makes one up, and that takes time
                lines[first : last + 1] = [f"{before.decode()}{word}\n", *["\n"] * (last - first)]
    return "".join(lines)


def _entry(module: str, least: tuple[int, int]) -> bytes:
    return _ENTRY.format(module=module, least=least, old=OLD_PYTHON).encode()


def _unpacking(
    module: str, least: tuple[int, int], place: str, sources: Mapping[str, bytes], rest: str = ""
) -> tuple[bytes, bytes]:
    """An archive that unpacks all its sources as one, under a name that begins so, and what `rest`, a file beside it,
    has to hold: half of them."""
    inner = _zipped(sources, compressed=False)
    data = zlib.compress(inner, 9)
    place = f"{place}-{hashlib.sha256(inner).hexdigest()[:16]}.pyz"
    main = _UNPACKING.format(place=place, rest=rest, entry=_entry(module, least).decode()).encode()
    half = len(data) // 2 if rest else len(data)
    return _zipped({"__main__.py": main, "data": data[:half]}, compressed=False), data[half:]


def _zipped(contents: Mapping[str, bytes], compressed: bool = True) -> bytes:
    import io
    import zipfile

    how = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    file = io.BytesIO()
    file.write(_SHEBANG)
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in contents.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.create_system = 3  # as on Unix, wherever it is built
            member.external_attr = 0o644 << 16
            archive.writestr(member, data, how, 9 if compressed else None)
    return file.getvalue()


def _write(target: Path, data: bytes) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o755)
    return target


if __name__ == "__main__":
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    for built in (build_agent(directory / AGENT), build_operator(directory / OPERATOR)):
        print(f"{built}: {built.stat().st_size} bytes")
