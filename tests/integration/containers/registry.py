"""A registry with one small image, for whoever knows its password."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Registry(NamedTuple):
    """A running one."""

    image: str
    visitors: list[str]  # what each request had to show


@contextmanager
def registry(user: str, password: str) -> Iterator[Registry]:
    """Serves on a port of its own, on loopback."""
    key = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    contents, visitors = _contents(), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            visitors.append(self.headers.get("Authorization", ""))
            kind, body = contents.get(self.path.rpartition("/")[2], ("application/json", b"{}"))
            self.send_response(200 if visitors[-1] == key else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="petctl"')
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", _digest(body))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *words: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield Registry(f"127.0.0.1:{server.server_port}/private/empty:1", visitors)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _contents() -> dict[str, tuple[str, bytes]]:
    """What each request is answered with, by the last part of its path."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("nothing"))
    layer = gzip.compress(plain.getvalue(), mtime=0)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [_digest(plain.getvalue())]},
        }
    ).encode()
    parts = [
        {"mediaType": kind, "size": len(data), "digest": _digest(data)}
        for kind, data in (
            ("application/vnd.docker.container.image.v1+json", config),
            ("application/vnd.docker.image.rootfs.diff.tar.gzip", layer),
        )
    ]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}).encode()
    blobs = {_digest(data): ("application/octet-stream", data) for data in (config, layer)}
    return {"1": (MANIFEST, manifest), _digest(manifest): (MANIFEST, manifest), **blobs}


def _digest(data: bytes) -> str:
    return "sha256:" + sha256(data).hexdigest()
