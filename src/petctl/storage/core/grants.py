"""What a job may touch in object stores, and the keys for it: the coordinator's side of `files.py`.

A node that wants to move a file asks for a URL (call `sign`), good for one object, one verb and 15 minutes; a node that
wants to know what is there asks for a page of names (call `page`). It sees no key. Only where the user's own key is a
SAS does it reach the nodes, as part of those URLs: a SAS cannot be narrowed.

Nothing is signed outside a grant's prefix, and no verb or query that `files.py` does not need. Where keys come from is
not known here: whoever makes the grants also makes them anew when keys may have changed.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence
from urllib.parse import quote, urlencode

from petctl.errors import PetctlError, ProtocolError, Refused, StoreError
from petctl.storage.core.answers import BadAnswer, parse_xml, whole_number
from petctl.storage.core.http_client import HttpClient
from petctl.storage.core.listing import MARKER, page_query, page_rows, page_time
from petctl.storage.core.signing import AwsKey, blob_sas, sigv4_url
from petctl.storage.core.store_errors import PASSING, reason, refusal, unreachable

LIFE = 900  # seconds that a URL is good for
REQUESTS = 1000  # in one call
PAGE = 1000  # names in one answer
ATTEMPTS = 3  # at a page; whoever asked asks again

_SKEW = timedelta(minutes=15)
_PATH_LIMIT = 1024  # bytes; no store takes longer names
_READS, _WRITES = ("GET", "HEAD"), ("PUT", "POST", "DELETE")
_PERMISSIONS = {"GET": "r", "HEAD": "r", "PUT": "cw", "POST": "cw", "DELETE": "d"}
_QUERIES = {  # each value is a pattern for the whole text
    ("s3", "PUT"): ({}, {"partNumber": r"[1-9]\d{0,4}", "uploadId": r"[\w.~-]+"}),
    ("s3", "POST"): ({"uploads": ""}, {"uploadId": r"[\w.~-]+"}),
    ("s3", "DELETE"): ({}, {"uploadId": r"[\w.~-]+"}),
    ("az", "PUT"): ({}, {"comp": "block", "blockid": r"[A-Za-z0-9+/]+=*"}, {"comp": "blocklist"}),
    ("az", "DELETE"): ({},),
}


@dataclass(frozen=True)
class Grant:
    """A prefix of a bucket or container, or a directory. `shown`: the bucket as people write it."""

    kind: str  # s3, az or file
    base: str  # URL of the bucket or container; an absolute directory
    prefix: str = ""  # empty, or with a slash at its end
    write: bool = False
    region: str = ""
    key_id: str = ""
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    sas: str = field(default="", repr=False)
    shown: str = ""


class Grants(Mapping[str, Grant]):
    """The grants of one job by name. `missing`: those that cannot be had right now, with the reason for people."""

    def __init__(self, grants: Mapping[str, Grant], missing: Optional[Mapping[str, str]] = None) -> None:
        self._grants = dict(grants)
        self.missing = dict(missing or {})

    def __getitem__(self, name: str) -> Grant:
        return self._grants[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._grants)

    def __len__(self) -> int:
        return len(self._grants)

    def sign(self, grant: str, requests: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """URLs for these requests in their order, or the directory of a grant of this machine; and what it is."""
        found = self._find(grant)
        if not isinstance(requests, list) or len(requests) > REQUESTS:
            raise ProtocolError(f"at most {REQUESTS} requests can be signed at a time, in a list")
        now = datetime.now(timezone.utc)
        urls = [_signed(found, grant, request, now) for request in requests]
        about = {"kind": found.kind, "root": found.shown or found.base, "prefix": found.prefix}
        if found.kind == "file":
            return {**about, "directory": f"{found.base.rstrip('/')}/{found.prefix}".rstrip("/"), "base": found.base}
        return {**about, "urls": urls}

    def page(self, grant: str, after: str) -> Dict[str, Any]:
        """Some of the objects below the prefix: [path, size, time, tag] each. Asks the store: not for an event loop.

        Names that no path could have (empty parts, `..`) are left out: nobody could get a URL for them.
        """
        found = self._find(grant)
        if found.kind == "file":
            raise ProtocolError(f"{grant!r} is a directory: nodes list it themselves")
        root, where = found.shown or found.base, f"{found.shown or found.base}/{found.prefix}"
        http = HttpClient()
        problem: PetctlError
        for _ in range(ATTEMPTS):
            try:
                answer = http.once("GET", _page_url(found, str(after), datetime.now(timezone.utc)))
            except OSError as error:
                problem = unreachable(root, reason(error), found.base)
                continue
            if answer.status == 200:
                try:
                    return _parsed(answer.body, found)
                except BadAnswer:
                    raise StoreError(f"{where}: the server at {found.base} is not a store that petctl knows") from None
            problem = refusal(answer.status, answer.body.decode("utf-8", "replace"), found.kind, root, where)
            if answer.status not in PASSING:
                break
        raise problem

    def _find(self, name: str) -> Grant:
        if isinstance(name, str) and name in self._grants:
            return self._grants[name]
        if isinstance(name, str) and name in self.missing:
            raise Refused(self.missing[name])
        raise Refused(f"this job has no grant {str(name)[:80]!r}")


def check_path(path: object) -> str:
    """The path, if it names something below a prefix and nothing else."""
    if (
        not isinstance(path, str)
        or "\0" in path
        or any(part in ("", ".", "..") for part in path.split("/"))
        or len(path.encode("utf-8", "surrogatepass")) > _PATH_LIMIT
    ):
        raise Refused(f"{str(path)[:200]!r} is not a valid file name in a store: it is too long, or points elsewhere")
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Refused(f"{path[:200]!r} is not a valid file name in a store: it is not UTF-8") from None
    return path


def _signed(grant: Grant, name: str, request: Mapping[str, Any], now: datetime) -> str:
    if not isinstance(request, dict):
        raise ProtocolError("a request to sign must be an object with method, path and query")
    method, query = request.get("method"), request.get("query") or {}
    path = check_path(request.get("path"))
    if method not in _READS + _WRITES:
        raise Refused(f"nodes may not use the method {str(method)[:20]!r}")
    if method in _WRITES and not grant.write:
        raise Refused(f"{grant.shown or grant.base}/{grant.prefix} is read-only in this job ({name})")
    if grant.kind == "file":
        return ""
    if not any(_fits(query, known) for known in _QUERIES.get((grant.kind, method), ({},))):
        raise Refused(f"nodes may not use the query {str(query)[:80]!r} of a {method}")
    url = f"{grant.base}/{quote(grant.prefix + path, safe='/-_.~')}"
    if query:
        url += "?" + urlencode(query, quote_via=quote)
    return _authorized(grant, method, url, grant.prefix + path, _PERMISSIONS[method], now)


def _fits(query: object, known: Mapping[str, str]) -> bool:
    return (
        isinstance(query, dict)
        and query.keys() == known.keys()
        and all(re.fullmatch(pattern, str(query[name])) for name, pattern in known.items())
    )


def _authorized(grant: Grant, method: str, url: str, path: str, permissions: str, now: datetime) -> str:
    if grant.kind == "s3":
        if not grant.key:
            return url  # a bucket that everybody may read
        return sigv4_url(method, url, AwsKey(grant.key_id, grant.key, grant.token), grant.region, now, LIFE)
    sas = grant.sas
    if not sas and grant.key:
        container = grant.base.rpartition("/")[2]
        end = now + timedelta(seconds=LIFE)
        https = grant.base.startswith("https:")
        sas = blob_sas(grant.key_id, grant.key, container, path, permissions, now - _SKEW, end, https=https)
    return f"{url}{'&' if '?' in url else '?'}{sas}" if sas else url


def _page_url(grant: Grant, after: str, now: datetime) -> str:
    query = page_query(grant.kind, grant.prefix, PAGE, after)
    url = f"{grant.base}{'' if grant.kind == 'az' else '/'}?{urlencode(query, quote_via=quote)}"
    return _authorized(grant, "GET", url, "", "rl", now)


def _parsed(body: bytes, grant: Grant) -> Dict[str, Any]:
    root = parse_xml(body)
    entries = []
    for name, size, modified, tag, mark in page_rows(root, grant.kind):
        entry = [whole_number(size or "0"), page_time(modified, grant.kind), tag.strip('"')]
        with contextlib.suppress(Refused):
            if not mark:
                entries.append([check_path(name[len(grant.prefix) :]), *entry])
    return {"entries": entries, "after": root.findtext(MARKER[grant.kind]) or ""}
