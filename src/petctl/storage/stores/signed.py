"""One bucket or container, by requests that petctl signs itself: S3 and Azure with keys, a SAS, or Azure's identities.

What it can that obstore cannot: parts that survive a kill, checksums that the store checks, names as they are (`a//b`),
bytes that go from the socket into the file without a detour.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Iterator, Mapping, Sequence
from urllib.parse import parse_qs, quote

from petctl.errors import NoSuchPlace, Refused
from petctl.http_proxy import proxy_of
from petctl.storage.core.answers import whole_number
from petctl.storage.core.body import Body, Held
from petctl.storage.core.checksums import Known, Sum, parse_crc32
from petctl.storage.core.http_client import Head
from petctl.storage.core.listing import FOLDER_MARK, mail_time
from petctl.storage.core.parts import (
    CHECKSUM_NAME,
    CRC32_NAME,
    PART_SIZE_NAME,
    AzureParts,
    Parts,
    Records,
    S3Parts,
    Upload,
    part_size,
    whole_headers,
)
from petctl.storage.core.signing import blob_sas
from petctl.storage.stores.bucket import PLAIN_MD5, Bucket
from petctl.storage.stores.credentials import Access, Surroundings, base_url, find_access
from petctl.storage.stores.endpoint import Entry, Sink
from petctl.storage.stores.location import Location
from petctl.storage.stores.paging import page_children, page_entries
from petctl.storage.stores.signed_requests import Rest, probe
from petctl.storage.transfer.pipelining import Lanes

_PARTS_MD5 = re.compile(r"[0-9a-f]{32}-\d+")


def open_bucket(location: Location, surroundings: Surroundings) -> Bucket:
    """The bucket or container that a location is in; StoreUnreachable at once if nobody listens at its endpoint."""
    root = location.__class__(location.kind, location.bucket, "", location.account, sas=location.sas)
    access = find_access(location, surroundings)
    if proxy_of(base_url(root, access), surroundings.environ):
        return Bucket(root, access)  # obstore knows how to talk to one
    if access.endpoint:
        probe(root, access.endpoint)
    signs = access.key or access.sas or location.kind == "az"
    if access.anonymous or location.kind not in ("s3", "az") or not signs:
        return Bucket(root, access)
    return SignedBucket(root, access, Records(surroundings.records, root.root))


class SignedBucket(Bucket):
    """The root of a bucket or container as one end of a transfer."""

    def __init__(self, location: Location, access: Access, records: Records) -> None:
        super().__init__(location, access)
        keyless = None if access.key or access.sas else self.signed_url
        self._rest = Rest(location, access, keyless)
        self._meta = "x-amz-meta-" if location.kind == "s3" else "x-ms-meta-"
        self._parts: Parts = (S3Parts if location.kind == "s3" else AzureParts)(self._rest, records)
        self._records = records

    @property
    def may_look(self) -> bool:
        rights = parse_qs(self.access.sas).get("sp", ["rl"])[0]
        return {"r", "l"} <= set(rights)

    def check_may_look(self) -> None:
        if not self.may_look:
            raise Refused(
                f"{self.location.root}: the SAS does not permit listing and reading (sp=rl); ask the owner for "
                f"one that does, or name single files to upload"
            )

    def entries(self, path: str) -> Iterator[Entry]:
        self.check_may_look()
        return page_entries(self._rest, self.location.kind, f"{path}/" if path else "")

    def children(self, path: str) -> Iterator[Entry]:
        self.check_may_look()
        return page_children(self._rest, self.location.kind, f"{path}/" if path else "")

    def holds(self, path: str) -> bool:
        # Two: the first may be the object that stands for the folder itself.
        begin = f"{path}/" if path else ""
        return next(page_entries(self._rest, self.location.kind, begin, most=2), None) is not None

    def beginning(self, start: str) -> Iterator[Entry]:
        self.check_may_look()
        own = self._head(start) if start and not start.endswith("/") else None
        if own is not None:
            yield own
        for entry in page_entries(self._rest, self.location.kind, start):
            yield entry._replace(path=start + entry.path)

    def find(self, path: str) -> Entry | None:
        entry = self._head(path)
        return None if entry is None or entry.folder else entry

    def _head(self, path: str) -> Entry | None:
        try:
            headers = self._rest.call("HEAD", path).headers
        except NoSuchPlace:
            return None  # a missing bucket looks the same here: HEAD has no body. Whoever lists it learns of that.
        except Refused:
            self.holds(path)  # for the same reason: this says why
            raise
        modified = mail_time(headers.get("last-modified", ""))
        mark = headers.get(self._meta + FOLDER_MARK, "") == "true"
        return Entry(path, whole_number(headers.get("content-length", "")), modified, headers.get("etag", ""), mark)

    def whole(self, entry: Entry) -> Body:
        answer = self._rest.call("GET", entry.path)
        return self.received(entry, answer.head, answer.body)

    def lanes(self) -> Lanes:
        """A way for very many small objects; `asking`, `received` and `giving` are made for it."""
        return Lanes(self._rest.server.dial)

    def asking(self, entry: Entry) -> bytes:
        """The request for all of a small object."""
        return self._rest.request("GET", entry.path, None, {})

    def received(self, entry: Entry, head: Head, data: bytes | memoryview) -> Body:
        """What the answer to that brought, verified."""
        body = Held(data)
        md5 = head.get(self._meta + CHECKSUM_NAME)
        if not md5 and self.location.kind == "s3":
            md5 = head.get("etag").strip('"')
        self.check_whole(entry, body, md5, parse_crc32(head.get(self._meta + CRC32_NAME)))
        return body

    def giving(self, path: str, body: Body) -> bytes:
        """The request that makes a small object."""
        headers = {**whole_headers(self.location.kind, body), "content-length": str(body.length)}
        return b"".join((self._rest.request("PUT", path, None, headers), body.read()))

    def stream(self, entry: Entry, offset: int, length: int) -> Iterator[memoryview]:
        return self._rest.stream(entry.path, offset, length, entry.tag)

    def known(self, entry: Entry) -> Known:
        headers = self._noted(entry)
        name = "x-amz-checksum-crc32" if self.location.kind == "s3" else self._meta + CRC32_NAME
        whole = headers.get("x-amz-checksum-type") != "COMPOSITE"
        return Known(self._parts_md5(entry, headers), parse_crc32(headers.get(name, "-") if whole else "-"))

    def checksum(self, entry: Entry) -> str:
        if self.location.kind == "s3" and PLAIN_MD5.fullmatch(entry.tag.strip('"')):
            return entry.tag.strip('"')
        if entry.size == 0:
            return ""
        headers = self._noted(entry)
        return headers.get(self._meta + CHECKSUM_NAME, "") or self._parts_md5(entry, headers)

    def put(self, path: str, body: Body, source: Entry) -> None:
        self._rest.call("PUT", path, None, whole_headers(self.location.kind, body), body)

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        return _ObjectSink(self._parts, path, source.size, identity)

    def tidy(self, path: str) -> None:
        self._records.forget(path)  # it was killed between the object's completion and the record's end

    def remove(self, paths: Sequence[str]) -> None:
        tidy = [path for path in paths if not {"", ".", ".."} & set(path.split("/"))]
        for path in set(paths) - set(tidy):
            self._rest.call("DELETE", path)  # obstore would remove another one, of a tidier name
        super().remove(tidy)

    def url(self, path: str, seconds: int) -> str:
        if self.access.sas:
            return f"{self.access.endpoint}/{self.location.bucket}/{quote(path)}?{self.access.sas}"
        if self.location.kind == "az" and self.access.key:  # obstore signs names with blanks wrongly
            now = datetime.now(timezone.utc)
            begin, end = now - timedelta(minutes=15), now + timedelta(seconds=seconds)  # clocks differ
            key_id, key, https = self.access.key_id, self.access.key, self.access.endpoint.startswith("https:")
            sas = blob_sas(key_id, key, self.location.bucket, path, "r", begin, end, https=https)
            return f"{self.access.endpoint}/{self.location.bucket}/{quote(path)}?{sas}"
        return super().url(path, seconds)

    def encrypted(self, path: str) -> bool:
        return self.location.kind == "s3" and _by_key_service(self._rest.call("HEAD", path).headers)

    def _noted(self, entry: Entry) -> Mapping[str, str]:
        ask = {"x-amz-checksum-mode": "ENABLED"} if self.location.kind == "s3" else {}
        return self._rest.call("HEAD", entry.path, None, ask).headers

    def _parts_md5(self, entry: Entry, headers: Mapping[str, str]) -> str:
        """The MD5 of the parts' MD5s, where the parts are such as petctl makes."""
        noted = headers.get(self._meta + CHECKSUM_NAME, "")
        if self.location.kind == "s3" and not noted and not _by_key_service(headers):
            own = headers.get(self._meta + PART_SIZE_NAME) == str(part_size(entry.size))
            noted = headers.get("etag", "").strip('"') if own else ""
        return noted if _PARTS_MD5.fullmatch(noted) else ""


class _ObjectSink:
    """A large object on its way into a bucket."""

    def __init__(self, parts: Parts, path: str, size: int, identity: str) -> None:
        self._parts = parts
        self._upload: Upload
        self._upload, self.there, self.trusted = parts.begin(path, size, identity)
        self.part, self.kinds = self._upload.part, self._upload.kinds

    def send(self, number: int, body: Body, known: Sum) -> None:
        self._parts.send(self._upload, number, body, known)

    def finish(self, sums: Sequence[Sum]) -> None:
        self._parts.finish(self._upload, sums)

    def discard(self) -> None:
        self._parts.abandon(self._upload)

    def leave(self) -> None:
        pass


def _by_key_service(headers: Mapping[str, str]) -> bool:
    """Whether S3 has encrypted an object so that its ETag is no checksum."""
    encryption = headers.get("x-amz-server-side-encryption", "AES256")
    return encryption != "AES256" or "x-amz-server-side-encryption-customer-algorithm" in headers
