"""One bucket or container, through obstore: the way in where petctl has no key of its own to sign with.

That is a machine's identity on S3, Google, and what may be read without keys. Everything else is a `SignedBucket`.
Large objects are not resumed part by part here, and the store does not check an MD5.
"""

from __future__ import annotations

import os
import re
import tempfile
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence, TypeVar

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused
from petctl.storage.core.body import Body, FileSlice, Held
from petctl.storage.core.checksums import CRC32, MD5, Known
from petctl.storage.core.parts import CHECKSUM_NAME, PART, PART_SIZE_NAME, part_size
from petctl.storage.stores.credentials import Access
from petctl.storage.stores.endpoint import Entry, Sink
from petctl.storage.stores.location import Location
from petctl.storage.stores.signed_requests import PATIENCE
from petctl.storage.stores.store_errors import explain

if TYPE_CHECKING:
    from obstore import ObjectMeta

Result = TypeVar("Result")
CUTS = 8
"""How often in a row an answer may be cut short."""
PLAIN_MD5 = re.compile(r"[0-9a-f]{32}")


class Bucket:
    """The root of a bucket or container as one end of a transfer."""

    def __init__(self, location: Location, access: Access) -> None:
        self.location, self.access = location, access
        self._opened: Any = None

    @property
    def may_look(self) -> bool:
        """Whether one may ask what is there, as far as the keys tell; if not, everything is sent."""
        return True

    def check_may_look(self) -> None:
        pass

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

    def own_entries(self, path: str) -> Iterator[Entry]:
        return self.entries(path)

    def beginning(self, start: str) -> Iterator[Entry]:
        """Every object whose name begins so, also in the middle of a word, with its whole path; `start` itself first,
        if it is there."""
        own = self.find(start) if start and not start.endswith("/") else None
        if own is not None:
            yield own
        folder = start.rpartition("/")[0]
        for entry in self.entries(folder):
            path = f"{folder}/{entry.path}" if folder else entry.path
            if path.startswith(start) and path != start:
                yield entry._replace(path=path)

    def children(self, path: str) -> Iterator[Entry]:
        import obstore

        found = self._asked(lambda: obstore.list_with_delimiter(self._store, prefix=path or None), path)
        for prefix in found["common_prefixes"]:
            yield Entry(prefix.rstrip("/").rpartition("/")[2], 0, 0.0, folder=True)
        for meta in found["objects"]:
            yield _entry(meta, meta["path"].rpartition("/")[2])

    def holds(self, path: str) -> bool:
        return next(self.entries(path), None) is not None

    def find(self, path: str) -> Entry | None:
        import obstore

        try:
            return _entry(self._asked(lambda: obstore.head(self._store, path), path), path)
        except NoSuchPlace:
            return None  # a missing bucket looks the same here: HEAD has no body. Whoever lists it learns of that.
        except Refused:
            self.holds(path)  # for the same reason: this says why
            raise

    def whole(self, entry: Entry) -> Body:
        import obstore

        def read() -> tuple[Any, Held]:
            answer = obstore.get(self._store, entry.path)
            return answer, Held(answer.bytes())

        answer, body = self._asked(read, entry.path)
        noted = str(answer.attributes.get(CHECKSUM_NAME, ""))
        self.check_whole(entry, body, noted or _tag(answer.meta))
        return body

    def check_whole(self, entry: Entry, body: Body, md5: str, crc32: int | None = None) -> None:
        """Raises Damaged where a small object is not what the store says of it. The CRC-32 costs less to check."""
        if body.length != entry.size:
            raise Damaged(f"{self.location.below(entry.path)} changed while it was read; run the command again")
        if crc32 is not None:
            fits = body.sums(CRC32).crc32 == crc32
        else:
            fits = not PLAIN_MD5.fullmatch(md5) or body.sums(MD5).md5.hex() == md5 or self.encrypted(entry.path)
        if not fits:
            raise Damaged(f"{self.location.below(entry.path)}: the received data does not match its checksum")

    def slice(self, entry: Entry, offset: int, length: int) -> Body:
        pieces = self.stream(entry, offset, length)
        if length <= PART:
            data = memoryview(bytearray(length))
            position = 0
            for piece in pieces:
                data[position : position + len(piece)] = piece
                position += len(piece)
            return Held(data)
        # Objects above 80 GB have larger parts; memory stays flat.
        descriptor = os.dup((spool := tempfile.TemporaryFile()).fileno())  # noqa: SIM115
        spool.close()
        body = _Spooled(descriptor, length, str(self.location.below(entry.path)))
        position = 0
        for piece in pieces:
            position += os.pwrite(descriptor, piece, position)
        return body

    def stream(self, entry: Entry, offset: int, length: int) -> Iterator[memoryview]:
        import obstore

        for start in range(offset, offset + length, PART):
            options: Any = {"range": (start, min(start + PART, offset + length)), "if_match": entry.tag or None}
            expected = options["range"][1] - start
            data = self._asked(
                lambda options=options: obstore.get(self._store, entry.path, options=options).bytes(),  # type: ignore[misc]
                entry.path,
            )
            if len(data) != expected:
                where = self.location.below(entry.path)
                raise Damaged(f"{where}: {len(data)} bytes arrived where {expected} were asked for; run it again")
            yield memoryview(data)

    def close(self, entry: Entry) -> None:
        pass

    def tidy(self, path: str) -> None:
        pass

    def known(self, entry: Entry) -> Known:
        found = self.checksum(entry)
        return Known(found if "-" in found else "")

    def checksum(self, entry: Entry) -> str:
        import obstore

        if self.location.kind == "s3" and PLAIN_MD5.fullmatch(entry.tag.strip('"')):
            return entry.tag.strip('"')
        if entry.size == 0:
            return ""
        answer = self._asked(lambda: obstore.get(self._store, entry.path, options={"range": (0, 1)}), entry.path)
        attributes = {str(name): str(value) for name, value in answer.attributes.items()}
        if CHECKSUM_NAME in attributes:
            return attributes[CHECKSUM_NAME]
        if attributes.get(PART_SIZE_NAME) == str(part_size(entry.size)) and self.location.kind == "s3":
            return _tag(answer.meta)
        return ""

    def check_unchanged(self, entry: Entry) -> None:
        pass  # every read was of one version: `if_match`

    def put(self, path: str, body: Body, source: Entry) -> None:
        import obstore

        attributes: Any = {CHECKSUM_NAME: body.sums(MD5).md5.hex()}
        self._asked(lambda: obstore.put(self._store, path, bytes(body.read()), attributes=attributes), path)

    def put_stream(self, path: str, chunks: Iterator[Any]) -> None:
        """A large object where there are no parts of petctl's own."""
        import obstore

        self._asked(lambda: obstore.put(self._store, path, chunks, chunk_size=PART, max_concurrency=8), path)

    def sink(self, path: str, source: Entry, identity: str) -> Sink | None:
        return None

    def remove(self, paths: Sequence[str]) -> None:
        import obstore

        if paths:
            self._asked(lambda: obstore.delete(self._store, list(paths)), paths[0])

    def url(self, path: str, seconds: int) -> str:
        """A link that whoever has it can read the object with, for a while."""
        return self.signed_url("GET", path, seconds)

    def signed_url(self, method: str, path: str, seconds: int = 3600) -> str:
        """A URL for one request."""
        import obstore

        verb: Any = method
        return str(self._asked(lambda: obstore.sign(self._store, verb, path or "/", timedelta(seconds=seconds)), path))

    def encrypted(self, path: str) -> bool:
        """Whether ETags are known to be no checksums here."""
        return False

    @property
    def _store(self) -> Any:
        if self._opened is None:
            self._opened = self._asked(lambda: _open_store(self.location, self.access), "")
        return self._opened

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


def _open_store(location: Location, access: Access) -> Any:
    """The store; nothing is asked of it yet."""
    from obstore.store import AzureStore, GCSStore, S3Store

    retry: Any = {
        "max_retries": 1000,  # it is the time that counts
        "retry_timeout": timedelta(seconds=PATIENCE),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=2), "base": 3},
    }
    client: Any = {
        "allow_http": access.endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=10),
        "timeout": timedelta(minutes=5),
    }
    if location.kind == "gs":
        return GCSStore(location.bucket, client_options=client, retry_config=retry)
    if location.kind == "az":
        azure: dict[str, Any] = {"account_name": location.account, "endpoint": access.endpoint}
        if access.sas:
            azure["sas_key"] = access.sas
        elif access.key:
            azure["account_key"] = access.key
        if access.anonymous:
            azure["skip_signature"] = True
        return AzureStore(location.bucket, **azure, client_options=client, retry_config=retry)
    s3: dict[str, Any] = {"region": access.region}
    if access.endpoint:
        s3["endpoint"] = access.endpoint
    if access.key:
        s3.update(access_key_id=access.key_id, secret_access_key=access.key)
        if access.token:
            s3["session_token"] = access.token
    if access.anonymous:
        s3["skip_signature"] = True
    return S3Store(location.bucket, **s3, client_options=client, retry_config=retry)


class _Spooled(FileSlice):
    """A part that lies in a file without a name, gone with this object."""

    def __init__(self, descriptor: int, length: int, name: str) -> None:
        super().__init__(descriptor, 0, length, name)
        self._own = descriptor

    def __del__(self) -> None:
        os.close(self._own)


def _cut(error: Exception) -> bool:
    return "body error" in str(error) or "error decoding response body" in str(error)


def _entry(meta: ObjectMeta, path: str) -> Entry:
    return Entry(path, meta["size"], meta["last_modified"].timestamp(), meta["e_tag"] or "")


def _tag(meta: ObjectMeta) -> str:
    return (meta["e_tag"] or "").strip('"')
