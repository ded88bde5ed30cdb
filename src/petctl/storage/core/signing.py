"""Signatures that stores ask for: AWS Signature 4, Azure's SharedKey and service SAS. Pure functions.

Standard library only, Python 3.9: workers use this file too. No clock, no network, no environment; `now` is handed in.
URLs are given as they go over the wire, with path and query already percent-encoded.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import datetime
from functools import lru_cache
from typing import Dict, List, Mapping, NamedTuple, Tuple
from urllib.parse import parse_qsl, quote

UNSIGNED_PAYLOAD = "UNSIGNED-PAYLOAD"
_ALGORITHM = "AWS4-HMAC-SHA256"
_SHARED_KEY_HEADERS = (
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
)


class AwsKey(NamedTuple):
    """What signs for AWS; `token` only where the key is a temporary one."""

    key_id: str
    secret: str
    token: str = ""

    def __repr__(self) -> str:
        return f"AwsKey({self.key_id!r}, ...)"


def sigv4_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    key: AwsKey,
    region: str,
    now: datetime,
    payload_hash: str = UNSIGNED_PAYLOAD,
) -> Dict[str, str]:
    """The given headers and those that authorize the request (Authorization, x-amz-date, ...)."""
    stamp = _stamp(now)
    parts = _split(url)
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed.update({"host": parts.host, "x-amz-content-sha256": payload_hash, "x-amz-date": stamp})
    if key.token:
        signed["x-amz-security-token"] = key.token
    names = sorted(signed)
    query = sorted([(_quoted(name), _quoted(value)) for name, value in _query(parts.query)])
    canonical = _canonical(method, parts.path, query, signed, names, payload_hash)
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    signature = _sigv4_signature(key.secret, stamp, region, scope, canonical)
    said = f"Credential={key.key_id}/{scope}, SignedHeaders={';'.join(names)}, Signature={signature}"
    return {**signed, "authorization": f"{_ALGORITHM} {said}"}


def sigv4_url(method: str, url: str, key: AwsKey, region: str, now: datetime, seconds: int) -> str:
    """The URL with a signature in its query: whoever has it may do this one thing until it expires."""
    stamp = _stamp(now)
    parts = _split(url)
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    added = {
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{key.key_id}/{scope}",
        "X-Amz-Date": stamp,
        "X-Amz-Expires": str(seconds),
        "X-Amz-SignedHeaders": "host",
    }
    if key.token:
        added["X-Amz-Security-Token"] = key.token
    query = sorted((_quoted(name), _quoted(value)) for name, value in [*_query(parts.query), *added.items()])
    canonical = _canonical(method, parts.path, query, {"host": parts.host}, ["host"], UNSIGNED_PAYLOAD)
    signature = _sigv4_signature(key.secret, stamp, region, scope, canonical)
    joined = "&".join(f"{name}={value}" for name, value in query)
    return f"{parts.scheme}://{parts.host}{parts.path}?{joined}&X-Amz-Signature={signature}"


def shared_key(method: str, url: str, headers: Mapping[str, str], account: str, key: str) -> str:
    """Azure's Authorization header for a request with exactly these headers (x-ms-date and x-ms-version among them)."""
    lower = {name.lower(): value for name, value in headers.items()}
    if lower.get("content-length") == "0":
        lower["content-length"] = ""
    parts = _split(url)
    lines = [method, *(lower.get(name, "") for name in _SHARED_KEY_HEADERS)]
    lines += [f"{name}:{lower[name]}" for name in sorted(lower) if name.startswith("x-ms-")]
    lines.append(f"/{account}{parts.path}")
    values: Dict[str, List[str]] = {}
    for name, value in _query(parts.query):
        values.setdefault(name.lower(), []).append(value)
    lines += [f"{name}:{','.join(sorted(values[name]))}" for name in sorted(values)]
    return f"SharedKey {account}:{_azure_hmac(key, lines)}"


def blob_sas(
    account: str,
    key: str,
    container: str,
    blob: str,
    permissions: str,
    start: datetime,
    expiry: datetime,
    version: str = "2021-12-02",
    https: bool = True,
) -> str:
    """A service SAS as a query; an empty `blob` gives the whole container. `permissions` in Azure's order (racwdl).

    `https`: the store refuses it over plain HTTP, where others could read it. False is for stores that speak no TLS.
    """
    resource = "b" if blob else "c"
    begin, end = (moment.strftime("%Y-%m-%dT%H:%M:%SZ") for moment in (start, expiry))
    path = f"/blob/{account}/{container}" + (f"/{blob}" if blob else "")
    protocol = "https" if https else ""
    # permissions, times, path, identifier, addresses, protocol, version, kind, snapshot, encryption scope, 5 headers
    lines = [permissions, begin, end, path, "", "", protocol, version, resource, "", "", "", "", "", "", ""]
    fields = {"sv": version, "sr": resource, "st": begin, "se": end, "sp": permissions, "sig": _azure_hmac(key, lines)}
    if https:
        fields["spr"] = protocol
    return "&".join(f"{name}={quote(value, safe='')}" for name, value in fields.items())


def _canonical(
    method: str, path: str, query: List[Tuple[str, str]], headers: Mapping[str, str], names: List[str], payload: str
) -> str:
    joined = "&".join([f"{name}={value}" for name, value in query])
    lines = "\n".join([f"{name}:{headers[name]}" for name in names])
    return f"{method}\n{path or '/'}\n{joined}\n{lines}\n\n{';'.join(names)}\n{payload}"


def _sigv4_signature(secret: str, stamp: str, region: str, scope: str, canonical: str) -> str:
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    signing = _sigv4_key(secret, stamp[:8], region).copy()
    signing.update(f"{_ALGORITHM}\n{stamp}\n{scope}\n{hashed}".encode())
    return signing.hexdigest()


@lru_cache(maxsize=8)
def _sigv4_key(secret: str, day: str, region: str) -> hmac.HMAC:
    """What signs on one day, the same for every request: each takes a copy."""
    key = ("AWS4" + secret).encode()
    for part in (day, region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, digestmod=hashlib.sha256)


def _azure_hmac(key: str, lines: List[str]) -> str:
    digest = hmac.new(base64.b64decode(key), "\n".join(lines).encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode()


class _Parts(NamedTuple):
    scheme: str
    host: str
    path: str
    query: str


def _split(url: str) -> _Parts:
    """What the standard library's urlsplit would say of such a URL, in a tenth of its time."""
    scheme, _, rest = url.partition("://")
    host, slash, rest = rest.partition("/")
    path, _, query = rest.partition("?")
    return _Parts(scheme, host, slash + path, query)


@lru_cache(maxsize=8)
def _stamp(now: datetime) -> str:
    return f"{now.year:04}{now.month:02}{now.day:02}T{now.hour:02}{now.minute:02}{now.second:02}Z"


def _query(query: str) -> List[Tuple[str, str]]:
    return parse_qsl(query, keep_blank_values=True) if query else []


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
