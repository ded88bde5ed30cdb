"""Large objects by parts that survive: what was sent is known to the store, and is not sent again.

    begin     take up the upload that was left, or start one
    there     number -> MD5 of the parts that the store has already
    send      one part, with its MD5, which the store checks
    finish    make the object visible, all at once

S3: multipart uploads; which one was ours is in a small record of this machine. Azure: uncommitted blocks, whose names
carry number and MD5. The checksum of the whole is the MD5 of the parts' MD5s, as S3 makes it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Mapping, Protocol, Sequence
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from petctl.errors import Damaged, NoSuchPlace
from petctl.store.body import Body, Held
from petctl.store.rest import Rest

MIB = 1 << 20
PART = 8 * MIB
MOST_PARTS = 10_000
PART_SIZE_NAME = "petctlpart"
CHECKSUM_NAME = "petctlmd5"


def part_size(size: int) -> int:
    """Whole MiB, within every store's number of parts; a function of the size, so that checksums can be compared."""
    return max(PART, -(-size // (MOST_PARTS * MIB)) * MIB)


def whole_checksum(parts: Sequence[bytes]) -> str:
    """The checksum of an object from its parts' MD5s, as S3 writes it into the ETag."""
    return f"{hashlib.md5(b''.join(parts), usedforsecurity=False).hexdigest()}-{len(parts)}"


@dataclass
class Upload:
    """One large object on its way."""

    path: str
    size: int
    part: int
    id: str = ""
    tags: dict[int, str] = field(default_factory=dict)  # S3's names of the parts that are in


class Parts(Protocol):
    """The parts of one bucket's objects."""

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, bytes], bool]:
        """The upload, the parts that are there, and whether they are known to be of this very source."""
        ...

    def send(self, upload: Upload, number: int, body: Body, md5: bytes) -> None: ...

    def finish(self, upload: Upload, md5s: Sequence[bytes]) -> None: ...


class Records:
    """Which uploads this machine has under way: a file for each, gone when it is finished."""

    def __init__(self, folder: Path | None, root: str) -> None:
        self._folder, self._root = folder, root

    def read(self, path: str) -> Mapping[str, str]:
        """What was noted about an upload, or nothing."""
        try:
            noted = json.loads(self._file(path).read_bytes()) if self._folder else {}
        except (OSError, ValueError):
            return {}
        return noted if isinstance(noted, dict) else {}

    def write(self, path: str, noted: Mapping[str, str]) -> None:
        """Notes it before the first part is sent."""
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        file = self._file(path)
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"object": f"{self._root}/{path}", **noted}))
        fresh.replace(file)

    def forget(self, path: str) -> None:
        """The upload is finished."""
        if self._folder is not None:
            self._file(path).unlink(missing_ok=True)

    def _file(self, path: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{hashlib.sha256(f'{self._root}/{path}'.encode()).hexdigest()[:32]}.json"


class S3Parts:
    """Multipart uploads."""

    def __init__(self, rest: Rest, records: Records) -> None:
        self._rest, self._records = rest, records

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, bytes], bool]:
        noted = self._records.read(path)
        upload = Upload(path, size, part_size(size), noted.get("id", ""))
        if upload.id and noted.get("size") == str(size):
            try:
                return upload, self._there(upload), noted.get("source") == source
            except NoSuchPlace:
                pass  # it was finished, or the store has cleaned up
        elif upload.id:
            self._abort(upload)
        headers = {f"x-amz-meta-{PART_SIZE_NAME}": str(upload.part)}
        root = xml_answer(self._rest.call("POST", path, {"uploads": ""}, headers).body)
        upload.id = root.findtext("UploadId") or ""
        self._records.write(path, {"id": upload.id, "size": str(size), "source": source})
        return upload, {}, True

    def send(self, upload: Upload, number: int, body: Body, md5: bytes) -> None:
        query = {"partNumber": str(number + 1), "uploadId": upload.id}
        answer = self._rest.call("PUT", upload.path, query, body=body, md5=md5)
        upload.tags[number] = answer.headers.get("etag", "")

    def finish(self, upload: Upload, md5s: Sequence[bytes]) -> None:
        items = "".join(
            f"<Part><PartNumber>{number + 1}</PartNumber><ETag>{escape(upload.tags[number])}</ETag></Part>"
            for number in range(len(md5s))
        )
        text = f"<CompleteMultipartUpload>{items}</CompleteMultipartUpload>"
        answer = self._rest.call("POST", upload.path, {"uploadId": upload.id}, body=Held(text.encode()))
        if b"<Error>" in answer.body:  # S3 may have begun to answer 200 before it knew
            raise NoSuchPlace(
                f"the store could not put the parts of {upload.path} together; run the same command again"
            )
        self._records.forget(upload.path)
        tag = (xml_answer(answer.body).findtext("ETag") or "").strip('"')
        # Where the store encrypts with keys of its key service, tags are no checksums: a part's own tag tells.
        checksums = all(upload.tags[number].strip('"') == md5.hex() for number, md5 in enumerate(md5s))
        if checksums and re.fullmatch(r"[0-9a-f]{32}-\d+", tag) and tag != whole_checksum(md5s):
            raise Damaged(f"{upload.path}: the store joined other parts than were sent; remove it and send it again")

    def _there(self, upload: Upload) -> dict[int, bytes]:
        """Part number -> MD5, for the parts of the right length."""
        found: dict[int, bytes] = {}
        marker = ""
        while True:
            query = {"uploadId": upload.id, "max-parts": "1000"}
            if marker:
                query["part-number-marker"] = marker
            root = xml_answer(self._rest.call("GET", upload.path, query).body)
            for part in root.iter("Part"):
                number, tag = int(part.findtext("PartNumber") or 0) - 1, part.findtext("ETag") or ""
                expected = min(upload.part, upload.size - number * upload.part)
                if int(part.findtext("Size") or -1) != expected:
                    continue
                if re.fullmatch(r'"?[0-9a-f]{32}"?', tag):
                    found[number], upload.tags[number] = bytes.fromhex(tag.strip('"')), tag
            marker = root.findtext("NextPartNumberMarker") or ""
            if root.findtext("IsTruncated") != "true" or not marker:
                return found

    def _abort(self, upload: Upload) -> None:
        try:
            self._rest.call("DELETE", upload.path, {"uploadId": upload.id})
        except NoSuchPlace:
            pass


class AzureParts:
    """Uncommitted blocks. A block's name is its number and MD5, so the store itself is the record."""

    def __init__(self, rest: Rest, records: Records) -> None:
        self._rest, self._records = rest, records

    def begin(self, path: str, size: int, source: str) -> tuple[Upload, dict[int, bytes], bool]:
        upload = Upload(path, size, part_size(size))
        same = self._records.read(path).get("source") == source
        found: dict[int, bytes] = {}
        try:
            listed = self._rest.call("GET", path, {"comp": "blocklist", "blocklisttype": "uncommitted"}).body
        except NoSuchPlace:
            listed = b"<BlockList/>"
        for block in xml_answer(listed).iter("Block"):
            name = base64.b64decode(block.findtext("Name") or "").decode("ascii", "replace")
            known = re.fullmatch(r"petctl-(\d{5})-([0-9a-f]{32})", name)
            if known is None:
                continue
            number = int(known[1])
            if int(block.findtext("Size") or -1) == min(upload.part, size - number * upload.part):
                found[number] = bytes.fromhex(known[2])
        self._records.write(path, {"size": str(size), "source": source})
        return upload, found, same

    def send(self, upload: Upload, number: int, body: Body, md5: bytes) -> None:
        self._rest.call("PUT", upload.path, {"comp": "block", "blockid": _block(number, md5)}, body=body, md5=md5)

    def finish(self, upload: Upload, md5s: Sequence[bytes]) -> None:
        blocks = "".join(f"<Latest>{_block(number, md5)}</Latest>" for number, md5 in enumerate(md5s))
        headers = {
            f"x-ms-meta-{PART_SIZE_NAME}": str(upload.part),
            f"x-ms-meta-{CHECKSUM_NAME}": whole_checksum(md5s),
            "x-ms-blob-content-type": "application/octet-stream",
        }
        text = f"<?xml version='1.0' encoding='utf-8'?><BlockList>{blocks}</BlockList>"
        self._rest.call("PUT", upload.path, {"comp": "blocklist"}, headers, Held(text.encode()))
        self._records.forget(upload.path)


def put_whole(rest: Rest, kind: str, path: str, body: Body) -> None:
    """A small object in one request, checked by the store on arrival."""
    md5 = body.md5()
    if kind == "az":
        headers = {"x-ms-blob-type": "BlockBlob", f"x-ms-meta-{CHECKSUM_NAME}": md5.hex()}
    else:
        headers = {f"x-amz-meta-{CHECKSUM_NAME}": md5.hex()}
    rest.call("PUT", path, None, {**headers, "content-type": "application/octet-stream"}, body, md5)


def _block(number: int, md5: bytes) -> str:
    return base64.b64encode(f"petctl-{number:05d}-{md5.hex()}".encode()).decode()


def xml_answer(data: bytes) -> ElementTree.Element:
    """A store's answer without its namespaces."""
    text = re.sub(rb'\sxmlns="[^"]*"', b"", data, count=1).lstrip(b"\xef\xbb\xbf")
    return ElementTree.fromstring(text)
