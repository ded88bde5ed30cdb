"""A job's mapped folders: from what it asks for and the configuration to plain data in its record.

They are resolved when the job is submitted and stay what they were then: names, locations, modes, endpoints; never
keys. A folder on this machine is linked into the job's copy of the code; one in an object store is brought to each
machine by its nodes (`agent/data/folders.py`), which ask the coordinator for URLs: grant `folder:NAME`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from petctl.config.settings import project_root, top_setting
from petctl.errors import NoSuchPlace, UsageError
from petctl.job.spec import Job, parse_bytes
from petctl.job.spec.folders import ALL, Folder
from petctl.job.task import Folder as NodeFolder
from petctl.job.task import Mount
from petctl.storage.core.grants import Grants
from petctl.storage.stores.credentials import Surroundings
from petctl.submission.code import place_in_code
from petctl.submission.folders import Mapped, find, folder_map, mapped, not_mapped
from petctl.submission.store_grants import grant_of, pin
from petctl.submission.stores import surroundings

GRANT = "folder:"
CACHE_LIMIT = 50 << 30


def wanted_folders(job: Job, cluster: str) -> list[Mapped]:
    """The folders that the job is to see, none inside another one of the same place."""
    known = folder_map(cluster)
    if not isinstance(job.folders, dict):
        found = list(known.values()) if job.folders == ALL else []
    else:
        found = [_wanted(name, folder, known) for name, folder in job.folders.items()]
    by_name = {folder.name: folder for folder in found}
    return [folder for folder in found if not _is_part(folder, by_name)]


def _wanted(name: str, folder: Folder, known: Mapping[str, Mapped]) -> Mapped:
    if folder.location:
        return mapped(name, folder, Path.cwd(), f"folders.{name}")
    there = find(name, known)
    if there is None:
        raise UsageError(f"folders.{name}: {not_mapped(name, known)}\nor give its location: --folder {name}=LOCATION")
    return Mapped(name, there.location, folder.mode or there.mode, there.said)


def _is_part(folder: Mapped, known: Mapping[str, Mapped]) -> bool:
    """Whether a folder above it brings the same files already."""
    above = find(folder.name, {name: other for name, other in known.items() if name != folder.name})
    return above is not None and (above.location, above.mode) == (folder.location, folder.mode)


def pin_folders(
    job: Job, cluster: str, home: Path, code: Mapping[str, Any], notes: Sequence[str] = ()
) -> tuple[list[dict[str, Any]], list[str]]:
    """What the record keeps of a job's folders, and what the submitter should hear, with the `notes` so far."""
    folders = wanted_folders(job, cluster)
    if not code:
        why = notes[0] if notes else "the job runs in place"
        pinned = [_in_place(folder, project_root(job.cwd), why) for folder in folders]
        return pinned, [*notes, *_notes_in_place(folders)]
    known = surroundings(home)
    pinned = [_pinned(folder, code, known) for folder in folders]
    for inner in pinned:
        for outer in pinned:
            if outer["directory"] and inner["path"].startswith(f"{outer['path']}/"):
                raise UsageError(
                    f"the folder {inner['name']} lies in {outer['name']}, which is the directory {outer['directory']}: "
                    f"one cannot appear inside the other. Choose only one: --folder {inner['name']}"
                )
    return pinned, list(notes)


def _pinned(folder: Mapped, code: Mapping[str, Any], known: Surroundings) -> dict[str, Any]:
    try:
        place = pin(str(folder.location), known)
    except UsageError as error:
        raise UsageError(f"the folder {folder.name} ({folder.said}): {error}") from None
    directory = place["location"] if place["location"].startswith("/") else ""
    if directory and not Path(directory).is_dir():
        raise UsageError(
            f"the folder {folder.name} is {directory} ({folder.said}), which does not exist; create it, or map "
            f"the folder to another place"
        )
    path = place_in_code(folder.name, code.get("project", ""), code["source"])
    return {"name": folder.name, "path": path, "mode": folder.mode, "directory": directory, **place}


def pin_mounts(mounts: Sequence[Mount], home: Path) -> list[dict[str, Any]]:
    """Mounts that lie in object stores, as folders of the nodes; they have no place in the code."""
    usual = {"mode": "rw", "directory": ""}
    return [
        {"name": mount.folder, "path": mount.folder, **usual, **pin(mount.location, surroundings(home))}
        for mount in mounts
    ]


def _in_place(folder: Mapped, project: Path, why: str) -> dict[str, Any]:
    """A job without a snapshot sees the project's directory as it is."""
    path = project / folder.name
    if not path.exists():
        bring = f"link it there (ln -s {folder.location} {folder.name})"
        if not folder.location.local:
            bring = f"download it with: petctl data down {folder.name}"
        raise UsageError(
            f"{why}; the mapped folder {folder.name} is missing there: {bring}, "
            "or run from a snapshot (--code .), or without mapped folders (--no-folders)"
        )
    return {"name": folder.name, "location": str(folder.location), "mode": folder.mode, "in_place": str(path)}


def _notes_in_place(folders: Iterable[Mapped]) -> list[str]:
    return [
        f"running in place: what the job writes to {folder.name} stays there; upload it with: petctl data up "
        f"{folder.name}"
        for folder in folders
        if folder.mode != "ro" and not folder.location.local
    ]


def check_folders(pinned: Sequence[Mapping[str, Any]], home: Path) -> None:
    """Finds a missing bucket, a wrong key or an empty place before the job is in line. Asks the stores."""
    known = surroundings(home)
    for folder in pinned:
        if "path" not in folder or folder["directory"]:
            continue
        grants = Grants({"": grant_of(folder, known, folder["mode"] != "ro")})
        if not grants.page("", "")["entries"] and folder["mode"] == "ro":
            raise NoSuchPlace(
                f"{folder['location']} is empty or does not exist, but the folder {folder['name']} is mapped to "
                f"it; upload it with: petctl data up {folder['name']}"
            )


def cache_limit() -> int:
    """How much the copies of folders may take on this machine: `cache:` in the configuration."""
    found = top_setting("cache")
    if found is None:
        return CACHE_LIMIT
    file, value = found
    try:
        limit = parse_bytes(value)
    except UsageError as error:
        raise UsageError(f"{file}: cache: {error}") from None
    if not limit:
        raise UsageError(f"{file}: cache: must be above zero, such as cache: 50GiB")
    return int(limit)


def node_folders(pinned: Sequence[Mapping[str, Any]]) -> list[NodeFolder]:
    """What the nodes have to do for it."""
    return [
        NodeFolder(
            path=folder["path"],
            location=folder["location"],
            mode=folder["mode"],
            grant="" if folder["directory"] else GRANT + folder["name"],
            directory=folder["directory"],
            endpoint=folder.get("endpoint", ""),
        )
        for folder in pinned
        if "path" in folder
    ]


def folder_grants(pinned: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the coordinator may sign for: the places, without keys."""
    return {
        GRANT + folder["name"]: {
            **{name: folder[name] for name in ("location", "endpoint", "region", "anonymous") if name in folder},
            "below": "",
            "write": folder["mode"] != "ro",
        }
        for folder in pinned
        if "path" in folder and not folder["directory"]
    }


def as_wish(pinned: Sequence[Mapping[str, Any]]) -> str | dict[str, Folder]:
    """The same folders, as another job would ask for them."""
    wishes = {folder["name"]: Folder(location=folder["location"], mode=folder["mode"]) for folder in pinned}
    return wishes or "none"
