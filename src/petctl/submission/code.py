"""The code that a job runs from: a snapshot, taken when the job is submitted.

    code: WHERE      of what that names, or the job is refused
    nothing said     of the project that the submitter stands in; where that cannot be, the job runs in place, and why
    code: none       in place: the workers see the directory as it is

The answer is plain data, kept in the job's record, so that `resubmit` can run the same again. Where the archive goes
from here, and who unpacks it, is each cluster's own business.
"""

from __future__ import annotations

import os
import posixpath
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec.structs import replace

from petctl.agent.data.code import Bounds
from petctl.bundle.bundle_cache import Cabinet
from petctl.bundle.snapshot import LIMIT, Snapshot, take
from petctl.bundle.sources import Tree, tree_of
from petctl.config.settings import PROJECT_FILE, nearest, project_root
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.job.task import MODULE, SCRIPT
from petctl.submission.stores import fetch_from_store

_MARKS = (PROJECT_FILE, ".petctlignore", ".git")  # what lies at the top of a project
_SMALL, _FEW = 64 << 20, 20_000  # what is taken without being asked for: bytes, files


def code_of(job: Job, home: Path, folders: Sequence[str] = ()) -> tuple[dict[str, Any], list[str], str]:
    """The snapshot that the job runs from, and what the submitter should hear; or none, and the reason why."""
    if job.code:
        code = take_code(job, home, folders)
        return code, list(code["notes"]), ""
    code, why_not = own_code(job, home, folders)
    return code, [], why_not


def own_code(job: Job, home: Path, folders: Sequence[str] = ()) -> tuple[dict[str, Any], str]:
    """The snapshot of the submitter's project; or none, and the reason why it is not taken."""
    here = Path(job.cwd).expanduser().resolve()
    root = nearest(here, _MARKS)
    if not here.is_dir():
        return {}, ""  # said in its place
    if root in (Path.home(), *Path.home().parents, Path(tempfile.gettempdir())):
        # Somebody who runs a tool from just anywhere has no code in mind.
        return {}, f"{root} is not a project directory" if job.command.kind in (SCRIPT, MODULE) else ""
    if job.command.kind == SCRIPT and not _is_inside(Path(job.command.words[0]), here, root):
        return {}, f"{job.command.words[0]} is not a path inside {root}"
    try:
        return take_code(replace(job, code=str(root)), home, folders, _SMALL, _FEW), ""
    except UsageError as error:
        return {}, str(error)


def _is_inside(script: Path, here: Path, root: Path) -> bool:
    """Does the same name lead to it in a copy of the project?"""
    return not script.is_absolute() and (here / script).resolve().is_relative_to(root)


def take_code(
    job: Job, home: Path, folders: Sequence[str] = (), limit: int = LIMIT, most: int = sys.maxsize
) -> dict[str, Any]:
    """A snapshot of the job's code, kept in this home; unchanged code writes nothing. `folders` are mapped: no code."""
    with tree_of(job.code, base=Path.cwd(), fetch=partial(fetch_from_store, home)) as tree:
        cache = home / "cache" / "code" if tree.own else None  # nobody comes back to what was fetched
        project = str(project_root()) if tree.own else ""
        mapped = [place_in_code(name, project, str(tree.path.resolve())) for name in folders]
        snapshot = take(
            tree.path,
            cache=cache,
            exclude=[*own_state(tree.path, home), *mapped],
            allow_secrets=job.allow_secrets,
            limit=limit,
            most=most,
            gitignore=tree.own,
        )
        inside = _working_directory(job, tree)
        _check_script(job, snapshot, inside)
        archive = Cabinet(home / "bundles").put(snapshot)
        source, links = (str(snapshot.root), links_of(snapshot, mapped)) if tree.own else (tree.origin, {})
        record = code_record(snapshot, archive, source, project, links)
        own = str(tree.path.resolve()) if tree.own else ""
        work = str(Path(own, inside)) if own else ""
        return {**record, "inside": inside, "own": own, "work": work, "notes": list(tree.notes)}


def code_record(
    snapshot: Snapshot, archive: Path, source: str, project: str = "", links: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What a job's record says of the snapshot that it runs from, at its root.

    `own`: the user's directory that it was taken of. `work`: where its workers run on this machine. Both are empty
    where the snapshot is all that there is.
    """
    return {
        "id": snapshot.id,
        "archive": str(archive),
        "source": source,
        "inside": "",
        "own": "",
        "work": "",
        "files": len(snapshot.entries),
        "bytes": snapshot.size,
        "project": project,
        "links": dict(links or {}),
        "notes": [],
    }


def bounds_of(record: Mapping[str, Any]) -> Bounds | None:
    """How much the snapshot of a record holds; None for a record that does not say it."""
    return Bounds(record["files"], record["bytes"]) if record.get("files") else None


def _working_directory(job: Job, tree: Tree) -> str:
    """Where the workers run, from the snapshot's root: the job's own wish, else where the submitter stands."""
    wanted = PurePosixPath(job.cwd)
    if tree.own:
        here = Path(job.cwd).expanduser().resolve()
        root = tree.path.resolve()
        if here.is_relative_to(root):
            wanted = PurePosixPath(here.relative_to(root))
    if wanted.is_absolute() or ".." in wanted.parts:
        raise UsageError(f"the job's directory {job.cwd} is not inside its code, {job.code}; choose one that is")
    return "" if str(wanted) == "." else str(wanted)


def _check_script(job: Job, snapshot: Snapshot, inside: str) -> None:
    """Finds a missing script, or a missing directory, before anything is started."""
    names = {entry.path for entry in snapshot.entries}
    if inside and not any(name.startswith(f"{inside}/") for name in names):
        raise UsageError(f"the code has no directory {inside}, or the snapshot contains none of its files")
    if job.requirements and posixpath.normpath(posixpath.join(inside, job.requirements)) not in names:
        raise UsageError(f"there is no requirements file {job.requirements} in the snapshot")
    if job.command.kind != SCRIPT:
        return
    script = posixpath.normpath(f"{inside}/{job.command.words[0]}" if inside else job.command.words[0])
    if script not in names:
        raise UsageError(
            f"there is no script {job.command.words[0]} in the snapshot of {job.code}"
            f"{f' (in {inside})' if inside else ''}; name it relative to the top of the code, and do not ignore it"
        )


def own_state(root: Path, home: Path) -> list[str]:
    """petctl's own directory, where somebody keeps it inside the project."""
    root, home = root.resolve(), home.resolve()
    return [str(home.relative_to(root))] if home != root and home.is_relative_to(root) else []


def place_in_code(name: str, project: str, root: str) -> str:
    """Where a mapped folder is in a copy of the code: at its own place, else at the top."""
    path = os.path.relpath(f"{project}/{name}", root) if project else name
    return name if path.split("/")[0] in (".", "..") else path


def links_of(snapshot: Snapshot, mapped: Sequence[str]) -> dict[str, str]:
    """What the snapshot leaves out and this machine has: data, results, built extensions; not what is mapped."""
    links: dict[str, str] = {}
    waiting = list(snapshot.ignored)
    while waiting:
        path = waiting.pop()
        if any(name.startswith(f"{path}/") for name in mapped):  # then the rest of it, piece by piece
            waiting += [f"{path}/{item.name}" for item in (snapshot.root / path).iterdir()]
        elif path not in mapped:
            links[path] = str(snapshot.root / path)
    return dict(sorted(links.items()))
