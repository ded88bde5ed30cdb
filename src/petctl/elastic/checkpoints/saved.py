"""Checkpoints on disk: how one is written so that it is there whole or not at all, and how the newest is found.

    DIRECTORY/epoch-1-round-3-step-450/
        model.pt         a part with tensors: torch.load(..., weights_only=True) gives its state_dict
        epoch.pkl        a part without
        __0_0.distcp     shards of sharded parts, of each rank (`sharded.py`)
        manifest.json    written last: the parts, and size and checksum of every file
    DIRECTORY/.epoch-2   workers of epoch 2 train: nobody of an older one writes here any more

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
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Tuple

from petctl.elastic import place
from petctl.elastic.checkpoints import pickles
from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.commits import Mark, Snapshot
from petctl.errors import UsageError
from petctl.files import replace_json, sync_directory

MANIFEST = "manifest.json"
_VERSION = 1
_NAME = re.compile(r"epoch-(\d+)-round-(\d+)-step-(\d+)\Z")
_CLAIM = re.compile(r"\.epoch-(\d+)\Z")
_DRAFT = re.compile(r"\.\.epoch-(\d+)\.[0-9a-f]{8}\.\d+\Z")  # of a claim: files.draft_of
_UNFINISHED = re.compile(r"\.writing-(epoch-\d+-round-\d+-step-\d+)-[0-9a-f]+\Z")
_SHARD = ".distcp"  # as torch.distributed.checkpoint calls its files; all together they may be huge
_BLOCK = 1 << 20


class Damaged(Exception):
    """A checkpoint that is not what its manifest says."""


class Superseded(OSError):
    """A newer round has written here already: this worker was cut off, and what it writes is nobody's."""


def marks(directory: Path) -> List[Mark]:
    """All checkpoints there are, the newest first."""
    return sorted((mark for mark in map(_mark, _listing(directory)) if mark is not None), reverse=True)


def claim(directory: Path, epoch: int, base: int) -> None:
    """Shuts out writers of older epochs, before this one has written a checkpoint of its own."""
    older = _claims(directory)
    if not older or max(older) < epoch:
        directory.mkdir(parents=True, exist_ok=True)
        replace_json(directory / f".epoch-{epoch}", {"job": place.job(), "base": base})
    for name in _listing(directory):
        match = _CLAIM.match(name) or _DRAFT.match(name)
        if match and int(match.group(1)) < epoch:
            (directory / name).unlink(missing_ok=True)


def _claims(directory: Path) -> List[int]:
    """The epochs whose workers have trained with this directory, as far as they are remembered."""
    return [int(match.group(1)) for match in map(_CLAIM.match, _listing(directory)) if match]


def write(
    directory: Path,
    mark: Mark,
    snapshot: Snapshot,
    sharded: Collection[str] = (),
    write_sharded: Optional[Callable[[Path], None]] = None,
) -> None:
    """Makes one checkpoint, durable when it returns; others write the `sharded` parts. OSError: it cannot be."""
    _check_is_newest(directory, mark)
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
        "step": snapshot.mark.step,
        "world": snapshot.world,
        "job": place.job(),
        "base": snapshot.base,
        "parts": names,
        "sharded": sharded,
        "files": files,
    }
    with open(path / MANIFEST, "w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    sync_directory(path)


def _publish(path: Path, directory: Path, mark: Mark) -> None:
    """Gives a finished checkpoint its name."""
    final = directory / str(mark)
    _check_is_newest(directory, mark)
    if final.is_dir():
        return  # the same commit of the same round: the same values
    path.rename(final)
    sync_directory(directory)


def _check_is_newest(directory: Path, mark: Mark) -> None:
    newer = [other for other in marks(directory) if other[:2] > mark[:2]]
    if newer:
        raise Superseded(f"round {newer[0].round} (epoch {newer[0].epoch}) has written {newer[0]} already")
    epoch = max(_claims(directory), default=0)
    if epoch > mark.epoch:
        raise Superseded(f"workers of a newer coordinator (epoch {epoch}) train already")


def read(directory: Path, mark: Mark, checked: bool = False, allow_pickle: bool = False) -> Snapshot:
    """The parts of one checkpoint, but for the values of sharded ones; Damaged when it is not whole.

    `checked`: its files were compared with the manifest already. `allow_pickle`: whatever it holds is trusted.
    """
    path = directory / str(mark)
    manifest = _manifest(path) if checked else check(path)
    copies = {name: parts.Copy(b"") for name in manifest["sharded"]}
    for name, file in manifest["parts"].items():
        try:
            copies[name] = parts.take(name, _read_part(path / file, allow_pickle))
        except (OSError, pickle.UnpicklingError, EOFError, AttributeError, ImportError, RuntimeError) as error:
            raise Damaged(f"{file} cannot be read: {error}") from None
    return Snapshot(mark, int(manifest["world"]), copies, base(directory))


def base(directory: Path) -> int:
    """The epoch that this job counts from, so that its checkpoints are newer than all that an earlier job has left."""
    earlier = [0]
    for epoch in _claims(directory):
        try:
            claimed = json.loads((directory / f".epoch-{epoch}").read_bytes())
            if claimed["job"] == place.job():
                return int(claimed["base"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        earlier.append(epoch)
    for mark in marks(directory):
        try:
            manifest = _manifest(directory / str(mark))
            if manifest.get("job") == place.job():
                return int(manifest["base"])
        except (Damaged, KeyError, ValueError):
            pass
        earlier.append(mark.epoch)
    return max(earlier)


def is_sharded(directory: Path, mark: Mark) -> bool:
    """Whether all ranks are needed to load it; False also where it cannot be told."""
    try:
        return bool(_manifest(directory / str(mark))["sharded"])
    except (Damaged, KeyError):
        return False


def check(path: Path) -> Dict[str, Any]:
    """The manifest of a checkpoint all of whose files are as they were written, or Damaged."""
    manifest = _manifest(path)
    try:
        for file_name, expected in manifest["files"].items():
            if _measure(path / file_name, sync=False) != expected:
                raise Damaged(f"{file_name} changed after it was written")
    except (OSError, KeyError, AttributeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
    return manifest


def _manifest(path: Path) -> Dict[str, Any]:
    try:
        manifest: Dict[str, Any] = json.loads((path / MANIFEST).read_bytes())
        if manifest["petctl_checkpoint"] != _VERSION:
            raise Damaged("it was written by another version of petctl")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from None
    return manifest


def prune(directory: Path, keep: int, own: Mark) -> None:
    """Removes all but the newest `keep`, and none that is newer or further than `own`."""
    for mark in marks(directory)[keep:]:
        if mark > own or mark.step > own.step:
            continue
        doomed = directory / f".writing-{mark}-{secrets.token_hex(4)}"
        try:
            (directory / str(mark)).rename(doomed)  # half removed it must not look whole
        except OSError:
            continue  # somebody else was faster
        shutil.rmtree(doomed, ignore_errors=True)


def sweep(directory: Path, before: Tuple[int, int]) -> None:
    """Removes what writers of (epoch, round) up to `before` did not finish; only rank 0, which claims and writes."""
    for name in _listing(directory):
        draft = _DRAFT.match(name)
        if draft and int(draft.group(1)) <= before[0]:
            with contextlib.suppress(OSError):
                (directory / name).unlink()
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
            sys.modules["torch"].save(parts.value(parts.on_host(copy)), file)
        else:
            file.write(copy.skeleton)
    return name


def _read_part(path: Path, allow_pickle: bool) -> Any:
    """The value of one file; UsageError where reading it would run code that nobody has allowed."""
    try:
        if path.suffix != ".pt":
            with open(path, "rb") as file:
                return pickle.load(file) if allow_pickle else pickles.load(file)
        import torch

        return torch.load(path, map_location="cpu", weights_only=not allow_pickle)
    except pickle.UnpicklingError as error:
        if allow_pickle:
            raise
        raise UsageError(
            f"elastic.checkpoint: {path} is not loaded, because loading could run code: {str(error).splitlines()[0]} "
            "If you trust whoever can write there, give elastic.checkpoint(..., allow_pickle=True)"
        ) from None


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


def _mark(name: str) -> Optional[Mark]:
    match = _NAME.match(name)
    return Mark(*map(int, match.groups())) if match else None


def _listing(directory: Path) -> List[str]:
    try:
        return [entry.name for entry in directory.iterdir()]
    except OSError:
        return []
