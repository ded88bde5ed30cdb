"""The code that a job runs from: a snapshot of what `code` names, taken when the job is submitted.

The answer is plain data, kept in the job's record, so that `resubmit` can run the same again. Where the archive goes
from here, and who unpacks it, is each cluster's own business.
"""

from __future__ import annotations

import posixpath
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from petctl.agent.task import SCRIPT
from petctl.bundle.cabinet import Cabinet
from petctl.bundle.snapshot import Snapshot, take
from petctl.bundle.sources import Tree, tree_of
from petctl.clusters.stores import fetch_from_store
from petctl.errors import UsageError
from petctl.spec import Job


def take_code(job: Job, home: Path) -> dict[str, Any]:
    """A snapshot of the job's code, kept in this home; unchanged code writes nothing."""
    with tree_of(job.code, base=Path.cwd(), fetch=partial(fetch_from_store, home)) as tree:
        cache = home / "cache" / "code" if _lies_here(tree) else None  # nobody comes back to what was fetched
        snapshot = take(tree.path, cache=cache, allow_secrets=job.allow_secrets, gitignore=tree.gitignore)
        inside = _working_directory(job, tree)
        _check_script(job, snapshot, inside)
        return {
            "id": snapshot.id,
            "archive": str(Cabinet(home / "bundles").put(snapshot)),
            "source": str(snapshot.root) if _lies_here(tree) else tree.origin,
            "inside": inside,
            "files": len(snapshot.entries),
            "bytes": snapshot.size,
            "links": _links(tree, snapshot),
            "notes": list(tree.notes),
        }


def _working_directory(job: Job, tree: Tree) -> str:
    """Where the workers run, from the snapshot's root: the job's own wish, else where the submitter stands."""
    wanted = PurePosixPath(job.cwd)
    if _lies_here(tree):
        here = Path(job.cwd).expanduser().resolve()
        root = tree.path.resolve()
        if here.is_relative_to(root):
            wanted = PurePosixPath(here.relative_to(root))
    if wanted.is_absolute() or ".." in wanted.parts:
        raise UsageError(f"the job's directory {job.cwd} is not inside its code, {job.code}; name one that is")
    return "" if str(wanted) == "." else str(wanted)


def _check_script(job: Job, snapshot: Snapshot, inside: str) -> None:
    """Finds a missing script, or a missing directory, before anything is started."""
    names = {entry.path for entry in snapshot.entries}
    if inside and not any(name.startswith(f"{inside}/") for name in names):
        raise UsageError(f"the code has no directory {inside}, or nothing in it is part of the snapshot")
    if job.command.kind != SCRIPT:
        return
    script = posixpath.normpath(f"{inside}/{job.command.words[0]}" if inside else job.command.words[0])
    if script not in names:
        raise UsageError(
            f"there is no script {job.command.words[0]} in the snapshot of {job.code}"
            f"{f' (in {inside})' if inside else ''}; is it named from the top of the code, and not ignored?"
        )


def _links(tree: Tree, snapshot: Snapshot) -> dict[str, str]:
    """What the snapshot leaves out and this machine has: data, results, built extensions."""
    return {path: str(snapshot.root / path) for path in snapshot.ignored} if _lies_here(tree) else {}


def _lies_here(tree: Tree) -> bool:
    """A folder of the user's own, rather than something that was fetched for the snapshot."""
    return tree.gitignore
