"""What a job has made, on its way to its stores: the files of outputs/, and the logs in numbered segments.

    OUTPUTS/ID/...                    ->  outputs/ID/... of the store, or the output's own place
    new files in the copy of the code ->  outputs/beside-code/...
    LOGS/round-0001/rank-0.out        ->  logs/round-0001/rank-0.out.000000, .000001, ... a MiB each

A file is sent when it was the same at two looks, or once a minute as it is while it goes on changing; the last look
sends everything. A log's segment is the same stretch of the same file whoever sends it, so sending it again does no
harm; the last one is sent again while it grows. What was sent is remembered beside the directories, so whoever comes
next does not send it again. Nothing is ever removed in a store: what a job deletes after it was sent stays there.

One look at a time: whoever uses it holds `lock_path`. When to look is decided by `results.py`.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import threading
import time
from itertools import chain
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

from petctl.agent.data.new_files import PLACE, new_files
from petctl.agent.data.parallel import together
from petctl.agent.logs.log_files import SEGMENT, segment_name
from petctl.errors import Damaged, GivenUp, NoSuchPlace, PetctlError, Refused, StoreUnreachable, Unreachable
from petctl.files import read_json, replace
from petctl.storage.core.files import Depot
from petctl.storage.core.grants import check_path

CHANGING = 60.0  # seconds after which a file that goes on changing is sent as it is
LAST_LOOKS = 3  # for files that change while they are sent
AT_ONCE = 4  # transfers
AHEAD = 500  # URLs that are asked for at once
SAVE_EVERY = 2.0  # seconds between two notes of what was sent

STORE = "store"  # the grant of everything that has no place of its own
_UNSENT = (".progress",)  # of logs/: read by the node itself
_FINAL = (Refused, StoreUnreachable, Unreachable, NoSuchPlace)  # every other file would meet the same

Facts = Tuple[int, int, int]


class Due(NamedTuple):
    """A file that is to be sent now."""

    relative: str
    path: str
    facts: Facts


def lock_path(base: str) -> str:
    """Held by whoever sends what is in `base`, a job's or a node's directory."""
    return os.path.join(base, ".results.lock")


class Outbox:
    """The results in one directory. `routes`: output id -> grant; an empty id is everything else, and the logs."""

    def __init__(
        self,
        depot: Depot,
        base: str,
        output_dir: str,
        log_dir: str,
        routes: Mapping[str, str],
        given_up: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._depot, self._output_dir, self._log_dir, self._routes = depot, output_dir, log_dir, dict(routes)
        self._given_up, self._clock = given_up, clock
        self.copy = ""  # of the job's code, in which new files are results too
        self._mutex = threading.Lock()  # for what was sent: files go up a few at a time
        self._index = _Index(os.path.join(base, ".results.json"))
        self._seen: Dict[str, Facts] = {}  # at the last look
        self._since: Dict[str, float] = {}  # since when a file has changes that were not sent
        self.sent = 0  # files and segments, so far
        self.problems: List[str] = []  # of the last look

    def look(self, last: bool = False) -> None:
        """Sends what is due; what went wrong is in `problems`, and is tried again at the next look."""
        self.problems = []
        self._index.load()
        try:
            if "" in self._routes:
                self._send_logs()
            for _ in range(LAST_LOOKS if last else 1):
                self._send_outputs(last)
                if not self._since or self.problems:
                    break
        except _FINAL as error:
            self.problems.append(str(error))
        finally:
            self._index.save()
        if last and self._since and not self.problems:
            self.problems.append(f"{next(iter(self._since))} keeps changing: its uploaded copy may be incomplete")

    # -- outputs -----------------------------------------------------------------------------------------------------

    def _send_outputs(self, last: bool) -> None:
        now, due = self._clock(), []
        found: Dict[str, Facts] = {}
        for relative, path in chain(walk(self._output_dir), self._beside_code()):
            if self._route(relative) is None or not self._is_name(relative):
                continue
            facts = _facts(path)
            if facts is None or self._index.outputs.get(relative) == list(facts):
                continue
            found[relative] = facts
            since = self._since.setdefault(relative, now)
            if last or self._seen.get(relative) == facts or now - since >= CHANGING:
                due.append(Due(relative, path, facts))
        self._seen = found
        self._since = {relative: since for relative, since in self._since.items() if relative in found}
        for start in range(0, len(due), AHEAD):
            some = due[start : start + AHEAD]
            self._sign_ahead(some)
            together(lambda file: self._guarded(lambda: self._send_output(file)), some, AT_ONCE, self._given_up)

    def _beside_code(self) -> Iterator[Tuple[str, str]]:
        for relative, path in new_files(self.copy) if self.copy else ():
            yield f"{PLACE}/{relative}", path

    def _send_output(self, file: Due) -> None:
        route = self._route(file.relative)
        assert route is not None
        try:
            self._depot.put(*route, file.path, file.facts[0])
        except Damaged:
            return  # it was changed meanwhile: the next look knows more
        except PetctlError:
            if os.path.exists(file.path):
                raise
            return  # removed meanwhile
        unchanged = _facts(file.path) == file.facts
        with self._mutex:
            self.sent += 1
            if unchanged:
                self._index.outputs[file.relative] = list(file.facts)
                self._since.pop(file.relative, None)
            else:
                self._since[file.relative] = self._clock()

    def _route(self, relative: str) -> Optional[Tuple[str, str]]:
        """The grant of an output's file, and its path there."""
        first, _, rest = relative.partition("/")
        if rest and first in self._routes:
            return self._routes[first], rest
        return (self._routes[""], f"outputs/{relative}") if "" in self._routes else None

    def _sign_ahead(self, files: List[Due]) -> None:
        by_grant: Dict[str, List[str]] = {}
        for file in files:
            route = self._route(file.relative)
            assert route is not None
            by_grant.setdefault(route[0], []).append(route[1])
        for grant, paths in by_grant.items():
            if len(paths) > 1:
                self._depot.sign_ahead(grant, "PUT", paths)

    # -- logs --------------------------------------------------------------------------------------------------------

    def _send_logs(self) -> None:
        for relative, path in walk(self._log_dir):
            if relative.endswith(_UNSENT) or os.path.basename(relative).startswith(".") or not self._is_name(relative):
                continue
            if self._given_up():
                raise GivenUp
            self._guarded(lambda r=relative, p=path: self._send_log(r, p))  # type: ignore[misc]

    def _send_log(self, relative: str, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return  # removed meanwhile
        try:
            found = os.fstat(descriptor)
            size, modified = found.st_size, found.st_mtime_ns
            before, known = self._index.logs.get(relative, [0, 0])
            if [before, known] == [size, modified] or not size:
                return
            if before > size:  # cut off, where no holes can be made
                before = 0
            for number in range(min(before, size - 1) // SEGMENT, -(-size // SEGMENT)):
                start, end = number * SEGMENT, min(size, (number + 1) * SEGMENT)
                data = _whole(descriptor, start, end)
                if data:
                    self._depot.put_bytes(self._routes[""], f"logs/{segment_name(relative, number)}", data)
                    self.sent += 1
                self._index.logs[relative] = [end, modified if end == size else 0]
        finally:
            os.close(descriptor)

    def _is_name(self, relative: str) -> bool:
        try:
            check_path(f"outputs/{relative}")
        except Refused as error:
            self.problems.append(str(error))
            return False
        return True

    def _guarded(self, act: Callable[[], None]) -> None:
        """One file's own trouble does not keep the others; what every other would meet ends the look."""
        try:
            act()
        except (*_FINAL, GivenUp):
            raise
        except PetctlError as error:
            self.problems.append(str(error))
        with self._mutex:
            self._index.save(SAVE_EVERY)


def walk(root: str) -> Iterator[Tuple[str, str]]:
    """Regular files below a directory, relative name and path; through links only if these stay inside."""
    top = os.path.realpath(root)
    yield from _walk(root, "", top, {top})


def _walk(directory: str, prefix: str, top: str, above: Set[str]) -> Iterator[Tuple[str, str]]:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError:
        return  # removed meanwhile
    for entry in entries:
        relative = prefix + entry.name
        try:
            real = os.path.realpath(entry.path) if entry.is_symlink() else ""
            if real and not real.startswith(top + os.sep):
                continue
            if entry.is_dir():
                below = real or os.path.join(os.path.realpath(directory), entry.name)
                if below not in above:
                    yield from _walk(entry.path, f"{relative}/", top, above | {below})
            elif entry.is_file():
                yield relative, entry.path
        except OSError:
            continue


def _facts(path: str) -> Optional[Facts]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (found.st_size, found.st_mtime_ns, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _whole(descriptor: int, start: int, end: int) -> bytes:
    """A segment; nothing where a part of it was dropped to stay within log_cap."""
    data = os.pread(descriptor, end - start, start)
    try:
        hole = os.lseek(descriptor, start, os.SEEK_HOLE)  # asked after the reading: it may be dropped at any time
    except OSError as error:
        return data if error.errno == errno.EINVAL else b""  # a file system that knows no holes
    return data if hole >= end else b""


class _Index:
    """What was sent: facts of files, sizes and times of logs. Replaced whole, for its owner's eyes only."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.outputs: Dict[str, List[int]] = {}
        self.logs: Dict[str, List[int]] = {}
        self._saved = ""
        self._saved_at = 0.0
        self._loaded = False

    def load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        try:
            noted = read_json(self._path)
            self.outputs = {str(name): [int(n) for n in facts] for name, facts in noted["outputs"].items()}
            self.logs = {str(name): [int(n) for n in facts] for name, facts in noted["logs"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.outputs, self.logs = {}, {}  # torn or of nobody: everything is sent again

    def save(self, every: float = 0.0) -> None:
        if every and time.monotonic() < self._saved_at + every:
            return
        text = json.dumps({"outputs": self.outputs, "logs": self.logs})
        self._saved_at = time.monotonic()
        if text == self._saved:
            return
        with contextlib.suppress(OSError):  # a full disk: something is sent twice, should this process be killed
            replace(self._path, text, mode=0o600)
            self._saved = text
