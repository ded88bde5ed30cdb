"""Files to and from a job's stores, on a node: plain HTTP on URLs that the coordinator signs (`grants.py`).

    depot = Depot(CoordinatorLine(join).ask)          on a node
    depot = Depot(direct(grants))                     where the grants themselves are

Uploads are visible when they are complete; downloads get their name when they are complete and verified. Errors are
sentences for people. Which files are moved, and when, is not known here; how, is in `objects.py` and `directory.py`.

A Depot may be used by several threads; `moved` counts the bytes of all of them.
"""

from __future__ import annotations

import os
import threading
from typing import Any, Callable, Dict, Iterator, Optional, Sequence, Type

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused, StoreUnreachable, Unreachable
from petctl.files import replacing
from petctl.rendezvous.net.client import ControlLink
from petctl.rendezvous.net.join_file import JoinFile
from petctl.retry import Backoff
from petctl.storage.core.body import Held, local_error, opened
from petctl.storage.core.directory import Directory
from petctl.storage.core.endpoint import PART_SUFFIX, Endpoint, Entry
from petctl.storage.core.grants import Grants
from petctl.storage.core.http_client import HttpClient
from petctl.storage.core.incoming_file import Incoming
from petctl.storage.core.objects import PATIENCE, Ask, Objects

PAUSE = 0.2  # seconds between two attempts at a coordinator that is away

_BY_CODE: Dict[int, Type[PetctlError]] = {kind.code: kind for kind in (NoSuchPlace, Refused, StoreUnreachable, Damaged)}

__all__ = ["PART_SUFFIX", "Ask", "CoordinatorLine", "Depot", "Entry", "direct"]


class CoordinatorLine:
    """A connection of its own to whoever coordinates the job; made again when that is replaced."""

    def __init__(self, join: JoinFile, given_up: Optional[threading.Event] = None) -> None:
        self._join, self._given_up = join, given_up or threading.Event()
        self._link: Optional[ControlLink] = None
        self._lock = threading.Lock()

    def ask(self, call: str, arguments: Dict[str, Any]) -> Any:
        """What the coordinator answers; its refusals are raised as it meant them."""
        backoff = Backoff(PAUSE, PAUSE, PATIENCE)
        while True:
            try:
                with self._lock:
                    if self._link is None:
                        self._link = ControlLink(self._join)
                    return self._link.call(call, **arguments)
            except Unreachable as error:
                self.close()
                backoff.wait(error, self._given_up)
            except PetctlError as error:  # as the coordinator raised it: the code is what came over the wire
                raise _BY_CODE.get(error.code, PetctlError)(str(error)) from None

    def close(self) -> None:
        """Ends the connection; the next question opens it again."""
        with self._lock:
            if self._link is not None:
                self._link.close()
            self._link = None


def direct(grants: Grants) -> Ask:
    """For whoever has the grants in its own process."""
    calls: Dict[str, Callable[..., Any]] = {"sign": grants.sign, "page": grants.page}
    return lambda call, arguments: calls[call](**arguments)


class Depot:
    """Moves files. `given_up`, once set, ends whatever waits, with GivenUp."""

    def __init__(self, ask: Ask, given_up: Optional[threading.Event] = None, patience: float = PATIENCE) -> None:
        """`patience`: seconds that a store may be away."""
        self._ask, self._given_up, self._patience = ask, given_up or threading.Event(), patience
        self.moved = 0
        self._http = HttpClient(self._count)
        self._places: Dict[str, Endpoint] = {}

    def entries(self, grant: str) -> Iterator[Entry]:
        """Everything below the grant's prefix, as a stream."""
        return self._place(grant).entries()

    def sign_ahead(self, grant: str, method: str, paths: Sequence[str]) -> None:
        """Asks at once for the URLs of many small files that are moved next (PUT or GET): one question, not many."""
        self._place(grant).sign_ahead(method, paths)

    def put(self, grant: str, path: str, file_path: str, size: int) -> str:
        """Sends the first `size` bytes of a file; Damaged if it became shorter or was changed meanwhile. Its tag."""
        place = self._place(grant)
        with opened(file_path, size) as body:
            return place.put(path, body)

    def put_bytes(self, grant: str, path: str, data: bytes) -> str:
        """Sends what is in memory. Its tag."""
        return self._place(grant).put(path, Held(data))

    def fetch(self, grant: str, entry: Entry, target_path: str) -> None:
        """Brings a file, whole and verified, under its name; its time is the object's. The folder must be there."""
        place = self._place(grant)
        try:
            with replacing(target_path, draft=target_path + PART_SUFFIX) as file:
                incoming = Incoming(file, entry.size, target_path)
                place.read(entry, incoming)
                incoming.verify(place.shown(entry.path))
                file.flush()
                os.utime(file.fileno(), (entry.modified, entry.modified))
        except OSError as error:
            raise local_error(error, target_path) from None

    def remove(self, grant: str, path: str) -> None:
        """Removes a file; one that is not there is as good."""
        self._place(grant).remove(path)

    def _place(self, grant: str) -> Endpoint:
        place = self._places.get(grant)
        if place is None:
            about = self._ask("sign", {"grant": grant, "requests": []})
            if about["kind"] == "file":
                place = Directory(str(about["directory"]), str(about["base"]), self._count)
            else:
                place = Objects(self._ask, grant, about, self._http, self._given_up, self._patience)
            self._places[grant] = place
        return place

    def _count(self, more: int) -> None:
        self.moved += more
