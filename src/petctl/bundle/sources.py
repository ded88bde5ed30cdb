"""Where code comes from: a text that the user wrote, made a folder on this machine.

    FOLDER, FILE                                     used where they lie
    git+file://PATH@REF, git+https://HOST/PATH@REF   that commit, pinned
    FILE.tar.gz, .tgz, .tar, .tar.zst, .zip          unpacked
    http(s)://..., SCHEME://... (through `fetch`)    an archive, unpacked, or a single script

`#subdirectory=DIR` after any but the first picks a folder inside. What is fetched or unpacked lies in a folder of its
own, which goes with the context, also on failure. It must not take the snapshot, nor know object stores.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from petctl.bundle.snapshot import LIMIT
from petctl.errors import NotFound, UsageError

Fetch = Callable[[str, Path], None]  # brings the object at a location into a file

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")
_PREFIX = "petctl-code-"


@dataclass(frozen=True)
class Tree:
    """Code on this machine. `origin` names it for good where it can (a commit instead of a branch); `notes` are
    sentences for the user; `own` is a folder of the user's where it lies, not something that was picked or fetched."""

    path: Path
    origin: str
    own: bool = False
    notes: tuple[str, ...] = ()


@contextmanager
def tree_of(
    text: str, *, base: Path | None = None, fetch: Fetch | None = None, limit: int = LIMIT, scratch: Path | None = None
) -> Iterator[Tree]:
    """The tree that `text` names. Paths are relative to `base`; temporary folders are made in `scratch`."""
    if "://" not in text:
        path, _, fragment = text.partition("#") if "#subdirectory=" in text else (text, "", "")
        local = (base or Path()) / Path(path).expanduser()
        if not local.exists():
            raise NotFound(f"{local} does not exist; name a folder, a file, an archive or an address for the code")
        kind = "" if local.is_dir() else _kind(local.name)
        if not kind:
            yield Tree(local, str(local), own=local.is_dir())
            return
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=scratch) as folder:
            yield _unpacked(local, kind, Path(folder), str(local), fragment, limit)
        return
    parts = urlsplit(text)
    if parts.username is not None:
        raise UsageError(
            f"the address of the code at {parts.hostname} contains a name or password, which others would see; "
            "leave it out and set up a credential helper"
        )
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=scratch) as folder:
        if parts.scheme.startswith("git+"):
            yield _from_git(parts, Path(folder))
        else:
            yield _fetched(parts, Path(folder), fetch, limit)


def _from_git(parts: SplitResult, folder: Path) -> Tree:
    from petctl.bundle.git import check_out

    transport = parts.scheme.removeprefix("git+")
    if transport not in ("file", "https") and not (transport == "http" and parts.hostname in _LOOPBACK):
        raise UsageError(f"{parts.scheme}:// cannot be used to fetch code; use git+https:// or git+file://")
    path, at, ref = parts.path.rpartition("@")
    url = f"{transport}://{parts.netloc}{path if at else parts.path}"
    tree, repository = folder / "tree", folder / "repository"
    tree.mkdir()
    repository.mkdir()
    checkout = check_out(url, unquote(ref) if at else "HEAD", tree, repository)
    origin = f"git+{url}@{checkout.commit}" + (f"#{parts.fragment}" if parts.fragment else "")
    notes = tuple(f"the submodule {name} is not in the snapshot" for name in checkout.submodules)
    return Tree(_inside(tree, parts.fragment, url), origin, notes=notes)


def _fetched(parts: SplitResult, folder: Path, fetch: Fetch | None, limit: int) -> Tree:
    location = parts._replace(fragment="").geturl()
    shown = location.partition("?")[0]  # what follows may be a signature
    name = unquote(parts.path).rpartition("/")[2]
    if name in ("", ".", ".."):
        raise UsageError(f"{shown} does not name a file; name an archive or a script")
    kind = _kind(name)
    tree = folder / "tree"
    tree.mkdir()
    file = folder / "archive" if kind else tree / name
    if parts.scheme in ("http", "https"):
        from petctl.bundle.download import download

        download(location, file, limit)
    elif fetch is not None:
        fetch(location, file)
    else:
        raise UsageError(f"{parts.scheme}:// is not a known source of code; see `petctl run --help`")
    if kind:
        return _unpacked(file, kind, folder, shown, parts.fragment, limit)
    with open(file, "rb") as script:
        if script.read(2) == b"#!":
            file.chmod(0o755)  # neither the web nor a store keeps the exec bit
    return Tree(tree, shown)


def _unpacked(archive: Path, kind: str, folder: Path, name: str, fragment: str, limit: int) -> Tree:
    from petctl.bundle.unpack import unpack

    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    unpack(archive, tree, kind=kind, name=name, limit=limit)
    return Tree(_inside(tree, fragment, name), name + (f"#{fragment}" if fragment else ""))


def _inside(tree: Path, fragment: str, name: str) -> Path:
    """The folder of `tree` that the fragment asks for."""
    wanted = parse_qs(fragment).get("subdirectory", [""])[0]
    path = (tree / wanted.strip("/")).resolve()
    if fragment and not wanted:
        raise UsageError(f"#{fragment} after {name} is not supported; only #subdirectory=FOLDER is")
    if not path.is_relative_to(tree.resolve()) or not path.is_dir():
        raise NotFound(f"{name} has no folder {wanted!r}; check #subdirectory=")
    return path


def _kind(name: str) -> str:
    """Which archive a file of this name is, or an empty string: it is a script then."""
    return next((ending for ending in _ENDINGS if name.lower().endswith(ending)), "")
