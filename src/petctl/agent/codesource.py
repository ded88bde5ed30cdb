"""Brings a job's code to this node, in a thread of its own: the agent's heartbeats do not wait for a disk.

On the machine where the job was submitted the archive is a file, and all nodes share one unpacked copy. Anywhere else
it comes from the coordinator, through a second connection that proves itself like the first.
"""

from __future__ import annotations

import asyncio
import base64
import os
import tempfile
import threading
import time
from typing import BinaryIO, Callable, Dict, Mapping, Optional

from petctl.agent.code import provide
from petctl.agent.task import Code
from petctl.errors import GivenUp, PetctlError, ProtocolError, Unreachable
from petctl.rendezvous.client import ControlLink
from petctl.rendezvous.joinfile import JoinFile

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
        folders: Optional[Mapping[str, str]] = None,
    ) -> None:
        """`folders`: where mapped folders are on this machine, by their path in the code."""
        self._code, self._join, self._state, self._then = code, join, state_dir, then
        self._folders = dict(folders or {})
        self._loop = asyncio.get_running_loop()
        self._given_up = threading.Event()
        threading.Thread(target=self._work, name="petctl-code", daemon=True).start()

    def give_up(self) -> None:
        """Nobody waits for it any more."""
        self._given_up.set()

    def _work(self) -> None:
        code, directory, why = self._code, "", ""
        try:
            if code.archive and os.access(code.archive, os.R_OK):
                directory = code.directory
                provide(directory, code.id, self._from_file, {**code.links, **self._folders}, self._given_up.is_set)
            else:
                directory = os.path.join(self._state, "code", code.id[:16])
                provide(directory, code.id, self._from_coordinator, self._folders, self._given_up.is_set)
        except GivenUp:
            return
        except PetctlError as error:
            directory, why = "", str(error)
        except Exception as error:
            directory, why = "", f"cannot unpack the code: {error!r}"
        try:
            self._loop.call_soon_threadsafe(self._then, os.path.join(directory, code.inside) if directory else "", why)
        except RuntimeError:
            pass  # the node has ended meanwhile

    def _from_file(self) -> BinaryIO:
        return open(self._code.archive, "rb")

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
            raise ProtocolError(f"the coordinator's answer makes no sense: {error!r}") from None
        file.write(part)
        if not part and file.tell() < size:
            raise ProtocolError("the coordinator's archive of the code is shorter than it says")
        return file.tell() < size


def serve(archive: str, offset: int, size: int) -> Dict[str, object]:
    """The coordinator's side: one part of the archive."""
    with open(archive, "rb") as file:
        of = os.fstat(file.fileno()).st_size
        file.seek(max(0, min(offset, of)))
        return {"data": base64.b64encode(file.read(max(0, min(size, PART)))).decode(), "of": of}
