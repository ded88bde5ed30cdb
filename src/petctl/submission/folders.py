"""Mapped folders: which location a folder of the project stands for, on which cluster. From configuration to values.

    folders:
      data: s3://bucket/data                                       read by jobs
      output: {location: az://account/box/output, mode: rw}        ... and written
    clusters:
      lab: {folders: {data: /srv/data}}                            another place, on that cluster

Names are paths from the project's directory; of nested ones the longest counts. Relative locations are relative to the
file that says them. On the command line `@data/voc20` is the location of that folder, `@lab:data/voc20` that on another
cluster. Nothing is opened here; what a job makes of it is in `folder_mounts.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from petctl.config.settings import cluster_settings, project_root, sections
from petctl.errors import SpecError, UsageError
from petctl.job.spec import Job
from petctl.job.spec.folders import MODES, Folder, folder_name
from petctl.job.spec.folders import folders as read_folders
from petctl.kinds import DEFAULT, all_kinds, is_kind
from petctl.storage.stores.location import Location, parse_location

MARK = "@"


@dataclass(frozen=True)
class Mapped:
    """A folder of the project and where it really is. `said`: who says so, for sentences."""

    name: str
    location: Location
    mode: str = MODES[0]
    said: str = ""


def folder_map(cluster: str = "") -> dict[str, Mapped]:
    """What the configuration maps, for one cluster: its own mappings over the general ones."""
    found: dict[str, Mapped] = {}
    for names in ((), ("clusters", cluster or DEFAULT)):
        for file, section in sections(*names):
            key = ".".join((*names, "folders"))
            for name, folder in _read(section.get("folders"), file, key).items():
                if not folder.location:
                    raise UsageError(
                        f"{file}: {key}.{name} has no location; write {name}: s3://BUCKET/PATH, "
                        f"or {name}: {{location: s3://BUCKET/PATH, mode: rw}}"
                    )
                found[name] = mapped(name, folder, file.parent, f"{file}: {key}.{name}")
    return found


def folder_names(job: Job, cluster: str) -> list[str]:
    """Every folder that is not code: the configuration's and the job's own."""
    return sorted({*folder_map(cluster), *(job.folders if isinstance(job.folders, dict) else ())})


def _read(value: object, file: Path, key: str) -> dict[str, Folder]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"{file}: {key} must be a mapping of folders to locations, such as data: s3://bucket/data")
    try:
        read = read_folders(value)
    except SpecError as error:
        raise UsageError("\n".join(f"{file}: {key}.{line}" for line in str(error).splitlines())) from None
    return {} if isinstance(read, str) else read


def mapped(name: str, folder: Folder, base: Path, said: str) -> Mapped:
    """The location of a folder, as a value; relative paths are relative to `base`."""
    text = folder.location
    if "://" not in text and not text.startswith("~"):
        text = str(base / text) + ("/" if text.endswith("/") else "")
    try:
        location = parse_location(text)
    except UsageError as error:
        raise UsageError(f"{said}: {error}") from None
    if location.sas:
        raise UsageError(
            f"{said}: the location holds a SAS, which others would see; leave it out and "
            f"store it with: petctl secret set azure-{location.account}-sas"
        )
    return Mapped(name, replace(location, slash=False), folder.mode or MODES[0], said)


def find(path: str, known: Mapping[str, Mapped]) -> Mapped | None:
    """The folder that a path from the project's directory is, or is in, as a mapping of exactly that path."""
    names = [name for name in known if path == name or path.startswith(f"{name}/")]
    if not names:
        return None
    found = known[max(names, key=len)]
    rest = path[len(found.name) + 1 :]
    return replace(found, name=path, location=found.location.below(rest)) if rest else found


def nested(path: str, known: Mapping[str, Mapped]) -> list[str]:
    """Folders below a path that are mapped somewhere else."""
    return sorted(name for name in known if name.startswith(f"{path}/"))


def inside_project(word: str) -> str:
    """A path of this machine as seen from the project's directory; empty when it is not in there."""
    path, root = os.path.abspath(word), str(project_root())  # noqa: PTH100  links stay what they are called
    return path[len(root) + 1 :] if path.startswith(f"{root}/") else ""


def look_up(word: str) -> Mapped:
    """What `@[CLUSTER:]FOLDER` stands for; UsageError names the folders there are."""
    cluster, colon, path = word.removeprefix(MARK).rpartition(":")
    if colon:
        check_cluster(cluster)
    try:
        name = folder_name(path)
    except SpecError as error:
        raise UsageError(f"{word}: {error}") from None
    known = folder_map(cluster)
    found = find(name, known)
    if found is None:
        raise UsageError(f"{word}: {not_mapped(name, known)}")
    return replace(found, location=replace(found.location, slash=word.endswith("/")))


def not_mapped(name: str, known: Mapping[str, Mapped]) -> str:
    """The end of a sentence about a folder that nobody mapped."""
    there = ", ".join(f"{folder.name} ({folder.location})" for folder in known.values())
    return (
        f"{name} is in no mapped folder; "
        + (f"the mapped folders are: {there}. " if there else "no folder is mapped yet. ")
        + f"Map it in {project_root() / 'petctl.yaml'}:\n  folders:\n    {name.partition('/')[0]}: s3://BUCKET/PATH"
    )


def check_cluster(name: str) -> None:
    """Whether there is such a cluster at all: a slip of the pen must not mean the general map."""
    if not is_kind(str(cluster_settings(name).get("kind", name))):
        raise UsageError(f"there is no cluster {name!r}; the clusters are: {', '.join(all_kinds())}")
