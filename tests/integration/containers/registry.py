"""A registry of images on loopback: for whoever knows its password, or in the place of Docker Hub."""

from __future__ import annotations

import base64
import json
import shutil
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import file_digest, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
PATH = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}


class Registry(NamedTuple):
    """A running one."""

    address: str
    visitors: list[str]  # what each request had to show
    asked: list[str]  # the path of each


@contextmanager
def registry(images: Mapping[str, Path], login: str = "") -> Iterator[Registry]:
    """Serves images of one layer each, by name and tag; `login`: the user:password that every request must show."""
    key = "Basic " + base64.b64encode(login.encode()).decode()
    contents: dict[str, tuple[str, bytes | Path]] = {}
    for name, layer in images.items():
        contents |= _contents(name, layer)
    found = Registry("", [], [])

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.visitors.append(self.headers.get("Authorization", ""))
            path = self.path.partition("?")[0].removeprefix("/v2/")
            found.asked.append(path)
            kind, body = contents.get(path, ("application/json", b"{}"))
            refused = login and found.visitors[-1] != key
            self.send_response(401 if refused else 200 if not path or path in contents else 404)
            if refused:
                self.send_header("WWW-Authenticate", 'Basic realm="petctl"')
            self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
            self.send_header("Content-Type", kind)
            self.send_header("Docker-Content-Digest", _digest(body))
            self.send_header("Content-Length", str(body.stat().st_size if isinstance(body, Path) else len(body)))
            self.end_headers()
            if self.command == "GET" and isinstance(body, Path):
                with open(body, "rb") as file:
                    shutil.copyfileobj(file, self.wfile)
            elif self.command == "GET" and isinstance(body, bytes):
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *words: object) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found._replace(address=f"127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def empty_layer(path: Path) -> Path:
    """An image with nothing in it."""
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("nothing"))
    return path


def _contents(image: str, layer: Path) -> dict[str, tuple[str, bytes | Path]]:
    """What each path is answered with."""
    name, _, tag = image.rpartition(":")
    rootfs = {"type": "layers", "diff_ids": [_digest(layer)]}
    config = json.dumps({"architecture": "amd64", "os": "linux", "config": PATH, "rootfs": rootfs}).encode()
    parts = [
        {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)},
        {"mediaType": LAYER, "size": layer.stat().st_size, "digest": _digest(layer)},
    ]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": parts[0], "layers": parts[1:]}).encode()
    blobs: list[bytes | Path] = [config, layer]
    return {
        f"{name}/manifests/{tag}": (MANIFEST, manifest),
        f"{name}/manifests/{_digest(manifest)}": (MANIFEST, manifest),
        **{f"{name}/blobs/{_digest(data)}": ("application/octet-stream", data) for data in blobs},
    }


def _digest(data: bytes | Path) -> str:
    if isinstance(data, bytes):
        return "sha256:" + sha256(data).hexdigest()
    if data not in _KNOWN:
        with open(data, "rb") as file:
            _KNOWN[data] = "sha256:" + file_digest(file, "sha256").hexdigest()
    return _KNOWN[data]


_KNOWN: dict[Path, str] = {}
