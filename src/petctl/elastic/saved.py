"""Checkpoints on disk: how one is written so that it is there whole or not at all, and how the newest is found.

    DIRECTORY/epoch-1-round-3-step-450/
        model.pt         a part with tensors: torch.load(..., weights_only=True) gives its state_dict
        epoch.pkl        a part without
        __0_0.distcp     shards of sharded parts, of each rank (`sharded.py`)
        manifest.json    written last: the parts, and size and checksum of every file

All of it is made under another name and renamed when it is synced. The order is (epoch, round, step): what a cut-off
worker of an older round writes late is older, however many steps it made. Nothing here knows when to write, or
which rank does; a checkpoint that does not fit its manifest is told of and passed over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pickle
import re
import secrets
import shutil
import sys
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Iterator, List, NamedTuple, Optional, Tuple

from petctl.elastic import parts
from petctl.elastic.state import Snapshot

MANIFEST = "manifest.json"
_VERSION = 1
_NAME = re.compile(r"epoch-(\d+)-round-(\d+)-step-(\d+)\Z")
_UNFINISHED = re.compile(r"\.writing-(epoch-\d+-round-\d+-step-\d+)-[0-9a-f]+\Z")
_SHARD = ".distcp"  # as torch.distributed.checkpoint calls its files; all together they may be huge
_BLOCK = 1 << 20


class Mark(NamedTuple):
    """Which checkpoint: the higher one is the newer one."""

    epoch: int
    round: int
    step: int

    def __str__(self) -> str:
        return f"epoch-{self.epoch}-round-{self.round}-step-{self.step}"


class Damaged(Exception):
    """A checkpoint that is not what its manifest says."""


def marks(directory: Path) -> List[Mark]:
    """All checkpoints there are, the newest first."""
    return sorted((mark for mark in map(_mark, _listing(directory)) if mark is not None), reverse=True)


def write(
    directory: Path,
    mark: Mark,
    snapshot: Snapshot,
    sharded: Collection[str] = (),
    write_sharded: Optional[Callable[[Path], None]] = None,
) -> None:
    """Makes one checkpoint, durable when it returns; others write the `sharded` parts. OSError: it cannot be."""
    with _unfinished(directory, mark) as path:
        names: Dict[str, str] = {}
        for number, (name, copy) in enumerate(sorted(snapshot.copies.items())):
            if name not in sharded:
                names[name] = _write_part(path, name if name.isidentifier() else f"part-{number}", copy)
        if write_sharded is not None:
            write_sharded(path)
        _finish(path, mark, snapshot, names, sorted(sharded))
        _publish(path, directory, mark)


def _finish(path: Path, mark: Mark, snapshot: Snapshot, names: Dict[str, str], sharded: List[str]) -> None:
    """Syncs every file and adds the manifest."""
    files = {file.name: _measure(file) for file in sorted(path.iterdir())}
    manifest = {
        "petctl_checkpoint": _VERSION,
        "epoch": mark.epoch,
        "round": mark.round,
        "step": snapshot.commits,
        "world": snapshot.world,
        "parts": names,
        "sharded": sharded,
        "files": files,
    }
    with open(path / MANIFEST, "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    _sync_directory(path)


def _publish(path: Path, directory: Path, mark: Mark) -> None:
    """Gives a finished checkpoint its name."""
    final = directory / str(mark)
    if final.is_dir():
        return  # the same commit of the same round: the same values
    path.rename(final)
    _sync_directory(directory)


def read(directory: Path, mark: Mark, checked: bool = False) -> Snapshot:
    """The parts of one checkpoint, but for the values of sharded ones; Damaged when it is not whole.

    `checked`: somebody has looked at its files already.
    """
    path = directory / str(mark)
    manifest = _manifest(path) if checked else check(path)
    copies = {name: parts.Copy(b"") for name in manifest["sharded"]}
    for name, file in manifest["parts"].items():
        try:
            copies[name] = parts.take(name, _read_part(path / file))
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, RuntimeError) as error:
            raise Damaged(f"{file} cannot be read: {error}") from None
    return Snapshot(int(manifest["step"]), int(manifest["world"]), copies)


def check(path: Path) -> Dict[str, Any]:
    """The manifest of a checkpoint all of whose files are as they were written, or Damaged."""
    manifest = _manifest(path)
    try:
        for file_name, expected in manifest["files"].items():
            if _measure(path / file_name, sync=False) != expected:
                raise Damaged(f"{file_name} is not as it was written")
    except (OSError, KeyError, AttributeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
    return manifest


def _manifest(path: Path) -> Dict[str, Any]:
    try:
        manifest: Dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
        if manifest["petctl_checkpoint"] != _VERSION:
            raise Damaged("it is of another version of petctl")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
    return manifest


def prune(directory: Path, keep: int) -> None:
    """Removes all but the newest `keep`."""
    for mark in marks(directory)[keep:]:
        doomed = directory / f".writing-{mark}-{secrets.token_hex(4)}"
        try:
            (directory / str(mark)).rename(doomed)  # half removed it must not look whole
        except OSError:
            continue  # somebody else was faster
        shutil.rmtree(doomed, ignore_errors=True)


def sweep(directory: Path, before: Tuple[int, int]) -> None:
    """Removes what writers of (epoch, round) up to `before` did not finish."""
    for name in _listing(directory):
        match = _UNFINISHED.match(name)
        mark = _mark(match.group(1)) if match else None
        if mark is not None and mark[:2] <= before:
            shutil.rmtree(directory / name, ignore_errors=True)


@contextlib.contextmanager
def _unfinished(directory: Path, mark: Mark) -> Iterator[Path]:
    """A directory to write in that is gone afterwards, unless it got its final name."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f".writing-{mark}-{secrets.token_hex(4)}"
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write_part(path: Path, stem: str, copy: parts.Copy) -> str:
    name = f"{stem}.pt" if copy.tensors else f"{stem}.pkl"
    with open(path / name, "wb") as file:
        if copy.tensors:
            sys.modules["torch"].save(parts.value(copy), file)
        else:
            file.write(copy.skeleton)
    return name


def _read_part(path: Path) -> Any:
    if path.suffix != ".pt":
        with open(path, "rb") as file:
            return pickle.load(file)
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # a state_dict with classes of its own beside the tensors
        return torch.load(path, map_location="cpu", weights_only=False)


def _measure(path: Path, sync: bool = True) -> Dict[str, Any]:
    """Size and checksum of a file; synced first, where it was just written. A shard's writer has done that itself."""
    if path.suffix == _SHARD:
        return {"size": path.stat().st_size}
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if sync:
            os.fsync(descriptor)
        while True:
            block = os.read(descriptor, _BLOCK)
            if not block:
                return {"size": size, "sha256": digest.hexdigest()}
            digest.update(block)
            size += len(block)
    finally:
        os.close(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass  # some network file systems cannot
    finally:
        os.close(descriptor)


def _mark(name: str) -> Optional[Mark]:
    match = _NAME.match(name)
    return Mark(*map(int, match.groups())) if match else None


def _listing(directory: Path) -> List[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError:
        return []
