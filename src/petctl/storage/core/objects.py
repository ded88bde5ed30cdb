"""A grant that is a prefix of a bucket or container: its objects, over URLs that the coordinator signs.

An object appears when it is complete, checked by the store against its MD5. A store that is away, busy, or cuts
connections is asked again for a while; a URL that is refused is signed anew once, since it may have expired.
"""

from __future__ import annotations

import contextlib
import copy
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit

from petctl.errors import NoSuchPlace, PetctlError, ProtocolError
from petctl.retry import Backoff
from petctl.storage.core.answers import Course, Markers
from petctl.storage.core.body import NOTHING, Body, FileSlice
from petctl.storage.core.checksums import MD5, Sum, base64_text
from petctl.storage.core.endpoint import Entry
from petctl.storage.core.grants import LIFE, REQUESTS, check_path
from petctl.storage.core.http_client import Answer, Head, HttpClient
from petctl.storage.core.incoming_file import Incoming
from petctl.storage.core.parts import CHECKSUM_NAME, AzureParts, Parts, Records, S3Parts, add_checksum
from petctl.storage.core.store_errors import PASSING, reason, refusal, unreachable

PATIENCE = 60.0  # seconds that a store may be away
WHOLE = 64 << 20  # bytes; larger files go by parts
QUESTION = 256 << 10  # bytes of names in one question to the coordinator, whose frames are limited

_COMPLETE = Answer(Head("HTTP/1.1 206"), b"")

Ask = Callable[[str, Dict[str, Any]], Any]


class Objects:
    """The objects of one grant."""

    own_headers: bool

    def __init__(
        self,
        ask: Ask,
        grant: str,
        about: Mapping[str, Any],
        http: HttpClient,
        given_up: threading.Event,
        patience: float = PATIENCE,
    ) -> None:
        self._ask, self._grant, self._http, self._given_up = ask, grant, http, given_up
        self._patience = patience
        self._kind, self._root = str(about["kind"]), str(about["root"])
        self._prefix = str(about["prefix"])
        self.own_headers = self._kind == "az"
        self._ahead: Dict[Tuple[str, str], Tuple[str, float]] = {}  # method, path -> URL, until when

    def shown(self, path: str) -> str:
        """An object, as people write it."""
        return f"{self._root}/{self._prefix}{path}"

    def entries(self) -> Iterator[Entry]:
        """Everything below the prefix, as a stream."""
        after, markers, course = "", Markers(), Course()
        while True:
            page = self._ask("page", {"grant": self._grant, "after": after})
            course.check([str(entry[0]) for entry in page["entries"]])
            for path, size, modified, tag in page["entries"]:
                yield Entry(check_path(path), int(size), float(modified), str(tag))
            after = page["after"]
            if not after:
                return
            markers.check(str(after))

    def sign_ahead(self, method: str, paths: Sequence[str]) -> None:
        """Asks at once for the URLs of many small files that are moved next; those asked for before are forgotten."""
        until = time.monotonic() + LIFE * 0.8
        ahead: Dict[Tuple[str, str], Tuple[str, float]] = {}
        for some in _handfuls(paths):
            urls = self._sign([{"method": method, "path": path, "query": {}} for path in some])
            ahead.update({(method, path): (url, until) for path, url in zip(some, urls)})
        self._ahead = ahead

    def put(self, path: str, body: Body) -> str:
        """Makes an object; its tag, as `entries` will show it."""
        if isinstance(body, FileSlice) and body.length > WHOLE:
            return self._put_parts(path, body)
        headers = {"content-type": "application/octet-stream"}
        if self._kind == "az":
            digest = body.sums(MD5).md5
            note = {f"x-ms-meta-{CHECKSUM_NAME}": digest.hex(), "content-md5": base64_text(digest)}
            headers.update({"x-ms-blob-type": "BlockBlob", **note})
        return self.call("PUT", path, {}, headers, body).headers.get("etag", "").strip('"')

    def read(self, entry: Entry, incoming: Incoming) -> None:
        """Brings an object; after a cut it goes on where it was, if the object is still the same one."""
        same = {"if-match": f'"{entry.tag}"'} if entry.tag else {}

        def attempt(url: str) -> Answer:
            if incoming.received == entry.size and entry.size:
                return _COMPLETE  # the cut came behind the last byte
            rest = {"range": f"bytes={incoming.received}-"} if incoming.received else {}
            return self._http.once("GET", url, {**same, **rest}, take=incoming.take)

        self._until_answered("GET", entry.path, {}, attempt, lambda: incoming.received)

    def remove(self, path: str) -> None:
        """Removes an object; one that is not there is as good."""
        with contextlib.suppress(NoSuchPlace):
            self.call("DELETE", path)

    def _put_parts(self, path: str, body: FileSlice) -> str:
        kind = S3Parts if self._kind == "s3" else AzureParts
        parts: Parts = kind(self, Records(None, ""))
        upload, _, _ = parts.begin(path, body.length, "")
        try:
            sums: List[Sum] = []
            for number, length in enumerate(upload.lengths()):
                piece = body.part(number * upload.part, length)
                sums.append(piece.sums(upload.kinds))
                parts.send(upload, number, piece, sums[-1])
            return parts.finish(upload, sums)
        except BaseException:  # parts that nobody will finish would be kept, and paid for
            once = copy.copy(self)
            once._patience = 0.0
            with contextlib.suppress(PetctlError):
                kind(once, Records(None, "")).abandon(upload)
            raise

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Body = NOTHING,
    ) -> Answer:
        """A good answer to one request."""
        given = dict(headers or {})
        add_checksum(given, body)
        return self._until_answered(method, path, query or {}, lambda url: self._http.once(method, url, given, body))

    def _until_answered(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        attempt: Callable[[str], Answer],
        progress: Callable[[], int] = lambda: 0,
    ) -> Answer:
        """A good answer, however often it takes within the patience; progress renews that."""
        backoff, anew, reached = Backoff(0.1, 2.0, self._patience), False, progress()
        url = self._url(method, path, query)
        while True:
            problem: PetctlError
            try:
                answer = attempt(url)
            except PetctlError:
                raise  # not the store's doing; a full disk is an OSError too
            except OSError as error:
                problem = unreachable(self._root, reason(error), _endpoint(url))
            else:
                if answer.status < 300:
                    return answer
                text = answer.body.decode("utf-8", "replace")
                problem = refusal(answer.status, text, self._kind, self._root, self.shown(path))
                if answer.status == 403 and not anew:
                    anew, url = True, self._url(method, path, query, fresh=True)
                    continue
                if answer.status not in PASSING:
                    raise problem
            if progress() > reached:
                reached = progress()
                backoff.restart()
            backoff.wait(problem, self._given_up)  # nobody could announce the store's return

    def _url(self, method: str, path: str, query: Mapping[str, str], fresh: bool = False) -> str:
        known = self._ahead.get((method, path)) if not query and not fresh else None
        if known is not None and known[1] > time.monotonic():
            return known[0]
        return self._sign([{"method": method, "path": path, "query": query}])[0]

    def _sign(self, requests: List[Dict[str, Any]]) -> List[str]:
        urls = self._ask("sign", {"grant": self._grant, "requests": requests}).get("urls")
        if not isinstance(urls, list) or len(urls) != len(requests):
            raise ProtocolError("the coordinator's answer is invalid: it signed other requests than it was sent")
        return [str(url) for url in urls]


def _handfuls(paths: Sequence[str]) -> Iterator[List[str]]:
    """As many as one question may name, and as its answer can hold."""
    some: List[str] = []
    length = 0
    for path in paths:
        cost = len(quote(path))  # about what it takes in JSON, and exactly in a URL
        if some and (len(some) == REQUESTS or length + cost > QUESTION):
            yield some
            some, length = [], 0
        some.append(path)
        length += cost
    if some:
        yield some


def _endpoint(url: str) -> str:
    """Without what was signed."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
