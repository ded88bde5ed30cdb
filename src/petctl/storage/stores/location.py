"""Where something lies, as a value. Text in, `Location` out; nothing is opened or asked here.

    s3://BUCKET/PATH        az://ACCOUNT/CONTAINER/PATH        gs://BUCKET/PATH        file:///PATH, PATH
    https://ACCOUNT.blob.core.windows.net/CONTAINER/PATH[?SAS]          the same as az://
    https://ACCOUNT.file.core.windows.net/SHARE/PATH                    a file share: a directory, see credentials

A slash at the end says that a folder is meant. `str()` never shows a SAS.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, unquote, urlsplit

from petctl.errors import UsageError

BLOB_HOST = ".blob.core.windows.net"
SHARE_HOST = ".file.core.windows.net"
FORMS = "s3://BUCKET/PATH, az://ACCOUNT/CONTAINER/PATH, gs://BUCKET/PATH, file:///PATH or a plain path"


@dataclass(frozen=True)
class Location:
    """A path in a bucket, container, share or on this machine; only local paths begin with a slash."""

    kind: str
    bucket: str = ""
    path: str = ""
    account: str = ""
    slash: bool = False
    sas: str = field(default="", repr=False)

    @property
    def local(self) -> bool:
        """Whether this machine's file system has it."""
        return self.kind == "file"

    @property
    def root(self) -> str:
        """The bucket or container, as people write it."""
        if self.kind == "share":
            return f"https://{self.account}{SHARE_HOST}/{self.bucket}"
        return f"{self.kind}://{self.account}/{self.bucket}" if self.account else f"{self.kind}://{self.bucket}"

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    def below(self, relative: str) -> Location:
        """A location inside this folder."""
        path = f"{self.path.rstrip('/')}/{relative}" if self.path else relative
        return replace(self, path=path, slash=False)

    def __str__(self) -> str:
        end = "/" if self.slash and not self.path.endswith("/") else ""
        if self.local:
            return self.path + end
        return f"{self.root}/{self.path}{end}" if self.path else f"{self.root}/"


def parse_location(text: str) -> Location:
    """The location that the user's words name; UsageError says what is wrong with them."""
    if not text or "\0" in text:
        raise UsageError(f"a location is empty or contains a NUL character; write {FORMS}")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _local(text)
    scheme = scheme.lower()
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise UsageError(f"{text!r}: a file URL has three slashes: file:///PATH")
        return _local("/" + unquote(path))
    if scheme in ("s3", "gs"):
        bucket, _, path = rest.partition("/")
        return _remote(text, scheme, "", bucket, path)
    if scheme == "az":
        account, _, rest = rest.partition("/")
        container, _, path = rest.partition("/")
        if not account or not container:
            raise UsageError(f"{text!r}: Azure needs the account and the container: az://ACCOUNT/CONTAINER/PATH")
        return _remote(text, "az", account, container, path)
    if scheme in ("https", "http"):
        return _web(text)
    raise UsageError(f"{text!r}: petctl does not support {scheme}:// locations; write {FORMS}")


def _local(text: str) -> Location:
    path = os.path.expanduser(text)  # noqa: PTH111  a Path would lose the slash at the end
    return Location("file", path=os.path.abspath(path), slash=text.endswith("/"))  # noqa: PTH100


def _remote(text: str, kind: str, account: str, bucket: str, path: str, sas: str = "") -> Location:
    if not bucket:
        raise UsageError(f"{_without_query(text)!r} names no bucket; write {FORMS}")
    trimmed = path.rstrip("/")
    for part in trimmed.split("/") if trimmed else []:
        if part in ("", ".", ".."):
            raise UsageError(f"{_without_query(text)!r}: {part or '//'!r} has no meaning in the path of an object")
    return Location(kind, bucket, trimmed, account, slash=path.endswith("/"), sas=sas)


def _web(text: str) -> Location:
    parts = urlsplit(text)
    host = (parts.hostname or "").lower()
    shown = _without_query(text)
    for suffix, kind in ((BLOB_HOST, "az"), (SHARE_HOST, "share")):
        if not host.endswith(suffix):
            continue
        sas = parts.query
        if sas and "sig" not in parse_qs(sas):
            raise UsageError(
                f"{shown!r}: the part after the question mark is not a SAS (it has no sig=); quote the URL"
            )
        bucket, _, path = parts.path.lstrip("/").partition("/")
        return _remote(shown, kind, host.removesuffix(suffix), unquote(bucket), unquote(path), sas)
    raise UsageError(
        f"{shown!r} is not a storage that petctl supports: https URLs name Azure blobs "
        f"(https://ACCOUNT{BLOB_HOST}/CONTAINER/PATH) or file shares (https://ACCOUNT{SHARE_HOST}/SHARE/PATH)"
    )


def _without_query(text: str) -> str:
    return text.partition("?")[0] if "://" in text else text
