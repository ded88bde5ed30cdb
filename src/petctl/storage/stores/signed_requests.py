"""Signed HTTP requests to one bucket or container, over connections that are kept.

A request is repeated, with growing pauses, while the store is away, busy or cuts the connection, for `PATIENCE`
seconds; other refusals become sentences at once (`store_errors.py`). Every body carries a checksum, which the store
checks.
"""

from __future__ import annotations

import logging
import socket
import time
from datetime import datetime, timezone
from functools import lru_cache
from typing import Callable, Iterator, Mapping
from urllib.parse import quote, urlencode, urlsplit

from petctl.errors import Damaged, PetctlError, StoreError
from petctl.retry import Backoff
from petctl.storage.core.answers import BadAnswer
from petctl.storage.core.body import NOTHING, Body, own_buffer
from petctl.storage.core.http_client import Answer, Head, Server, Wire
from petctl.storage.core.parts import add_checksum
from petctl.storage.core.signing import AwsKey, shared_key, sigv4_headers
from petctl.storage.core.store_errors import PASSING, reason
from petctl.storage.stores.credentials import Access, base_url
from petctl.storage.stores.location import Location
from petctl.storage.stores.store_errors import refusal, unreachable

PATIENCE = 60.0
ANSWER_WITHIN = 60.0
AZURE_VERSION = "2021-12-02"

log = logging.getLogger(__name__)


class Rest:
    """The calls to one bucket or container, from any number of threads."""

    own_headers = True

    def __init__(self, location: Location, access: Access, sign: Callable[[str, str], str] | None = None) -> None:
        """`sign` (method, path -> URL) stands in where the store gave an identity and no key."""
        self._location, self._access, self._sign = location, access, sign
        self._base = base_url(location, access)
        self._host = urlsplit(self._base).netloc
        self.server = Server(self._base, within=ANSWER_WITHIN)
        self._key = AwsKey(access.key_id, access.key, access.token)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body = NOTHING,
    ) -> Answer:
        """One request, until it is answered; an answer above 299 is raised as a sentence."""
        given = {**(headers or {}), "content-length": str(body.length)}
        add_checksum(given, body)
        attempts = _Attempts(self)
        while True:
            with attempts:
                answer = self.server.answered(self._asked(method, path, query, given, body))
                log.debug("%s %s of %s: %d", method, path, self._location, answer.status)
                if answer.status < 300:
                    return answer
                attempts.refused(answer, path)

    def stream(self, path: str, start: int, length: int, tag: str) -> Iterator[memoryview]:
        """A stretch of one version of an object, in pieces that are good only until the next one is asked for.

        Where the connection is cut, it goes on after the last byte that came.
        """
        attempts = _Attempts(self)
        done = 0
        while done < length:
            with attempts:
                headers = {"range": f"bytes={start + done}-{start + length - 1}"}
                if tag and not tag.startswith("W/"):  # a weak one never matches
                    headers["if-match"] = tag
                wire = self._asked("GET", path, None, headers, NOTHING)
                head = wire.head
                everything = head.status == 200 and not start + done and head.get("content-length") == str(length)
                if head.status != 206 and not everything:
                    self._check_range(head, path)
                    attempts.refused(self.server.answered(wire), path)
                    continue
                try:
                    while done < length:
                        piece = own_buffer()[: length - done]
                        count = wire.fill(piece)
                        if not count:
                            raise ConnectionError("got fewer bytes than announced")
                        attempts.renew()
                        done += count
                        yield piece[:count]
                finally:
                    self.server.keep(wire)

    def request(self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str]) -> bytes:
        """A signed request, without its body."""
        url = self._base + "/" + quote(path, safe="/-_.~") if path else self._base
        if query:
            url += "?" + urlencode(query, quote_via=quote)
        return self.server.request(method, *self._signed(method, path, url, headers))

    def _check_range(self, head: Head, path: str) -> None:
        if head.status == 412:
            raise Damaged(f"{self._location.below(path)} changed while it was read; run the same command again")
        if head.status < 300:
            raise StoreError(f"{self._location.root}: the store sends a whole object instead of the requested part")

    def _asked(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str], body: Body
    ) -> Wire:
        return self.server.ask(self.request(method, path, query, headers), body, method != "HEAD")

    def _signed(self, method: str, path: str, url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        access, now = self._access, _second(int(time.time()))
        if access.kind == "s3":
            return url, sigv4_headers(method, url, headers, self._key, access.region, now)
        azure = {
            **headers,
            "host": self._host,
            "x-ms-date": now.strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": AZURE_VERSION,
        }
        if access.key:
            return url, {**azure, "authorization": shared_key(method, url, azure, access.key_id, access.key)}
        sas = access.sas
        if not sas and self._sign is not None:
            azure.pop("x-ms-version")  # the signed URL names its own
            sas = urlsplit(self._sign(method, path)).query
        return f"{url}{'&' if '?' in url else '?'}{sas}", azure


class _Attempts:
    """Swallows what may pass, after a pause, until the patience is at its end; around each attempt."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self._backoff = Backoff(0.1, 2.0, PATIENCE, least=0.5)
        self.renew = self._backoff.restart

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, BadAnswer):
            raise StoreError(f"{self._rest._location.root} at {self._rest._base}: {error}") from None
        if isinstance(error, OSError) and not isinstance(error, PetctlError):  # a full disk is both
            self._backoff.wait(unreachable(self._rest._location, reason(error), self._rest._base))
            return True
        return False

    def refused(self, answer: Answer, path: str) -> None:
        """Raises the refusal, or returns after a pause when another attempt may help."""
        problem = refusal(answer.status, answer.body.decode("utf-8", "replace"), self._rest._location.below(path))
        if answer.status not in PASSING:
            raise problem
        log.info("%s; trying again", problem)
        self._backoff.wait(problem)


@lru_cache(maxsize=1)
def _second(since_1970: int) -> datetime:
    """The same object for all requests of a second: what depends on it is then known."""
    return datetime.fromtimestamp(since_1970, timezone.utc)


def probe(location: Location, endpoint: str) -> None:
    """Says at once that nobody listens, instead of trying for a minute."""
    parts = urlsplit(endpoint)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=10).close()
    except (OSError, ValueError) as error:
        raise unreachable(location, reason(error), f"{parts.scheme}://{parts.netloc}") from None
