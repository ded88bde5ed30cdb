"""The mapped folders of a node: brought to its machine before the workers start, sent back while and after they run.

    location on this machine    a link, whatever the mode
    object store, ro            brought before the workers start (folder_fetch.py)
    ... rw, sync                that, and what the job changes is sent (folder_send.py)

All of it happens in a thread of its own, over a connection of its own: heartbeats do not wait for it. Where the job
sees a folder is a link in its copy of the code (`links`); a folder that lies in another one is a link in that one's
copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Set

from petctl.agent.data.folder_cache import Cache
from petctl.agent.data.folder_copy import Copy
from petctl.agent.data.folder_fetch import Fetch
from petctl.agent.data.folder_send import Sender
from petctl.agent.data.results import interval
from petctl.errors import GivenUp, PetctlError
from petctl.job.task import Folder, Task
from petctl.rendezvous.net.join_file import JoinFile
from petctl.storage.core.files import Ask, CoordinatorLine, Depot

SAY = 0.5  # seconds between two words about how far it is
READ_ONLY, SYNC = "ro", "sync"


class Arranged(NamedTuple):
    """A folder and where it is on this machine."""

    folder: Folder
    copy: Optional[Copy]  # of a store's
    target: str
    inner: Dict[str, str]  # paths in it that are other folders, and where those are
    top: bool  # it lies in no other folder

    @property
    def writable(self) -> bool:
        return self.folder.mode != READ_ONLY


def cache_of(task: Task, state_dir: str) -> Cache:
    """Where the copies are: all jobs of the cluster's own machine share one place; elsewhere a node has its own."""
    here = os.access(task.code.archive, os.R_OK) if task.code.id else os.path.isdir(os.path.dirname(task.log_dir))
    root = task.folder_cache if here and task.folder_cache else os.path.join(state_dir, "folders")
    return Cache(root, task.folder_limit)


def arrange(folders: Sequence[Folder], cache: Cache) -> List[Arranged]:
    """Where each folder will be; innermost first. Nothing is made yet."""
    found: Dict[str, Arranged] = {}
    for folder in sorted(folders, key=lambda folder: -folder.path.count("/")):
        below = [other for other in found.values() if other.folder.path.startswith(f"{folder.path}/")]
        inner = {other.folder.path[len(folder.path) + 1 :]: other.target for other in below if other.top}
        found.update({other.folder.path: other._replace(top=False) for other in below})
        copy = None
        if not folder.directory:
            without = tuple(f"{path} {target}" for path, target in inner.items())
            copy = cache.copy(folder.location, folder.endpoint, folder.mode != READ_ONLY, without)
        target = copy.files if copy is not None else folder.directory
        found[folder.path] = Arranged(folder, copy, target, inner, True)
    return list(found.values())


def links(arranged: Sequence[Arranged]) -> Dict[str, str]:
    """What is to be linked in the job's copy of its code."""
    return {one.folder.path: one.target for one in arranged if one.top}


class Folders:
    """All folders of one node. The callbacks are called in the loop: `arrived` with the reason why not, or nothing."""

    def __init__(
        self,
        task: Task,
        join: JoinFile,
        arranged: Sequence[Arranged],
        cache: Cache,
        arrived: Callable[[str], None],
        doing: Callable[[str], None],
        remark: Callable[[str], None],
    ) -> None:
        self._job, self._arranged, self._cache, self._look = task.job, arranged, cache, interval(os.environ)
        self._arrived, self._doing, self._remark = arrived, doing, remark
        self._loop = asyncio.get_running_loop()
        self._given_up, self._ending, self._over = threading.Event(), threading.Event(), threading.Event()
        self._line = CoordinatorLine(join, self._given_up)
        self._depot = Depot(self._line.ask, self._given_up)
        self._brought = False
        self._said = 0.0
        self._complaints: Set[str] = set()
        self._thread = threading.Thread(target=self._work, name="petctl-folders", daemon=True)
        self._thread.start()

    @property
    def sends(self) -> bool:
        """Is there anything that goes back to a store?"""
        return any(one.copy is not None and one.writable for one in self._arranged)

    def finish(self) -> None:
        """The workers have ended: sends what is left, and returns when that is up or given up. Not for the loop."""
        if not self._brought:
            self.give_up()  # no worker has seen them
        self._ending.set()
        self._over.wait()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._given_up.set()
        self._ending.set()
        self._over.set()

    def _work(self) -> None:
        try:
            why = self._bring()
            self._brought = not why
            self._tell(lambda: self._arrived(why))
            if not why and self.sends:
                self._send()
        except GivenUp:
            pass
        finally:
            self._line.close()
            for one in self._arranged:
                if one.copy is not None:
                    one.copy.let_go()
            self._over.set()

    def _bring(self) -> str:
        try:
            for one in self._arranged:
                bring(one, self._job, self._cache, self._depot, self._progress, self._given_up.is_set)
        except GivenUp:
            raise
        except PetctlError as error:
            return str(error)
        except OSError as error:
            return f"cannot fetch the job's folders: {error}"
        except Exception as error:
            return f"cannot fetch the job's folders: {error!r}"
        return ""

    def _progress(self, path: str, done: int, of: int) -> None:
        now = time.monotonic()
        if now - self._said >= SAY or done in (0, of):
            self._said = now
            self._tell(lambda: self._doing(f"fetching {path}: {done} of {of} files"))

    def _send(self) -> None:
        senders = senders_of(self._arranged, self._depot, self._given_up.is_set)
        while not self._ending.wait(self._look):
            for path, sender in senders.items():
                self._guarded(path, sender.look)
        for path, sender in senders.items():
            self._guarded(path, sender.last_look)

    def _guarded(self, path: str, look: Callable[[], int]) -> None:
        """What cannot be sent now is tried again by the next look, and said once."""
        why = complaint(path, look)
        if why and why not in self._complaints:
            self._complaints.add(why)
            self._tell(lambda: self._remark(why))

    def _tell(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the node has ended meanwhile
            self._loop.call_soon_threadsafe(call)


def bring(
    one: Arranged,
    job: str,
    cache: Cache,
    depot: Depot,
    progress: Callable[[str, int, int], None],
    given_up: Callable[[], bool],
) -> None:
    """Makes one folder be where the job will look for it."""
    path = one.folder.path
    if one.copy is None:
        if not os.path.isdir(one.target):
            raise PetctlError(
                f"the folder {path} is the directory {one.target}, which does not exist on this "
                f"machine ({os.uname().nodename}); mount it here, or map the folder to an object store"
            )
        return
    fetch = Fetch(one.copy, cache, depot, one.folder.grant, one.folder.location, one.writable, [*one.inner], given_up)
    try:
        fetch.bring(job, lambda done, of: progress(path, done, of))
    except PetctlError as error:
        raise PetctlError(f"cannot fetch the folder {path}: {error}") from None
    for name, target in one.inner.items():
        link = os.path.join(one.copy.files, name)
        os.makedirs(os.path.dirname(link), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink(target, link)


def senders_of(arranged: Sequence[Arranged], depot: Depot, given_up: Callable[[], bool]) -> Dict[str, Sender]:
    """Who sends what, by the path of the folder."""
    return {
        one.folder.path: Sender(one.copy, depot, one.folder.grant, one.folder.mode == SYNC, given_up)
        for one in arranged
        if one.copy is not None and one.writable
    }


def complaint(path: str, look: Callable[[], int]) -> str:
    """Why a look could not send everything, or nothing."""
    try:
        look()
    except (PetctlError, OSError) as error:
        return f"cannot upload all of the folder {path}: {error}; the rest stays on this machine"
    return ""


def send_left(task: Task, ask: Ask, remark: Callable[[str], None], given_up: Optional[threading.Event] = None) -> None:
    """For the cluster's own machine, when the nodes are gone: sends what those that were killed have left."""
    cache, given_up = cache_of(task, ""), given_up or threading.Event()
    fresh = [one for one in arrange(task.folders, cache) if one.copy is not None and one.copy.is_fresh(task.job)]
    for path, sender in senders_of(fresh, Depot(ask, given_up), given_up.is_set).items():
        why = complaint(path, sender.last_look)
        if why:
            remark(why)
