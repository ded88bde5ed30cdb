"""petctl's home: closed to other users when it is made, refused where others could run programs through it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from petctl.clusters.local.queue.slots import Slots
from petctl.errors import UsageError
from petctl.home import petctl_home
from petctl.jobs.registry import Registry

ANOTHER = 54321
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home that is not there yet, for a user who shares everything."""
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "state" / "home"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    before = os.umask(0)
    try:
        yield tmp_path / "state" / "home"
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_for_the_user_alone(home: Path) -> None:
    assert petctl_home() == home
    assert mode(home) == mode(home.parent) == 0o700


def test_databases_cannot_be_read_or_locked_by_others(home: Path) -> None:
    home.mkdir(parents=True, mode=0o755)
    (home / "registry.db").touch(0o644)  # of an older petctl
    Registry(petctl_home()).know("lab")
    assert Registry(home).clusters() == ["lab"]
    with Slots(home).steps():
        pass
    exposed = [path for path in home.rglob("*") if mode(path) & 0o077]
    assert {path.name for path in home.rglob("*.db")} == {"registry.db", "slots.db"} and not exposed


@needs_root
def test_a_home_of_another_user_is_refused(home: Path) -> None:
    os.chown(petctl_home(), ANOTHER, -1)
    with pytest.raises(UsageError, match=f"{home} belongs to the user number {ANOTHER}.*PETCTL_HOME"):
        petctl_home()


@needs_root
def test_under_sudo_the_callers_home_is_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(petctl_home(), ANOTHER, -1)
    monkeypatch.setenv("SUDO_UID", str(ANOTHER))
    assert petctl_home() == home


@needs_root
def test_a_link_of_another_user_is_refused(home: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    home.parent.mkdir(mode=0o755)
    home.symlink_to(tmp_path / "real")
    assert petctl_home() == home
    os.chown(home, ANOTHER, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="belongs to the user"):
        petctl_home()


def test_a_home_that_every_user_can_change_is_refused_and_can_be_repaired(home: Path) -> None:
    home.mkdir(parents=True, mode=0o777)
    with pytest.raises(UsageError, match=r"mode 0777.*chmod -R go= ") as refused:
        petctl_home()
    assert refused.value.code == 2
    home.chmod(0o700)
    assert petctl_home() == home


def test_nobody_is_advised_to_close_a_directory_that_all_use(home: Path) -> None:
    home.mkdir(parents=True)
    home.chmod(0o1777)
    with pytest.raises(UsageError, match=r"mode 1777.*could run programs as you; name another directory"):
        petctl_home()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("file", "is not a directory"),
        ("file/home", "is not a directory"),
        ("loop", "is a broken link"),
        ("dangling", "is a broken link"),
        ("a" * 300, "File name too long"),
        ("/proc/home", "No such file or directory"),
        ("~no-such-user-at-all", "there is no such user"),
    ],
)
def test_a_wrong_home_is_the_users_error(wrong: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PETCTL_HOME", wrong)
    with pytest.raises(UsageError, match=why) as refused:
        petctl_home()
    assert "name another directory with PETCTL_HOME" in str(refused.value)
