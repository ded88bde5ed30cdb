"""Brings a job's code to this node, in a thread of its own: the agent's heartbeats do not wait for a disk.

On the machine where the job was submitted the archive is a file, and all nodes share one unpacked copy. Anywhere else
it comes from the job's store; where there is none, or it fails, from the coordinator, through a second connection that
proves itself like the first.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import tempfile
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, Callable, Dict, Mapping, Optional

from petctl.agent.data.code import BadCode, Bounds, provide
from petctl.errors import GivenUp, NoSuchPlace, PetctlError, ProtocolError, Unreachable
from petctl.job.task import Code
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile

if TYPE_CHECKING:
    from petctl.storage.core.files import Depot, Entry

STORED = "code.tar.gz"  # its name in the store, below what is signed for
STORE_PATIENCE = 10.0  # seconds that a store may be away; the coordinator has the same
CALL = "code"
PART = 512 << 10  # bytes per answer; as text it is a third more, well below the limit of a frame
PATIENCE = 60.0  # seconds without any answer
PAUSE = 0.2


class CodeSource:
    """The code of one node, on its way. `then` is called in the loop, with the directory or the reason why not."""

    def __init__(
        self,
        code: Code,
        join: JoinFile,
        state_dir: str,
        then: Callable[[str, str], None],
        remark: Callable[[str], None],
        folders: Optional[Mapping[str, str]] = None,
    ) -> None:
        """`folders`: where mapped folders are on this machine, by their path in the code."""
        self._code, self._join, self._state, self._then, self._remark = code, join, state_dir, then, remark
        self._folders = dict(folders or {})
        self._bounds = Bounds(code.files, code.bytes) if code.files else None
        self._loop = asyncio.get_running_loop()
        self._given_up = threading.Event()
        self._depot: Optional[Depot] = None
        if code.grant:
            # Not in the thread: what Python 3.9 imports from an archive, other threads see before it is complete.
            from petctl.storage.core.files import CoordinatorLine, Depot

            line = CoordinatorLine(join, self._given_up)
            self._depot, self._hang_up = Depot(line.ask, self._given_up, STORE_PATIENCE), line.close
        threading.Thread(target=self._work, name="petctl-code", daemon=True).start()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._given_up.set()

    def _work(self) -> None:
        directory, why = "", ""
        try:
            directory = os.path.join(self._provided(), self._code.inside)
        except GivenUp:
            return
        except PetctlError as error:
            why = str(error)
        except Exception as error:
            why = f"cannot unpack the code: {error!r}"
        self._tell(lambda: self._then(directory, why))

    def _provided(self) -> str:
        """Where the code is unpacked, by now."""
        code, given_up, bounds = self._code, self._given_up.is_set, self._bounds
        if not re.fullmatch("[0-9a-f]{64}", code.id):  # it becomes a path
            raise BadCode(f"{code.id[:80]!r} is not a snapshot id")
        if code.archive and os.access(code.archive, os.R_OK):
            provide(code.directory, code.id, self._from_file, {**code.links, **self._folders}, given_up, bounds)
            return code.directory
        directory = os.path.join(self._state, "code", code.id[:16])
        if self._depot is not None:
            try:
                from_store = lambda: self._from_store(directory + ".archive")  # noqa: E731
                provide(directory, code.id, from_store, self._folders, given_up, bounds)
                return directory
            except PetctlError as error:
                why = str(error)
                self._tell(lambda: self._remark(f"fetching the code from the coordinator instead of the store: {why}"))
        provide(directory, code.id, self._from_coordinator, self._folders, given_up, bounds)
        return directory

    def _check_size(self, size: int) -> None:
        """An archive that is larger than the snapshot can make it is not fetched."""
        if self._bounds is not None and size > self._bounds.archive:
            raise BadCode(f"the code archive has {size} bytes, more than snapshot {self._code.id[:12]} can have")

    def _tell(self, call: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the node has ended meanwhile
            self._loop.call_soon_threadsafe(call)

    def _from_file(self) -> BinaryIO:
        return open(self._code.archive, "rb")

    def _from_store(self, path: str) -> BinaryIO:
        """The archive, whole, in a file that has no name any more."""
        assert self._depot is not None
        try:
            stored = find_stored(self._depot, self._code.grant)
            if stored is None:
                raise NoSuchPlace("the store does not have it")
            self._check_size(stored.size)
            self._depot.fetch(self._code.grant, stored, path)
            return open(path, "rb")
        finally:
            self._hang_up()
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _from_coordinator(self) -> BinaryIO:
        """The archive, whole, in a file without a name. A coordinator that is replaced meanwhile has the same one."""
        file: BinaryIO = tempfile.TemporaryFile(dir=self._state)  # noqa: SIM115  closed below, or by its reader
        try:
            deadline = time.monotonic() + PATIENCE
            while True:
                try:
                    with ControlLink(self._join) as link:
                        while self._add_part(link, file):
                            deadline = time.monotonic() + PATIENCE
                    file.seek(0)
                    return file
                except Unreachable:
                    if time.monotonic() > deadline:
                        raise
                    self._given_up.wait(PAUSE)
        except BaseException:
            file.close()
            raise

    def _add_part(self, link: ControlLink, file: BinaryIO) -> bool:
        if self._given_up.is_set():
            raise GivenUp
        answer = link.call(CALL, offset=file.tell(), size=PART)
        try:
            part, size = base64.b64decode(answer["data"], validate=True), int(answer["of"])
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"the coordinator's answer is invalid: {error!r}") from None
        self._check_size(max(size, file.tell() + len(part)))
        file.write(part)
        if not part and file.tell() < size:
            raise ProtocolError("the code archive from the coordinator is shorter than announced")
        return file.tell() < size


def find_stored(depot: Depot, grant: str) -> Optional[Entry]:
    """The archive in the store, if that has it."""
    return next((entry for entry in depot.entries(grant) if entry.path == STORED), None)


def serve(archive: str, offset: int, size: int) -> Dict[str, object]:
    """The coordinator's side: one part of the archive."""
    with open(archive, "rb") as file:
        of = os.fstat(file.fileno()).st_size
        file.seek(max(0, min(offset, of)))
        return {"data": base64.b64encode(file.read(max(0, min(size, PART)))).decode(), "of": of}
