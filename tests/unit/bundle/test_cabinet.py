"""The cabinet: whole files under their ids, put once, removed when nobody needs them."""

from __future__ import annotations

import errno
import os
import tarfile
import threading
from pathlib import Path

import pytest

from petctl.agent.data.code import BadCode
from petctl.bundle import Cabinet, take
from petctl.errors import NoRoom, UsageError
from tests.unit.bundle.conftest import Grow


def age(path: Path) -> None:
    os.utime(path, (1_000_000_000, 1_000_000_000))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_put_once(grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time nothing is packed."""
    cabinet, snapshot = Cabinet(tmp_path / "home/bundles"), take(grow({"a.py": "x"}))
    assert not cabinet.has(snapshot.id)
    path = cabinet.put(snapshot)
    assert path == cabinet.path(snapshot.id) == tmp_path / f"home/bundles/{snapshot.id}.tar.gz"
    assert cabinet.has(snapshot.id) and path.stat().st_mode & 0o777 == 0o444
    inode = path.stat().st_ino
    (snapshot.root / "a.py").write_text("later")
    assert cabinet.put(snapshot).stat().st_ino == inode
    with tarfile.open(path) as packed:
        assert packed.getnames() == ["a.py"]


def test_a_failed_put_leaves_nothing(grow: Grow, tmp_path: Path) -> None:
    """No draft, and no archive with another content."""
    cabinet, snapshot = Cabinet(tmp_path / "bundles"), take(grow({"a.py": "x"}))
    (snapshot.root / "a.py").write_text("y")
    with pytest.raises(UsageError):
        cabinet.put(snapshot)
    assert list((tmp_path / "bundles").iterdir()) == []


def test_a_full_disk_has_its_own_sentence(grow: Grow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves no draft that would fill it further."""
    snapshot = take(grow({"a.py": "x"}))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoRoom, match="no space left on its disk; free space"):
        Cabinet(tmp_path / "bundles").put(snapshot)
    assert names(tmp_path / "bundles") == []


def test_two_at_once(grow: Grow, tmp_path: Path) -> None:
    """Both succeed, one whole file remains."""
    snapshot = take(grow({f"{number}": os.urandom(50_000) for number in range(10)}))
    start, failures = threading.Barrier(4), []

    def put() -> None:
        start.wait(10)
        try:
            Cabinet(tmp_path / "bundles").put(snapshot)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=put) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == [] and names(tmp_path / "bundles") == [f"{snapshot.id}.tar.gz"]


def test_an_archive_from_elsewhere_has_to_prove_itself(grow: Grow, tmp_path: Path) -> None:
    """Another content under the same id would be that of every later job."""
    right, wrong = (take(grow({"a.py": name}, name)) for name in ("right", "wrong"))
    there, here = Cabinet(tmp_path / "there"), Cabinet(tmp_path / "here")
    archives = {snapshot.id: there.put(snapshot).read_bytes() for snapshot in (right, wrong)}
    for content in (archives[wrong.id], archives[right.id][:-20], b""):
        with pytest.raises(BadCode):
            here.take_in(right.id, lambda draft, content=content: draft.write_bytes(content))  # type: ignore[misc]
    assert names(tmp_path / "here") == []

    def bring(draft: Path) -> None:
        draft.write_bytes(archives[right.id])
        age(draft)

    path = here.take_in(right.id, bring)
    assert path.read_bytes() == archives[right.id] and path.stat().st_mode & 0o777 == 0o444
    assert here.remove_unused([]) == [], "it is as fresh as one that was packed just now"


def test_remove_unused(grow: Grow, tmp_path: Path) -> None:
    """Old ones that no job names, and old drafts; never what was put or asked for just now."""
    cabinet = Cabinet(tmp_path / "bundles")
    assert cabinet.remove_unused([]) == []
    used, unused, fresh = (take(grow({"a": name}, name)) for name in ("used", "unused", "fresh"))
    for snapshot in (used, unused, fresh):
        age(cabinet.put(snapshot))
    cabinet.put(fresh)
    draft = tmp_path / f"bundles/.{used.id}.tar.gz.abc"
    draft.touch()
    age(draft)
    assert cabinet.remove_unused([used.id]) == [unused.id]
    assert names(tmp_path / "bundles") == sorted(f"{one.id}.tar.gz" for one in (used, fresh))


@pytest.mark.parametrize("identity", ["", "../../etc/passwd", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_only_ids_are_names(tmp_path: Path, identity: str) -> None:
    """What is asked for may come from a job's record."""
    with pytest.raises(ValueError, match="not a snapshot id"):
        Cabinet(tmp_path).path(identity)
