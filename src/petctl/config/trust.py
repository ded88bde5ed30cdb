"""Whose files petctl obeys: one's own and root's, if no other user can change them, as ssh and git decide it.

A configuration names endpoints that get credentials and kubeconfigs that run programs, and it is found by looking
upwards from the working directory: in /tmp, or on a shared disk, anybody may have put it there. Under sudo the files of
the user who called it count as one's own. What is not trusted by its owner and mode can be by name (`trusted` in the
user's own configuration).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from petctl.errors import UsageError


def own_ids() -> set[int]:
    """The user ids that mean the caller: the effective one, and under sudo the one of the user who called it."""
    ids = {os.geteuid()}
    called_by = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and called_by.isdecimal():  # only root's word for it counts: anybody can set a variable
        ids.add(int(called_by))
    return ids


def open_trusted(path: Path) -> int:
    """Opens a file for reading and checks who owns and who may change what was opened, and the link to it."""
    # a pipe would be waited for; what was looked at must be what is read
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        why = _whose(os.lstat(path)) or changeable_by_others(os.fstat(descriptor))
        if why:
            raise UsageError(f"{path} {why}, so petctl does not use it")
        return descriptor
    except BaseException:
        os.close(descriptor)
        raise


def changeable_by_others(found: os.stat_result) -> str:
    """Which other user owns a file or may change it, as a part of a sentence; nothing where there is none."""
    if why := _whose(found):
        return why
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH:
        return f"can be changed by every user (mode {mode:04o})"
    if mode & stat.S_IWGRP and not _alone_in(found.st_gid, found.st_uid):
        return f"can be changed by the group {_group_name(found.st_gid)} (mode {mode:04o})"
    return ""


def user_name(uid: int) -> str:
    """A user's name, or the number where nobody knows it."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"number {uid}"


def _whose(found: os.stat_result) -> str:
    if found.st_uid == 0 or found.st_uid in own_ids():
        return ""
    return f"belongs to the user {user_name(found.st_uid)}, not to {user_name(os.geteuid())}"


def _group_name(gid: int) -> str:
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return f"number {gid}"


def _alone_in(gid: int, uid: int) -> bool:
    """Whether the owner is the group's only member: where users have groups of their own, new files are 0664."""
    import grp
    import pwd

    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False
    members |= {user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid}
    return members == {uid}
