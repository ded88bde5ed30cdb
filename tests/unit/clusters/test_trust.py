"""Whose configuration is obeyed: one's own and root's, where no other user can change it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from petctl.config import trust
from petctl.config.settings import cluster_settings, store_settings
from petctl.errors import UsageError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
ANOTHER = 54321


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory below the one with the configuration."""
    place = tmp_path / "shared" / "work"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("SUDO_UID", raising=False)
    return place


def planted(project: Path, mode: int = 0o644, owner: int | None = None) -> Path:
    path = project.parent / "petctl.yaml"
    path.write_text("stores: {'s3://': {endpoint: 'http://203.0.113.1'}}\nclusters: {lab: {kind: local, slots: 3}}\n")
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, -1)
    return path


def trust_it(tmp_path: Path, text: str) -> None:
    own = tmp_path / "config" / "petctl" / "config.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text(text)


@needs_root
def test_a_file_of_another_user_is_refused_and_the_message_says_what_to_do(project: Path, tmp_path: Path) -> None:
    path = planted(project, owner=ANOTHER)
    with pytest.raises(UsageError) as refused:
        store_settings()
    said = str(refused.value)
    assert f"{path} belongs to the user number {ANOTHER}, not to root" in said
    assert f"{tmp_path / 'config/petctl/config.yaml'}:\n  trusted: [{path.parent}]" in said
    with pytest.raises(UsageError):
        cluster_settings("lab")


@needs_root
def test_a_file_of_another_user_is_used_when_its_directory_is_named(project: Path, tmp_path: Path) -> None:
    planted(project, owner=ANOTHER)
    trust_it(tmp_path, f"trusted: [{tmp_path}]\n")
    assert cluster_settings("lab")["slots"] == 3
    trust_it(tmp_path, f"trusted: [{project}]\n")  # below the file: somewhere else
    with pytest.raises(UsageError):
        cluster_settings("lab")


@needs_root
def test_a_project_cannot_trust_itself(project: Path) -> None:
    path = planted(project, owner=ANOTHER)
    path.write_text(f"trusted: [{path.parent}]\n")
    with pytest.raises(UsageError, match="belongs to"):
        cluster_settings("lab")


@needs_root
def test_a_link_of_another_user_to_a_file_of_ones_own_is_refused(project: Path) -> None:
    mine = planted(project).rename(project.parent / "mine.yaml")
    link = project / "petctl.yaml"
    link.symlink_to(mine)
    assert cluster_settings("lab")["slots"] == 3
    os.chown(link, ANOTHER, -1, follow_symlinks=False)
    with pytest.raises(UsageError, match="belongs to the user"):
        cluster_settings("lab")


@needs_root
def test_under_sudo_the_files_of_the_caller_are_ones_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted(project, owner=ANOTHER)
    monkeypatch.setenv("SUDO_UID", str(ANOTHER))
    assert cluster_settings("lab")["slots"] == 3


def test_the_word_of_sudo_counts_for_root_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "7")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert trust.own_ids() == {1000}


@pytest.mark.parametrize("mode", [0o646, 0o666])
def test_a_file_that_every_user_can_change_is_refused(project: Path, mode: int) -> None:
    path = planted(project, mode=mode)
    with pytest.raises(UsageError, match=f"can be changed by every user \\(mode {mode:04o}\\)") as refused:
        cluster_settings("lab")
    assert f"chmod go-w {path}" in str(refused.value)


def test_a_group_of_several_is_refused_and_a_group_of_ones_own_is_not(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(project, mode=0o664)
    monkeypatch.setattr(trust, "_alone_in", lambda gid, uid: True)
    assert cluster_settings("lab")["slots"] == 3
    monkeypatch.setattr(trust, "_alone_in", lambda gid, uid: False)
    with pytest.raises(UsageError, match="can be changed by the group"):
        cluster_settings("lab")


@needs_root
def test_who_is_alone_in_a_group() -> None:
    assert trust._alone_in(0, 0)
    assert not trust._alone_in(0, 1)
    assert not trust._alone_in(ANOTHER, ANOTHER)  # a group that nobody knows may have any members


def test_the_users_own_configuration_is_checked_and_cannot_be_excused(project: Path, tmp_path: Path) -> None:
    trust_it(tmp_path, f"trusted: [{tmp_path}]\n")
    (tmp_path / "config" / "petctl" / "config.yaml").chmod(0o666)
    with pytest.raises(UsageError, match="can be changed by every user") as refused:
        cluster_settings("lab")
    assert "trusted:" not in str(refused.value)


def test_a_wrong_list_of_trusted_directories_is_told(project: Path, tmp_path: Path) -> None:
    planted(project, mode=0o666)
    trust_it(tmp_path, "trusted: [here]\n")
    with pytest.raises(UsageError, match="'trusted' must be a list of directories"):
        cluster_settings("lab")


def test_a_pipe_is_not_waited_for(project: Path) -> None:
    os.mkfifo(project / "petctl.yaml")
    assert cluster_settings("lab") == {}
