"""Replaces files whole, keeps files and directories to their owner, and locks across processes. Standard library only.

    replace, replace_json, replacing    a reader, or a crash at any moment, sees the old file or the new one
    create                              the same for a name that nothing may have yet
    read_json                           an object that was written so; an error names the file and its fault
    make_private_directory, ..._file    for this user alone, whatever the umask says
    locked, take_lock, wait_for_lock    flocks: they die with their holder, and belong to the open file, so that a
    hold, release, is_locked            child to which the descriptor is passed on holds the lock too

A draft lies beside its file and is called .NAME.RANDOM.PROCESS, so that `remove_drafts` knows those of killed writers.
No draft is written through a link. Errors are the system's own: callers know what to tell the user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from typing import Any, BinaryIO, Dict, Iterator, Optional, Union

Path = Union[str, "os.PathLike[str]"]

LOCK_PAUSE = 0.01
LOCK_WITHIN = 0.1  # `is_locked` holds a lock for microseconds; that must not turn its owner away
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
_CANNOT_LINK = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def draft_of(path: Path) -> str:
    """Names a fresh draft: unique also among machines and containers that share the directory."""
    directory, name = os.path.split(os.fspath(path))
    return os.path.join(directory, f".{name}.{os.urandom(4).hex()}.{os.getpid()}")


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = 0o666, durable: bool = False, draft: Optional[Path] = None, once: bool = False
) -> Iterator[BinaryIO]:
    """Opens a file that takes the name `path` when the body has ended; a failure leaves nothing behind.

    `mode`: less the umask. `durable`: it, and its name, outlast a power cut. `draft`: its name until then; one that is
    there is written over, so that killed writers leave only one. For places that have one writer at a time. `once`:
    FileExistsError where the name is taken.
    """
    place = draft or draft_of(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if draft else os.O_EXCL)
    try:
        with os.fdopen(os.open(place, flags, mode), "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        if once:
            give_name(place, path)
        else:
            os.replace(place, path)
    except BaseException:
        _forget(place)
        raise
    if durable:
        sync_directory(os.path.dirname(path))


def replace(
    path: Path, data: Union[bytes, str], mode: int = 0o666, durable: bool = False, draft: Optional[Path] = None
) -> None:
    """Replaces a file by one that holds `data`."""
    with replacing(path, mode, durable, draft) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def replace_json(
    path: Path, value: object, mode: int = 0o666, durable: bool = False, draft: Optional[Path] = None
) -> None:
    """Replaces a file by one that holds JSON."""
    import json  # process 1 of a container does without

    replace(path, json.dumps(value, separators=(",", ":")) + "\n", mode, durable, draft)


def read_json(path: Path) -> Dict[str, Any]:
    """Reads a JSON object; OSError where the file cannot be read, ValueError where it holds anything else."""
    import json

    with open(path, "rb") as file:
        data = file.read()
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(path)} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{os.fspath(path)} is not a JSON object")
    return value


def read_json_or_none(path: Path) -> Optional[Dict[str, Any]]:
    """The same, but None where the file is missing, torn or holds anything else."""
    try:
        return read_json(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def create(path: Path, data: bytes, mode: int = 0o666, durable: bool = False) -> bool:
    """Creates a file under a name that has none; False when it had one. Only one of several creators succeeds."""
    try:
        with replacing(path, mode, durable, once=True) as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def give_name(draft: Path, path: Path) -> None:
    """Moves a draft to a name that has no file; FileExistsError when it had one."""
    try:
        os.link(draft, path)  # unlike a rename, a link never replaces
    except OSError as error:
        if error.errno not in _CANNOT_LINK:
            raise
        if os.path.lexists(path):  # a file system without hard links: two at the same moment are not kept apart
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from None
        os.replace(draft, path)
    _forget(draft)


def _forget(draft: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(draft)


def remove_drafts(directory: Path) -> None:
    """Removes the drafts of processes of this machine that have ended."""
    for name in os.listdir(directory):
        _, dot, writer = name.rpartition(".")
        if name[0] == "." and dot and writer.isdecimal():
            draft = os.path.join(directory, name)
            with contextlib.suppress(FileNotFoundError):
                if not _lives(writer, os.stat(draft).st_mtime):
                    _forget(draft)


def _lives(process: str, since: float) -> bool:
    """Whether the process that had this number then lives: not as a zombie, nor another one that got the number."""
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    started = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # seconds after the machine's start
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started
    return fields[0] not in (b"Z", b"X") and time.time() - age < since + 1.0


def sync_directory(path: Path) -> None:
    """Returns when the names in a directory outlast a power cut, where its file system can promise that."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)


def make_private_directory(path: Path) -> None:
    """Makes a directory, and what is missing above it, for this user alone; one that is there stays as it is."""
    parent = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(parent):
        make_private_directory(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


def make_private_file(path: Path) -> None:
    """Makes an empty file for this user alone, or closes one that is there: SQLite makes others of its mode."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # not opened: to close it would drop the locks that this process has on it
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and found.st_uid == os.geteuid():
            os.chmod(path, 0o600)


def open_lock(path: Path) -> int:
    """Opens the file of a lock, which is made where it is missing. What is executed does not inherit it."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def hold(descriptor: int, shared: bool = False, wait: bool = True) -> bool:
    """Locks an open file; False when another one has it and `wait` is not wanted."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def release(descriptor: int) -> None:
    """Lets go of a lock and closes its file.

    To close it is not enough: a child that another thread has forked shares the open file until it executes its
    program, which takes long on a busy machine. Only who has passed the lock on just closes it.
    """
    with contextlib.suppress(OSError):  # a file system that knows no locks
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def wait_for_lock(path: Path, shared: bool = False) -> int:
    """Returns the descriptor that holds the lock for as long as it is open, once all others have let go of it."""
    descriptor = open_lock(path)
    try:
        hold(descriptor, shared)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def take_lock(path: Path, within: float = LOCK_WITHIN) -> Optional[int]:
    """Returns the descriptor that holds the lock, or None when another process has it for so many seconds."""
    descriptor = open_lock(path)
    end = time.monotonic() + within
    try:
        while not hold(descriptor, wait=False):
            if time.monotonic() >= end:
                os.close(descriptor)
                return None
            time.sleep(LOCK_PAUSE)  # a lock that can be given up cannot be waited for
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(descriptor)
        raise
    return descriptor


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Waits for the lock, and holds it for the body."""
    descriptor = wait_for_lock(path)
    try:
        yield
    finally:
        release(descriptor)


def is_locked(path: Path, shared: bool = False) -> bool:
    """Whether a living process holds the lock, with `shared` also whether it shares it; asking takes a moment only."""
    try:
        descriptor = os.open(path, (os.O_RDWR if shared else os.O_RDONLY) | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not hold(descriptor, not shared, wait=False)
    finally:
        release(descriptor)
