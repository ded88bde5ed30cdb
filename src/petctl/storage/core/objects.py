"""A grant that is a prefix of a bucket or container: its objects, over URLs that the coordinator signs.

An object appears when it is complete, checked by the store against its MD5. A store that is away, busy, or cuts
connections is asked again for a while; a URL that is refused is signed anew once, since it may have expired.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape

from petctl.errors import GivenUp, NoSuchPlace, PetctlError, ProtocolError, StoreError
from petctl.storage.core.answers import BadAnswer, Course, Markers, parse_xml
from petctl.storage.core.body import NOTHING, Body, FileSlice, Held
from petctl.storage.core.checksums import MD5, Sum, base64_text, whole_md5
from petctl.storage.core.endpoint import Entry
from petctl.storage.core.grants import LIFE, REQUESTS, check_path
from petctl.storage.core.http_client import Answer, HttpClient
from petctl.storage.core.http_connection import Head
from petctl.storage.core.incoming_file import CHECKSUM, PART_SIZE, Incoming
from petctl.storage.core.store_errors import PASSING, reason, refusal, unreachable

PATIENCE = 60.0  # seconds that a store may be away
WHOLE = 64 << 20  # bytes; larger files go by parts
PART = 8 << 20
MOST_PARTS = 10_000
QUESTION = 256 << 10  # bytes of names in one question to the coordinator, whose frames are limited

_COMPLETE = Answer(Head("HTTP/1.1 206"), b"")

Ask = Callable[[str, Dict[str, Any]], Any]


class Objects:
    """The objects of one grant."""

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
            part = max(PART, -(-body.length // (MOST_PARTS << 20)) << 20)
            slices = [body.part(start, min(part, body.length - start)) for start in range(0, body.length, part)]
            if self._kind == "az":
                return self._put_blocks(path, slices, part)
            return self._put_parts(path, slices)
        digest = body.sums(MD5).md5
        headers = {"content-type": "application/octet-stream"}
        if self._kind == "az":
            headers.update({"x-ms-blob-type": "BlockBlob", f"x-ms-meta-{CHECKSUM}": digest.hex()})
        return _tag(self._send("PUT", path, {}, body, digest, headers).headers.get("etag"))

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
            self._send("DELETE", path, {})

    def _put_blocks(self, path: str, slices: List[FileSlice], part: int) -> str:
        sums: List[Sum] = []
        for number, piece in enumerate(slices):
            sums.append(piece.sums(MD5))
            query = {"comp": "block", "blockid": _block_id(number, sums[-1].md5)}
            self._send("PUT", path, query, piece, sums[-1].md5)
        blocks = "".join(f"<Latest>{_block_id(number, known.md5)}</Latest>" for number, known in enumerate(sums))
        headers = {
            f"x-ms-meta-{PART_SIZE}": str(part),
            f"x-ms-meta-{CHECKSUM}": whole_md5(sums),
            "x-ms-blob-content-type": "application/octet-stream",
        }
        text = Held(f"<?xml version='1.0' encoding='utf-8'?><BlockList>{blocks}</BlockList>".encode())
        return _tag(
            self._send("PUT", path, {"comp": "blocklist"}, text, text.sums(MD5).md5, headers).headers.get("etag")
        )

    def _put_parts(self, path: str, slices: List[FileSlice]) -> str:
        try:
            upload = parse_xml(self._send("POST", path, {"uploads": ""}).body).findtext("UploadId") or ""
        except BadAnswer:
            raise StoreError(f"{self._root}: the server there is not a store that petctl knows") from None
        try:
            items = ""
            for number, piece in enumerate(slices, start=1):
                digest = piece.sums(MD5).md5
                answer = self._send("PUT", path, {"partNumber": str(number), "uploadId": upload}, piece, digest)
                tag = escape(answer.headers.get("etag", ""))
                items += f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
            text = Held(f"<CompleteMultipartUpload>{items}</CompleteMultipartUpload>".encode())
            answer = self._send("POST", path, {"uploadId": upload}, text, text.sums(MD5).md5)
            if b"<Error>" in answer.body:  # S3 may have begun to answer 200 before it knew
                raise StoreError(f"{self.shown(path)}: the store could not combine the parts")
        except BaseException:  # parts that nobody will finish would be kept, and paid for
            with contextlib.suppress(PetctlError, OSError):
                (url,) = self._sign([{"method": "DELETE", "path": path, "query": {"uploadId": upload}}])
                self._http.once("DELETE", url)
            raise
        try:
            return _tag(parse_xml(answer.body).findtext("ETag"))
        except BadAnswer:
            return ""  # it is there all the same

    def _send(
        self,
        method: str,
        path: str,
        query: Dict[str, str],
        body: Body = NOTHING,
        digest: bytes = b"",
        headers: Optional[Dict[str, str]] = None,
    ) -> Answer:
        given = dict(headers or {})
        if digest:
            given["content-md5"] = base64_text(digest)
        return self._until_answered(method, path, query, lambda url: self._http.once(method, url, given, body))

    def _until_answered(
        self,
        method: str,
        path: str,
        query: Dict[str, str],
        attempt: Callable[[str], Answer],
        progress: Callable[[], int] = lambda: 0,
    ) -> Answer:
        """A good answer, however often it takes within the patience; progress renews that."""
        end, pause, anew, reached = time.monotonic() + self._patience, 0.1, False, progress()
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
                reached, pause, end = progress(), 0.1, time.monotonic() + self._patience
            if time.monotonic() + pause > end:
                raise problem
            if self._given_up.wait(pause):  # nobody could announce the store's return
                raise GivenUp
            pause = min(pause * 2, 2.0)

    def _url(self, method: str, path: str, query: Dict[str, str], fresh: bool = False) -> str:
        known = self._ahead.get((method, path)) if not query and not fresh else None
        if known is not None and known[1] > time.monotonic():
            return known[0]
        return self._sign([{"method": method, "path": path, "query": query}])[0]

    def _sign(self, requests: List[Dict[str, Any]]) -> List[str]:
        urls = self._ask("sign", {"grant": self._grant, "requests": requests}).get("urls")
        if not isinstance(urls, list) or len(urls) != len(requests):
            raise ProtocolError("the coordinator's answer is invalid: it signed other requests than it was sent")
        return [str(url) for url in urls]


def _tag(text: Optional[str]) -> str:
    return (text or "").strip('"')


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


def _block_id(number: int, digest: bytes) -> str:
    return base64_text(f"petctl-{number:05d}-{digest.hex()}".encode())


def _endpoint(url: str) -> str:
    """Without what was signed."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
