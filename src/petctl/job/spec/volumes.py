"""Volumes that each node of a job sees, each by one short line: where it comes from, and the path it is seen at.

    volumes:
      - {claim: data, path: /data, read_only: true}
      - {claim: scratch, path: /scratch, size: 50GiB, storage_class: fast, access: ReadWriteMany}
      - {csi: csi.example.org, attributes: {share: models}, path: /models}
      - {nfs: "files.example.org:/export", path: /archive}
      - {secret: tokens, path: /tokens}          config_map, host_path and empty_dir likewise

Only words, checked. Each kind of cluster mounts those that it can, and says in words which it cannot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any

from petctl.job.spec import values
from petctl.job.spec.problems import FieldError, Problem, Problems, shown, unknown_field, wrong
from petctl.job.spec.quantities import format_bytes, parse_bytes
from petctl.job.spec.shape import Checked, Form

ACCESS = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_object_name = values.of_form(
    r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", "expected a name with lower-case letters, digits, '-' and '.'"
)
_OPTION = re.compile(r"([^:]+):(/[^:]*)(:ro|:rw)?")
_RESERVED = "/petctl"


def byte_quantity(value: object) -> str:
    """Bytes, as petctl's users write them elsewhere (8GiB) or as Kubernetes' do (8Gi); empty: none."""
    if value == "":
        return ""
    return str(format_bytes(values.above_zero(parse_bytes)(value))).removesuffix("B")


def _path(value: object) -> str:
    path = values.single_line(value)
    if not path:
        return path  # that it is missing is told otherwise
    parts = path.split("/")
    if not path.startswith("/") or path == "/" or ".." in parts or ":" in path:
        raise wrong(f"expected an absolute path on the nodes, such as /data, got {shown(path)}")
    path = path.rstrip("/")
    if path == _RESERVED or path.startswith(f"{_RESERVED}/"):
        raise wrong(f"{_RESERVED} is reserved by petctl; choose another path")
    return path


def _inside(value: object) -> str:
    path = values.single_line(value)
    if path.startswith("/") or ".." in path.split("/"):
        raise wrong(f"expected a path inside the volume, such as team/data, got {shown(path)}")
    return path


def _nfs(value: object) -> str:
    text = values.single_line(value)
    server, colon, path = text.rpartition(":")
    if not colon or not server or not path.startswith("/"):
        raise wrong(f"expected SERVER:/PATH, got {shown(text)}")
    return text


def _host_path(value: object) -> str:
    path = values.single_line(value)
    if not path.startswith("/"):
        raise wrong(f"expected an absolute path on the machines, got {shown(path)}")
    return path


def _medium(value: object) -> str:
    return values.one_of("Memory")(value) if value != "" else ""


_SOURCES: dict[str, tuple[Callable[[object], str], tuple[str, ...]]] = {
    "claim": (_object_name, ("size", "storage_class", "access", "keep", "prefetch")),
    "csi": (_object_name, ("attributes",)),
    "nfs": (_nfs, ()),
    "secret": (_object_name, ()),
    "config_map": (_object_name, ()),
    "host_path": (_host_path, ()),
    "empty_dir": (byte_quantity, ("medium",)),
}
"""Where a volume can come from: how that is written, and what else can be said of it."""
SOURCES = tuple(_SOURCES)
_ANY = ("path", "read_only", "sub_path")


class Volume(Checked, frozen=True, kw_only=True):
    """One of them; made by `volumes`, which checks it."""

    kind: str = ""  # one of SOURCES
    source: str = ""  # a name, or what else leads to it
    path: Annotated[str, Form(_path)] = ""
    read_only: bool = False
    sub_path: Annotated[str, Form(_inside)] = ""
    size: Annotated[str, Form(byte_quantity)] = ""  # of a claim that is made where there is none
    storage_class: Annotated[str, Form(values.single_line)] = ""
    access: Annotated[str, Form(values.one_of(*ACCESS))] = "ReadWriteMany"
    keep: bool = True  # the claim outlives the job
    prefetch: str = ""  # shell line that puts into it what jobs need, once
    attributes: Annotated[dict[str, str], Form(values.text_mapping(values.LABEL_NAMES, values.text))] = {}
    medium: Annotated[str, Form(_medium)] = ""


def volumes(value: object) -> list[Volume]:
    """All of them, or everything that is wrong with them."""
    found = values.every(value, _volume, "a list such as [{claim: data, path: /data}]")
    values.check_once([volume.path for volume in found], "path", "a second volume at {}")
    return found


def merged_volumes(weaker: Sequence[Volume], stronger: Sequence[Volume]) -> list[Volume]:
    """Both; a stronger one takes the place of a weaker one at its path."""
    taken = {volume.path for volume in stronger}
    return [*(volume for volume in weaker if volume.path not in taken), *stronger]


def volumes_to_plain(found: Sequence[Volume]) -> list[dict[str, Any]]:
    """As they are written in a file."""
    return [_plain(volume) for volume in found]


def parse_volume_option(text: str) -> Volume:
    """CLAIM:/PATH[:ro] or /DIR:/PATH[:ro] of the command line."""
    match = _OPTION.fullmatch(text)
    if match is None:
        raise wrong(f"--volume {text}: expected CLAIM:/PATH or /DIR:/PATH, and :ro behind it for read-only")
    try:
        kind = "host_path" if match[1].startswith("/") else "claim"
        return _volume({kind: match[1], "path": match[2], "read_only": match[3] == ":ro"})
    except FieldError as error:
        raise wrong(f"--volume {text}: {error.problems[0].sentence}") from None


def _volume(value: object) -> Volume:
    if isinstance(value, Volume):
        return _volume(_plain(value))
    if not isinstance(value, Mapping):
        raise wrong(f"expected a mapping such as {{claim: data, path: /data}}, got {shown(value)}")
    given = [source for source in SOURCES if value.get(source) is not None]
    problems = Problems(Problem((name,), f"a second source besides {given[0]!r}; keep one", True) for name in given[1:])
    known = (*_ANY, *(_SOURCES[given[0]][1] if given else ()))
    choices = known if given else (*known, *SOURCES)
    problems += [unknown_field(str(name), choices) for name in value if name not in (*known, *SOURCES)]
    if not given and not problems:
        problems.append(Problem((), f"its source is missing: give one of {', '.join(SOURCES)}"))
    if value.get("path") is None:
        problems.append(Problem((), "its path on the nodes is missing: give one, such as path: /data"))
    fields = {name: value[name] for name in known if value.get(name) is not None}
    made = Volume()
    for source in given[:1]:
        with problems.at(source):
            fields |= {"kind": source, "source": _SOURCES[source][0](value[source])}
    with problems.at():
        made = Volume(**fields)
    if not problems:
        problems += _contradictions(made, fields)
    problems.check()
    return made


def _contradictions(made: Volume, given: Collection[str]) -> list[Problem]:
    """What is right in itself, and wrong beside the rest."""
    claim_words = [name for name in ("storage_class", "access", "keep") if name in given and not made.size]
    problems = [Problem((name,), "is for a claim that petctl creates; give its size too", True) for name in claim_words]
    if made.prefetch and made.read_only:
        problems.append(Problem(("read_only",), "a volume that is to be filled must be writable"))
    return problems


def _plain(volume: Volume) -> dict[str, Any]:
    return {volume.kind: volume.source, **volume.to_plain(Volume(kind=volume.kind, source=volume.source))}
