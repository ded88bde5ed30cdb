"""One bucket or container. Reading, listing and removing go through obstore; writing goes with a checksum (`rest`).

Where petctl has no key of its own to sign with (a machine's identity on S3, Google), writing goes through obstore too:
it is then not resumed part by part, and the store does not check an MD5.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, TypeVar

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused
from petctl.store.body import Body, FileSlice, Held
from petctl.store.credentials import Access, Surroundings, find_access
from petctl.store.failures import explain
from petctl.store.location import Location
from petctl.store.opening import open_store
from petctl.store.paging import page_children
from petctl.store.parts import (
    CHECKSUM_NAME,
    PART,
    PART_SIZE_NAME,
    AzureParts,
    Parts,
    Records,
    S3Parts,
    Upload,
    part_size,
    put_whole,
)
from petctl.store.place import Entry, Sink
from petctl.store.rest import Rest, probe

if TYPE_CHECKING:
    from obstore import ObjectMeta

Result = TypeVar("Result")
CUTS = 8
"""How often in a row an answer may be cut short."""
_PLAIN_MD5 = re.compile(r"[0-9a-f]{32}")


class Bucket:
    """The root of a bucket or container as one end of a transfer."""

    def __init__(self, location: Location, surroundings: Surroundings) -> None:
        """Opens it; StoreUnreachable at once if nobody listens at its endpoint."""
        self.location = location.__class__(location.kind, location.bucket, "", location.account, sas=location.sas)
        self.access: Access = find_access(location, surroundings)
        if self.access.endpoint:
            probe(self.location, self.access.endpoint)
        self._store: Any = self._asked(lambda: open_store(self.location, self.access), "")
        self._rest = self._find_rest()
        self._parts: Parts | None = None
        if self._rest is not None:
            records = Records(surroundings.records, self.location.root)
            self._parts = S3Parts(self._rest, records) if location.kind == "s3" else AzureParts(self._rest, records)

    def entries(self, path: str) -> Iterator[Entry]:
        import obstore

        begin = f"{path}/" if path else ""
        last: str | None = None
        batches: Any = None
        cuts = 0
        while True:
            try:
                if batches is None:
                    batches = iter(obstore.list(self._store, prefix=path or None, offset=last, chunk_size=1000))
                batch = next(batches, None)
            except Exception as error:
                cuts += 1
                if cuts > CUTS or not _cut(error):
                    raise explain(error, self.location.below(path) if path else self.location) from None
                batches = None  # a page was cut short: go on after the last name
                continue
            if batch is None:
                return
            cuts = 0
            for meta in batch:
                last = meta["path"]
                if last.startswith(begin) and last != path:
                    yield _entry(meta, last[len(begin) :])

    def children(self, path: str) -> Iterator[Entry]:
        if self._rest is not None:
            yield from page_children(self._rest, self.location.kind, f"{path}/" if path else "")
            return
        import obstore

        found = self._asked(lambda: obstore.list_with_delimiter(self._store, prefix=path or None), path)
        for prefix in found["common_prefixes"]:
            yield Entry(prefix.rstrip("/").rpartition("/")[2], 0, 0.0, folder=True)
        for meta in found["objects"]:
            yield _entry(meta, meta["path"].rpartition("/")[2])

    def find(self, path: str) -> Entry | None:
        import obstore

        try:
            return _entry(self._asked(lambda: obstore.head(self._store, path), path), path)
        except NoSuchPlace:
            return None  # a missing bucket looks the same here: HEAD has no body. Whoever lists it learns of that.
        except Refused:
            next(self.entries(path), None)  # for the same reason: this says why
            raise

    def whole(self, entry: Entry) -> Body:
        import obstore

        def read() -> tuple[Any, Held]:
            answer = obstore.get(self._store, entry.path)
            return answer, Held(answer.bytes())

        answer, body = self._asked(read, entry.path)
        known = str(answer.attributes.get(CHECKSUM_NAME, ""))
        if not known and self.location.kind == "s3":
            known = _tag(answer.meta)
        if body.length != entry.size:
            raise Damaged(f"{self.location.below(entry.path)} was changed while it was read; run the command again")
        if _PLAIN_MD5.fullmatch(known) and body.md5().hex() != known and not self._encrypted(entry.path):
            raise Damaged(f"{self.location.below(entry.path)}: what arrived does not fit its checksum {known}")
        return body

    def slice(self, entry: Entry, offset: int, length: int) -> Body:
        import obstore

        def read(start: int, end: int) -> Any:
            options: Any = {"range": (start, end), "if_match": entry.tag or None}
            return self._asked(lambda: obstore.get(self._store, entry.path, options=options).bytes(), entry.path)

        if length <= PART:
            return _of_length(Held(read(offset, offset + length)), length, str(self.location.below(entry.path)))
        # Objects above 80 GB have larger parts; memory stays flat.
        descriptor = os.dup((spool := tempfile.TemporaryFile()).fileno())  # noqa: SIM115
        spool.close()
        for start in range(0, length, PART):
            os.pwrite(descriptor, read(offset + start, offset + min(start + PART, length)), start)
        return _Spooled(descriptor, length, str(self.location.below(entry.path)))

    def close(self, entry: Entry) -> None:
        pass

    def checksum(self, entry: Entry) -> str:
        import obstore

        if self.location.kind == "s3" and _PLAIN_MD5.fullmatch(entry.tag.strip('"')):
            return entry.tag.strip('"')
        if entry.size == 0:
            return ""
        answer = self._asked(lambda: obstore.get(self._store, entry.path, options={"range": (0, 1)}), entry.path)
        attributes = {str(name): str(value) for name, value in answer.attributes.items()}
        if CHECKSUM_NAME in attributes:
            return attributes[CHECKSUM_NAME]
        if attributes.get(PART_SIZE_NAME) == str(part_size(entry.size)) and self.location.kind == "s3":
            return "" if self._encrypted(entry.path) else _tag(answer.meta)
        return ""

    def check_unchanged(self, entry: Entry) -> None:
        pass  # every read was of one version: `if_match`

    def put(self, path: str, body: Body, source: Entry) -> None:
        if self._rest is not None:
            put_whole(self._rest, self.location.kind, path, body)
            return
        import obstore

        attributes: Any = {CHECKSUM_NAME: body.md5().hex()}
        self._asked(lambda: obstore.put(self._store, path, bytes(body.read()), attributes=attributes), path)

    def put_stream(self, path: str, chunks: Iterator[Any]) -> None:
        """A large object where there are no parts of petctl's own."""
        import obstore

        self._asked(lambda: obstore.put(self._store, path, chunks, chunk_size=PART, max_concurrency=8), path)

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        return None if self._parts is None else _ObjectSink(self._parts, path, source.size, identity)

    def remove(self, paths: Sequence[str]) -> None:
        import obstore

        if paths:
            self._asked(lambda: obstore.delete(self._store, list(paths)), paths[0])

    def url(self, path: str, seconds: int) -> str:
        """A link that whoever has it can read the object with, for a while."""
        import obstore

        if self.access.sas:
            from urllib.parse import quote

            return f"{self.access.endpoint}/{self.location.bucket}/{quote(path)}?{self.access.sas}"
        return str(self._asked(lambda: obstore.sign(self._store, "GET", path, timedelta(seconds=seconds)), path))

    def _find_rest(self) -> Rest | None:
        if self.access.anonymous or self.location.kind not in ("s3", "az"):
            return None
        if self.access.key or self.access.sas:
            return Rest(self.location, self.access)
        return Rest(self.location, self.access, self._signed_url) if self.location.kind == "az" else None

    def _signed_url(self, method: str, path: str) -> str:
        import obstore

        verb: Any = method
        return str(self._asked(lambda: obstore.sign(self._store, verb, path or "/", timedelta(hours=1)), path))

    def _encrypted(self, path: str) -> bool:
        """Whether ETags are no checksums here: S3 with keys of its key service."""
        if self.location.kind != "s3" or self._rest is None:
            return False
        headers = self._rest.call("HEAD", path).headers
        encryption = headers.get("x-amz-server-side-encryption", "AES256")
        return encryption != "AES256" or "x-amz-server-side-encryption-customer-algorithm" in headers

    def _asked(self, call: Callable[[], Result], path: str) -> Result:
        """What obstore answers, its errors as sentences. It gives up when an answer is cut short; this asks again."""
        for attempt in range(CUTS + 1):
            try:
                return call()
            except PetctlError:
                raise
            except Exception as error:
                if attempt == CUTS or not _cut(error):
                    raise explain(error, self.location.below(path) if path else self.location) from None
        raise AssertionError


class _ObjectSink:
    """A large object on its way into a bucket."""

    def __init__(self, parts: Parts, path: str, size: int, identity: str) -> None:
        self._parts = parts
        self._upload: Upload
        self._upload, self.there, self.trusted = parts.begin(path, size, identity)
        self.part = self._upload.part

    def send(self, number: int, body: Body, md5: bytes) -> None:
        self._parts.send(self._upload, number, body, md5)

    def finish(self, md5s: Sequence[bytes]) -> None:
        self._parts.finish(self._upload, md5s)

    def leave(self) -> None:
        pass


class _Spooled(FileSlice):
    """A part that lies in a file without a name, gone with this object."""

    def __init__(self, descriptor: int, length: int, name: str) -> None:
        super().__init__(descriptor, 0, length, name)
        self._own = descriptor

    def __del__(self) -> None:
        os.close(self._own)


def _cut(error: Exception) -> bool:
    return "body error" in str(error) or "error decoding response body" in str(error)


def _of_length(body: Held, length: int, name: str) -> Held:
    if body.length != length:
        raise Damaged(f"{name}: {body.length} bytes arrived where {length} were asked for; run the command again")
    return body


def _entry(meta: ObjectMeta, path: str) -> Entry:
    return Entry(path, meta["size"], meta["last_modified"].timestamp(), meta["e_tag"] or "")


def _tag(meta: ObjectMeta) -> str:
    return (meta["e_tag"] or "").strip('"')
