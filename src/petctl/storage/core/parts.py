"""Large objects by parts that survive: what was sent is known to the store, and is not sent again.

    begin     take up the upload that was left, or start one
    there     number -> MD5 of the parts that the store has already
    send      one part, with its checksum, which the store checks
    finish    make the object visible, all at once

S3: multipart uploads; which one was ours is in a small record of this machine. Parts go with their CRC-32 where the
store says that it knows what that is, else with their MD5. Azure: uncommitted blocks, whose names carry the number and
both checksums.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Mapping, Optional, Protocol, Sequence
from xml.etree import ElementTree

from petctl.errors import Damaged, NoSuchPlace, Refused, StoreError
from petctl.files import make_private_directory, read_json, replace_json
from petctl.storage.core.answers import BadAnswer, parse_xml, whole_number
from petctl.storage.core.body import NOTHING, Body, Held
from petctl.storage.core.checksums import (
    CRC32,
    MD5,
    Kinds,
    Sum,
    base64_text,
    crc32_text,
    parse_crc32,
    whole_crc32,
    whole_md5,
)
from petctl.storage.core.http_client import Answer

MIB = 1 << 20
PART = 8 * MIB
MOST_PARTS = 10_000
PART_SIZE_NAME = "petctlpart"
CHECKSUM_NAME = "petctlmd5"
CRC32_NAME = "petctlcrc32"
_WHOLE_CRC32 = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": "FULL_OBJECT"}


def part_size(size: int) -> int:
    """Whole MiB, within every store's number of parts; a function of the size, so that checksums can be compared."""
    return max(PART, -(-size // (MOST_PARTS * MIB)) * MIB)


@dataclass
class Upload:
    """One large object on its way."""

    path: str
    size: int
    part: int
    id: str = ""
    kinds: Kinds = MD5  # the checksums that parts are sent with
    tags: Dict[int, str] = field(default_factory=dict)  # S3's names of the parts that are in

    def lengths(self) -> list[int]:
        """Bytes of each part."""
        return [min(self.part, self.size - offset) for offset in range(0, self.size, self.part)]


class Calls(Protocol):
    """Requests to one bucket or container, repeated until they are answered; a refusal is raised as a sentence."""

    own_headers: bool
    """Whether they may have headers of the store's own; S3 takes none with a URL that was signed without them."""

    def call(
        self,
        method: str,
        path: str,
        query: Optional[Mapping[str, str]] = None,
        headers: Optional[Mapping[str, str]] = None,
        body: Body = NOTHING,
    ) -> Answer:
        """The answer; every body goes with a checksum."""
        ...


class Parts(Protocol):
    """The parts of one bucket's objects."""

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, Sum], bool]:
        """The upload, the parts that are there, and whether they are known to be of this very source."""
        ...

    def send(self, upload: Upload, number: int, body: Body, known: Sum) -> None: ...

    def finish(self, upload: Upload, sums: Sequence[Sum]) -> str:
        """The object's tag."""
        ...

    def abandon(self, upload: Upload) -> None:
        """Nothing of it is taken up again."""
        ...


class Records:
    """Which uploads this machine has under way: a file for each, gone when it is finished. Without a folder nothing is
    noted, and nothing taken up again."""

    def __init__(self, folder: Path | None, root: str) -> None:
        self._folder, self._root = folder, root
        self.kept = folder is not None

    def read(self, path: str) -> Mapping[str, str]:
        """What was noted about an upload, or nothing."""
        try:
            return read_json(self._file(path)) if self._folder else {}
        except (OSError, ValueError):
            return {}

    def write(self, path: str, noted: Mapping[str, str]) -> None:
        """Notes it before the first part is sent."""
        if self._folder is None:
            return
        make_private_directory(self._folder)
        file = self._file(path)
        replace_json(file, {"object": f"{self._root}/{path}", **noted})

    def forget(self, path: str) -> None:
        """The upload is finished."""
        if self._folder is not None:
            self._file(path).unlink(missing_ok=True)

    def _file(self, path: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{hashlib.sha256(f'{self._root}/{path}'.encode()).hexdigest()[:32]}.json"


class S3Parts:
    """Multipart uploads."""

    def __init__(self, calls: Calls, records: Records) -> None:
        self._calls, self._records = calls, records

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, Sum], bool]:
        noted = self._records.read(path)
        kinds = CRC32 if noted.get("sum") == "crc32" else MD5
        upload = Upload(path, size, part_size(size), noted.get("id", ""), kinds)
        if upload.id and noted.get("size") == str(size):
            try:
                return upload, self._there(upload), noted.get("source") == source
            except NoSuchPlace:
                pass  # it was finished, or the store has cleaned up
        elif upload.id:
            self.abandon(upload)
        headers = {f"x-amz-meta-{PART_SIZE_NAME}": str(upload.part)} if self._calls.own_headers else {}
        try:
            answer = self._calls.call("POST", path, {"uploads": ""}, {**headers, **_WHOLE_CRC32} if headers else {})
        except StoreError as error:
            if type(error) is not StoreError or not headers:
                raise
            answer = self._calls.call("POST", path, {"uploads": ""}, headers)  # it minds what it does not know
        # A store that ignores what it does not know does not repeat it.
        knows = all(answer.headers.get(name) == value for name, value in _WHOLE_CRC32.items())
        upload.kinds = CRC32 if knows else MD5
        upload.id = parse_xml(answer.body).findtext("UploadId") or ""
        if not upload.id:
            raise BadAnswer("the store began an upload without an id")
        noted = {"id": upload.id, "size": str(size), "source": source, "sum": "crc32" if knows else "md5"}
        self._records.write(path, noted)
        return upload, {}, True

    def send(self, upload: Upload, number: int, body: Body, known: Sum) -> None:
        query = {"partNumber": str(number + 1), "uploadId": upload.id}
        answer = self._calls.call("PUT", upload.path, query, checksum_header(known), body)
        upload.tags[number] = answer.headers.get("etag", "")

    def finish(self, upload: Upload, sums: Sequence[Sum]) -> str:
        items = "".join(
            f"<Part><PartNumber>{number + 1}</PartNumber><ETag>{_as_text(upload.tags[number])}</ETag></Part>"
            for number in range(len(sums))
        )
        text = f"<CompleteMultipartUpload>{items}</CompleteMultipartUpload>"
        answer = self._calls.call("POST", upload.path, {"uploadId": upload.id}, body=Held(text.encode()))
        if b"<Error>" in answer.body:  # S3 may have begun to answer 200 before it knew
            raise NoSuchPlace(f"the store could not combine the parts of {upload.path}; run the same command again")
        self._records.forget(upload.path)
        said = parse_xml(answer.body)
        if not self._joined_right(upload, said, sums):
            raise Damaged(
                f"{upload.path}: the store combined other parts than were sent; remove it and upload it again"
            )
        return (said.findtext("ETag") or "").strip('"')

    def _joined_right(self, upload: Upload, said: ElementTree.Element, sums: Sequence[Sum]) -> bool:
        if upload.kinds.crc32:
            crc32 = parse_crc32(said.findtext("ChecksumCRC32") or "")
            return crc32 is None or crc32 == whole_crc32(sums, upload.lengths())
        tag = (said.findtext("ETag") or "").strip('"')
        # Where the store encrypts with keys of its key service, tags are no checksums: a part's own tag tells.
        checksums = all(upload.tags[number].strip('"') == known.md5.hex() for number, known in enumerate(sums))
        return not checksums or not re.fullmatch(r"[0-9a-f]{32}-\d+", tag) or tag == whole_md5(sums)

    def _there(self, upload: Upload) -> dict[int, Sum]:
        """Part number -> MD5, for the parts of the right length."""
        found: dict[int, Sum] = {}
        marker = ""
        while True:
            query = {"uploadId": upload.id, "max-parts": "1000"}
            if marker:
                query["part-number-marker"] = marker
            root = parse_xml(self._calls.call("GET", upload.path, query).body)
            for part in root.iter("Part"):
                number = whole_number(part.findtext("PartNumber") or "0", "number of a part") - 1
                tag = part.findtext("ETag") or ""
                expected = min(upload.part, upload.size - number * upload.part)
                if number < 0 or expected <= 0 or part.findtext("Size") != str(expected):
                    continue
                if re.fullmatch(r'"?[0-9a-f]{32}"?', tag):
                    crc32 = parse_crc32(part.findtext("ChecksumCRC32") or "-")
                    found[number], upload.tags[number] = Sum(bytes.fromhex(tag.strip('"')), crc32), tag
            before, marker = marker, root.findtext("NextPartNumberMarker") or ""
            if root.findtext("IsTruncated") != "true" or not marker:
                return found
            if not whole_number(before or "0") < whole_number(marker, "number of a part") <= MOST_PARTS:
                raise BadAnswer("the store's list of parts has no end")

    def abandon(self, upload: Upload) -> None:
        self._records.forget(upload.path)
        try:
            self._calls.call("DELETE", upload.path, {"uploadId": upload.id})
        except NoSuchPlace:
            pass


class AzureParts:
    """Uncommitted blocks. A block's name is its number and checksums, so the store itself is the record."""

    def __init__(self, calls: Calls, records: Records) -> None:
        self._calls, self._records = calls, records

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, Sum], bool]:
        upload = Upload(path, size, part_size(size), kinds=Kinds(md5=True, crc32=True))
        same = self._records.read(path).get("source") == source
        found: dict[int, Sum] = {}
        listed = b"<BlockList/>"
        try:
            if self._records.kept:
                listed = self._calls.call("GET", path, {"comp": "blocklist", "blocklisttype": "uncommitted"}).body
        except (NoSuchPlace, Refused):
            pass  # nothing there, or keys that may write and not look
        for block in parse_xml(listed).iter("Block"):
            name = _decoded(block.findtext("Name") or "")
            known = re.fullmatch(r"petctl-(\d{5})-([0-9a-f]{32})-([0-9a-f]{8})", name)
            if known is None:
                continue
            number = int(known[1])
            if block.findtext("Size") == str(min(upload.part, size - number * upload.part)):
                found[number] = Sum(bytes.fromhex(known[2]), int(known[3], 16))
        self._records.write(path, {"size": str(size), "source": source})
        return upload, found, same

    def send(self, upload: Upload, number: int, body: Body, known: Sum) -> None:
        query = {"comp": "block", "blockid": _block(number, known)}
        self._calls.call("PUT", upload.path, query, checksum_header(Sum(known.md5)), body)

    def finish(self, upload: Upload, sums: Sequence[Sum]) -> str:
        blocks = "".join(f"<Latest>{_block(number, known)}</Latest>" for number, known in enumerate(sums))
        headers = {
            f"x-ms-meta-{PART_SIZE_NAME}": str(upload.part),
            f"x-ms-meta-{CHECKSUM_NAME}": whole_md5(sums),
            f"x-ms-meta-{CRC32_NAME}": crc32_text(whole_crc32(sums, upload.lengths())),
            "x-ms-blob-content-type": "application/octet-stream",
        }
        text = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{blocks}</BlockList>"
        answer = self._calls.call("PUT", upload.path, {"comp": "blocklist"}, headers, Held(text.encode()))
        self._records.forget(upload.path)
        return answer.headers.get("etag", "").strip('"')

    def abandon(self, upload: Upload) -> None:
        self._records.forget(upload.path)  # then its blocks are compared before they count


def whole_headers(kind: str, body: Body) -> dict[str, str]:
    """What is sent with a small object, for the store to check on arrival, and for whoever fetches it."""
    known = body.sums(Kinds(md5=True, crc32=True))
    assert known.crc32 is not None
    meta = "x-amz-meta-" if kind == "s3" else "x-ms-meta-"
    headers = {
        f"{meta}{CHECKSUM_NAME}": known.md5.hex(),
        f"{meta}{CRC32_NAME}": crc32_text(known.crc32),
        "content-md5": base64_text(known.md5),
        "content-type": "application/octet-stream",
    }
    return headers if kind == "s3" else {**headers, "x-ms-blob-type": "BlockBlob"}


def checksum_header(known: Sum) -> dict[str, str]:
    """The header by which the store checks what it receives."""
    if known.crc32 is not None:
        return {"x-amz-checksum-crc32": crc32_text(known.crc32)}
    return {"content-md5": base64_text(known.md5)}


def add_checksum(headers: Dict[str, str], body: Body) -> None:
    """Adds it where a request has a body, and no checksum of another kind yet."""
    if body.length and not headers.keys() & {"content-md5", "x-amz-checksum-crc32"}:
        headers["content-md5"] = base64_text(body.sums(MD5).md5)


def _block(number: int, known: Sum) -> str:
    return base64_text(f"petctl-{number:05d}-{known.md5.hex()}-{known.crc32 or 0:08x}".encode())


def _decoded(name: str) -> str:
    """A block's name; whoever else makes blocks may call them what he likes."""
    try:
        return base64.b64decode(name).decode("ascii", "replace")
    except ValueError:
        return ""


def _as_text(value: str) -> str:
    """For XML. The standard library's way brings its whole web client along."""
    return value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
