"""Signed HTTP requests to one bucket or container: the few calls that obstore hides. Keeps one connection per thread.

A request is repeated, with growing pauses, while the store is away, busy or cuts the connection, for `PATIENCE`
seconds; other refusals become sentences at once (`failures.py`). Every body carries its MD5, which the store checks.
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Callable, Mapping
from urllib.parse import quote, urlencode, urlsplit

from petctl.errors import PetctlError
from petctl.store.body import Body, Held, base64_text
from petctl.store.credentials import Access
from petctl.store.failures import refusal, unreachable
from petctl.store.location import Location
from petctl.store.signing import AwsKey, shared_key, sigv4_headers

PATIENCE = 60.0
ANSWER_WITHIN = 60.0
AZURE_VERSION = "2021-12-02"
_PASSING = {408, 429, 500, 502, 503, 504}
_DOTTED_BUCKET = re.compile(r"[^a-z0-9-]")


@dataclass(frozen=True)
class Answer:
    """What the store said."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Rest:
    """The calls to one bucket or container, from any number of threads."""

    def __init__(self, location: Location, access: Access, sign: Callable[[str, str], str] | None = None) -> None:
        """`sign` (method, path -> URL) stands in where the store gave an identity and no key."""
        self._location, self._access, self._sign = location, access, sign
        self._base = _base(location, access)
        self._threads = threading.local()

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        md5: bytes | None = None,
    ) -> Answer:
        """One request, until it is answered; an answer above 299 is raised as a sentence."""
        body = body or Held(b"")
        given = {**(headers or {}), "content-length": str(body.length)}
        if body.length:
            given["content-md5"] = base64_text(md5 or body.md5())
        url = self._base + "/" + quote(path, safe="/-_.~") if path else self._base
        if query:
            url += "?" + urlencode(query, quote_via=quote)
        end = time.monotonic() + PATIENCE
        pause = 0.1
        while True:
            problem: PetctlError
            try:
                answer = self._once(method, path, url, given, body)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                problem = unreachable(self._location, _reason(error), self._base)
            else:
                if answer.status < 300:
                    return answer
                problem = refusal(answer.status, answer.body.decode("utf-8", "replace"), self._location.below(path))
                if answer.status not in _PASSING:
                    raise problem
            if time.monotonic() + pause > end:
                raise problem
            time.sleep(
                pause * random.uniform(0.5, 1.0)
            )  # a pause between attempts; nobody could announce the store's return
            pause = min(pause * 2, 2.0)

    def _once(self, method: str, path: str, url: str, headers: Mapping[str, str], body: Body) -> Answer:
        url, signed = self._signed(method, path, url, headers)
        connection = self._connection()
        target = url.partition("://")[2]
        connection.putrequest(method, target[target.index("/") :], skip_host=True, skip_accept_encoding=True)
        for name, value in signed.items():
            connection.putheader(name, value)
        try:
            connection.endheaders()
            body.send(connection.sock)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may have refused before it read everything; if it did not, the next line says so
        response = connection.getresponse()
        data = response.read()
        if response.will_close:
            self._drop()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, data)

    def _signed(self, method: str, path: str, url: str, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        access, now = self._access, datetime.now(timezone.utc)
        if access.kind == "s3":
            key = AwsKey(access.key_id, access.key, access.token)
            return url, sigv4_headers(method, url, headers, key, access.region, now)
        azure = {
            **headers,
            "host": urlsplit(url).netloc,
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

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._threads, "connection", None)
        if connection is None:
            parts = urlsplit(self._base)
            if parts.scheme == "https":
                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(parts.netloc, timeout=ANSWER_WITHIN, context=context)
            else:
                connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_WITHIN)
            self._threads.connection = connection
        return connection

    def _drop(self) -> None:
        connection = getattr(self._threads, "connection", None)
        if connection is not None:
            connection.close()
            self._threads.connection = None


def probe(location: Location, endpoint: str) -> None:
    """Says at once that nobody listens, instead of trying for a minute."""
    parts = urlsplit(endpoint)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        socket.create_connection((parts.hostname or "", port), timeout=10).close()
    except (OSError, ValueError) as error:
        raise unreachable(location, _reason(error), f"{parts.scheme}://{parts.netloc}") from None


def _base(location: Location, access: Access) -> str:
    """The URL of the bucket or container."""
    if access.kind == "s3" and not access.endpoint:
        if _DOTTED_BUCKET.search(location.bucket):  # TLS certificates cover one name below the region's
            return f"https://s3.{access.region}.amazonaws.com/{location.bucket}"
        return f"https://{location.bucket}.s3.{access.region}.amazonaws.com"
    return f"{access.endpoint}/{location.bucket}"


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
