"""Builds what petctl brings along to other machines: archives of one file each, which any Python runs.

    petctl-agent.pyz      all that a machine needs to become a node; Python 3.9
    petctl-operator.pyz   the operator for Kubernetes, and the agent that it hands out; Python 3.11

The same sources give the same bytes, whenever and wherever they are built: sorted names, one fixed time, no byte code.
Comments, docstrings, the annotations of functions and most of the indentation stay at home, which saves more than a
quarter: there is little room in what `kubectl apply` takes. So do the words for people in data. Lines of programs keep
their numbers, so that tracebacks stay true.

    python -m petctl.clusters.agent_archive [DIRECTORY]
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from pathlib import Path

from petctl.files import replacing

PACKAGE = Path(__file__).resolve().parent.parent
AGENT, OPERATOR = "petctl-agent.pyz", "petctl-operator.pyz"
AGENT_PARTS = (
    *("__init__.py", "errors.py", "files.py", "text.py", "causes.py", "causes.ini"),
    *("rendezvous", "storage/__init__.py", "storage/core", "agent", "controller", "elastic"),
    *("job/__init__.py", "job/task.py", "job/fields.py", "job/record.py", "job/status.py", "job/compact.py"),
)
OPERATOR_PARTS = (
    *AGENT_PARTS,
    *("config", "kube", "unattended.py", "job/output.py"),
    *(f"clusters/{name}.py" for name in ("__init__", "agent_archive", "base", "certificate")),
    "clusters/kubernetes",
)
FOR_SUBMITTERS = {
    f"petctl/clusters/kubernetes/{name}.py"
    for name in (
        *("admin_volumes", "build_record", "cluster", "job_owner", "log_follow", "worker_command"),
        *("convert/__init__", "convert/convert", "convert/converted", "convert/launcher_args", "convert/validation"),
        *("pods/node_losses", "pods/pod_options", "pods/unschedulable"),
    )
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
import os, sys

place = {place!r}
if not os.path.exists(place):
    draft = "%s.%d" % (place, os.getpid())
    try:
        with open(draft, "wb") as file:
            file.write(__loader__.get_data(os.path.join(__loader__.archive, {inner!r})))
        os.replace(draft, place)
    except OSError as error:
        sys.exit("petctl-agent: cannot be unpacked: %s" % error)
sys.path[0] = place
{entry}"""
_FOR_THE_AGENT, _FOR_THE_OPERATOR = (
    ("petctl.controller.cli", (3, 9)),
    ("petctl.clusters.kubernetes.operator.run", (3, 11)),
)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format knows
_OF_THE_AGENT = tuple(f"petctl/{part}" if part.endswith((".py", ".ini")) else f"petctl/{part}/" for part in AGENT_PARTS)
_STRINGS = "|".join(
    rf"{quote * 3}(?:[^{quote}\\]++|\\.|{quote}(?!{quote * 2}))*{quote * 3}|{quote}(?:[^{quote}\\\n]++|\\.)*{quote}"
    for quote in ('"', "'")
)
_STRING_OR_COMMENT = re.compile(rf"{_STRINGS}|#[^\n]*", re.DOTALL)
_STRING_OR_INDENTATION = re.compile(rf"{_STRINGS}|^(?: {{4}})+", re.DOTALL | re.MULTILINE)
_DOCSTRING = '"-"'  # not empty: a dataclass without one makes one up, and that takes time
_DEFINITION = re.compile(r"^ *(?:async )?def \w+\(", re.MULTILINE)
_SIGN = re.compile(r"[][(){}:,=]")
_RESULT = re.compile(r" ->[^\n]+?(?=:\n|: \S)")
_OF_SELF = re.compile(r"^ +self\.\w+(: [^=\n]+) = ", re.MULTILINE)
_OF_TYPES = re.compile(r"^(from (?:typing|collections\.abc) import) (\([\w, \n]+\)|[\w, ]+)$", re.MULTILINE)
_FOR_PEOPLE = re.compile(r"^(?:(?:#|says =|advice =|transient =).*)?\n", re.MULTILINE)  # in causes.ini
_IN_LAMBDA = re.compile(r"\blambda\b[^:]*$")


@cache
def agent_bytes() -> bytes:
    """The agent's archive. The operator's has all that goes into it, and makes it of that, if this runs from there."""
    return _packed(*_FOR_THE_AGENT, _of_the_agent())


@cache
def small_agent_bytes(directory: str) -> bytes:
    """The same in three quarters of the size, since all files are compressed as one: it unpacks itself into that
    directory of the machine where it runs. For pods, which have it from an object that `kubectl apply` must take."""
    inner = _packed(*_FOR_THE_AGENT, _of_the_agent(), compressed=False)
    place = f"{directory}/agent-{hashlib.sha256(inner).hexdigest()[:16]}.pyz"
    module, least = _FOR_THE_AGENT
    entry = _UNPACKING.format(place=place, inner=AGENT, entry=_ENTRY.format(module=module, least=least, old=OLD_PYTHON))
    return _zipped({"__main__.py": entry.encode(), AGENT: inner})


def _of_the_agent() -> dict[str, bytes]:
    import zipfile

    if not PACKAGE.parent.is_file():
        return _sources(AGENT_PARTS)
    with zipfile.ZipFile(PACKAGE.parent) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.startswith(_OF_THE_AGENT)}


def operator_bytes() -> bytes:
    """The operator's archive."""
    found = _sources(OPERATOR_PARTS)
    return _packed(*_FOR_THE_OPERATOR, {name: text for name, text in found.items() if name not in FOR_SUBMITTERS})


def build_agent(target: Path) -> Path:
    """Writes the agent's archive; whoever runs the old one meanwhile is not disturbed."""
    return _write(target, agent_bytes())


def build_operator(target: Path) -> Path:
    """The same for the operator's."""
    return _write(target, operator_bytes())


def without_comments(text: str) -> str:
    """The same program without comments and docstrings: each statement stays in its line, and at its place there.

    It reads Python up to 3.11, where strings in strings have quotes of another kind."""
    kept: list[str] = []
    code: list[str] = []  # since brackets were counted last
    brackets = end = 0
    for found in _STRING_OR_COMMENT.finditer(text):
        start, word = found.start(), found[0]
        before, end = text[end:start], found.end()
        code.append(before)
        if word[0] == "#":
            kept.append(before.rstrip(" \t"))
            continue
        kept.append(before)
        line = text.rfind("\n", 0, start) + 1
        if not text[line:start].strip() and text[end : end + 1] in "\n" and text[line - 2 : line] != "\\\n":
            seen = "".join(code)
            brackets += sum(map(seen.count, "([{")) - sum(map(seen.count, ")]}"))
            code.clear()
            if not brackets:  # a statement of its own
                word = _DOCSTRING + "\n" * word.count("\n")
        kept.append(word)
    return "".join(kept) + text[end:]


def without_annotations(text: str) -> str:
    """The same program without the types of parameters, results and attributes of `self`; those of a class's fields
    mean something, and stay.

    It reads what `without_comments` has left."""
    masked = _masked(text)
    kept: list[str] = []
    end = 0
    for found in _DEFINITION.finditer(masked):
        place, depth, annotation, default = found.end(), 1, 0, 0  # where each began; 0: none has
        while depth:
            sign = _SIGN.search(masked, place)
            assert sign is not None, "brackets are closed"
            place = sign.end()
            depth += (sign[0] in "([{") - (sign[0] in ")]}")
            if depth > 1 or (sign[0] in ")]}" and depth):
                continue
            if sign[0] == ":" and not annotation and not default:
                annotation = sign.start()
            elif sign[0] in ",=)":
                if annotation:
                    kept += [text[end:annotation], "\n" * text.count("\n", annotation, sign.start())]
                    end = sign.start()
                if sign[0] == "=":
                    default, annotation = default or place, 0
                elif not default or not _IN_LAMBDA.search(masked, default, place - 1):
                    default = annotation = 0
        result = _RESULT.match(masked, place)
        if result is not None:
            kept.append(text[end:place])
            end = result.end()
    text = "".join(kept) + text[end:]
    masked = _masked(text)
    kept, end = [], 0
    for found in _OF_SELF.finditer(masked):
        kept.append(text[end : found.start(1)])
        end = found.end(1)
    return "".join(kept) + text[end:]


def without_types(text: str) -> str:
    """The same program without imports of types that nothing in it names any more.

    It reads what `without_annotations` has left."""

    def needed(found: re.Match[str]) -> str:
        words, rest = found[2], text[: found.start()] + text[found.end() :]
        names = re.findall(r"\w+(?: as \w+)?", words)
        used = [name for name in names if re.search(rf"\b{name.split()[-1]}\b", rest)]
        line = f"{found[1]} {', '.join(used)}" if used else ""
        return line + "\n" * words.count("\n")

    return _OF_TYPES.sub(needed, text)


def _masked(text: str) -> str:
    """As long as the text, and without signs in strings."""
    return _STRING_OR_COMMENT.sub(lambda found: "_" * len(found[0]), text)


def less_indented(text: str) -> str:
    """The same program with one blank for each step of its indentation.

    It reads what `without_comments` has left."""
    return _STRING_OR_INDENTATION.sub(lambda found: found[0] if found[0].strip() else found[0][::4], text)


def _sources(parts: tuple[str, ...]) -> dict[str, bytes]:
    """Name in the archive -> what it holds."""
    found: list[Path] = []
    for part in parts:
        path = PACKAGE / part
        found += path.rglob("*.py") if path.is_dir() else [path]
    return {path.relative_to(PACKAGE.parent).as_posix(): _reduced(path).encode() for path in sorted(found)}


def _reduced(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        return less_indented(without_types(without_annotations(without_comments(text))))
    return _FOR_PEOPLE.sub("", text)


def _packed(module: str, least: tuple[int, int], contents: dict[str, bytes], compressed: bool = True) -> bytes:
    entry = _ENTRY.format(module=module, least=least, old=OLD_PYTHON)
    return _zipped({"__main__.py": entry.encode(), **contents}, compressed)


def _zipped(contents: dict[str, bytes], compressed: bool = True) -> bytes:
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
