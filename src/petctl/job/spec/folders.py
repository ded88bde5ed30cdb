"""Which mapped folders a job has (all of the configuration's, none, or those that are named here), and its outputs.

    folders: [data/voc20, models]                       of the configuration, whole or only a part
    folders: {data: s3://bucket/data, output: {location: az://account/box/output, mode: rw}}
    folders: none
    outputs: [model, samples]                              under the job's store, or in its directory
    outputs: {model: s3://bucket/models/today, samples: ""}

What a name stands for in the configuration, and where a location leads, is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from petctl.job.spec import values
from petctl.job.spec.problems import Problems, shown, wrong
from petctl.job.spec.shape import Checked, Form, struct_from

MODES = ("ro", "rw", "sync")
ALL, NONE = "all", "none"

_NAME_RULE = "the name of a folder is a path from the project's directory, such as data or data/voc20: no '..', no ':'"


def folder_name(value: object) -> str:
    """A relative path that stays inside, in one way of writing it."""
    name = values.text(value).removeprefix("./").rstrip("/")
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or name.startswith("@") or ":" in name or not name.isprintable():
        raise wrong(f"{_NAME_RULE}; got {shown(value)}")
    return name


def folder_mode(value: object) -> str:
    """ro, rw or sync."""
    return values.one_of(*MODES)(value)


def _folder_mode_or_none(value: object) -> str:
    return folder_mode(value) if value != "" else ""


class Folder(Checked, frozen=True, kw_only=True):
    """What a job says about one folder; what is empty is as the configuration has it."""

    location: Annotated[str, Form(values.single_line)] = ""
    mode: Annotated[str, Form(_folder_mode_or_none)] = ""


def _entries(value: object, expected: str) -> list[tuple[str | int, object, object]]:
    """Of a list of names, or a mapping of names to something: where each is, its name, and what it has."""
    if isinstance(value, Mapping):
        named = enumerate(value.items())
        return [(name if isinstance(name, str) else position, name, item) for position, (name, item) in named]
    return [(position, name, None) for position, name in enumerate(values.every(value, lambda name: name, expected))]


def folders(value: object) -> str | dict[str, Folder]:
    """ALL, NONE, or what was said of each folder by its name."""
    if isinstance(value, str):
        if value in (ALL, NONE):
            return value
        raise wrong(f"expected a list of folders, a mapping of folders to locations, all or none, got {shown(value)}")
    found, problems = dict[str, Folder](), Problems()
    for place, key, item in _entries(value, "a list of folders or a mapping of folders to locations"):
        with problems.at(place):
            name = folder_name(key)
            if name in found:
                raise wrong(f"the folder {name!r} is named twice")
            found[name] = struct_from(Folder, item if isinstance(item, (Folder, Mapping)) else {"location": item})
    problems.check()
    return found or ALL


def folders_to_plain(value: str | dict[str, Folder]) -> Any:
    """As it is written in a file."""
    if isinstance(value, str):
        return value
    if not any(folder.location or folder.mode for folder in value.values()):
        return list(value)
    return {
        name: folder.to_plain() if folder.mode or not folder.location else folder.location
        for name, folder in value.items()
    }


def parse_folder_option(text: str) -> tuple[str, Folder]:
    """NAME[=LOCATION[,MODE]] of the command line."""
    name, _, rest = text.partition("=")
    location, comma, mode = rest.rpartition(",")
    if not comma or mode not in MODES:
        location, mode = rest, ""
    if "=" in text and not location:
        raise wrong(f"--folder {text}: expected NAME, NAME=LOCATION or NAME=LOCATION,MODE (ro, rw or sync)")
    return folder_name(name), Folder(location=location, mode=mode)


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def variable_of(output: str) -> str:
    """The environment variable that leads to an output."""
    return "PETCTL_OUTPUT_" + output.upper().replace("-", "_")


def outputs(value: object) -> dict[str, str]:
    """id -> location; an empty one is under the store."""
    if isinstance(value, str):
        value = values.words(value)
    found, problems = dict[str, str](), Problems()
    for place, name, location in _entries(value, "a list of ids, or a mapping of ids to locations"):
        with problems.at(place):
            text = values.text(name)
            if not _ID.fullmatch(text):
                raise wrong(f"an output's id has letters, digits, '-' and '_', at most 64, got {shown(name)}")
            twin = next((known for known in found if variable_of(known) == variable_of(text)), None)
            if twin is not None:
                raise wrong(f"{text!r} and {twin!r} would both be ${variable_of(text)}; rename one")
            found[text] = "" if location is None else values.single_line(location)
    problems.check()
    return found


def outputs_to_plain(value: dict[str, str]) -> list[str] | dict[str, str]:
    """As it is written in a file."""
    return dict(value) if any(value.values()) else list(value)
