"""Real object stores on free ports of the loopback: SeaweedFS for S3 (it checks signatures), Azurite for Azure.

They die with whoever started them, also when that is killed. Benchmarks use them too.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.waiting import own_part, until

ROOT = Path(__file__).resolve().parents[3]
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Known to everybody: what every copy of Azurite accepts."""
ACCESS_KEY, SECRET_KEY = "petctlaccess", "petctlsecretkey"
_DIE_WITH_PARENT = 1
_libc = ctypes.CDLL(None)


class Missing(Exception):
    """A server cannot be had on this machine; the message says why."""


def free_ports(count: int) -> list[int]:
    """Different ports that the kernel gives to nobody else meanwhile, as it does with those of its own choice."""
    sockets: list[socket.socket] = []
    while len(sockets) < count:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", random.choice(own_part(range(10_000, 20_000)))))
        except OSError:
            one.close()
        else:
            sockets.append(one)
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Server:
    """One server process; it can be started again, with the same port and data."""

    ending = signal.SIGKILL

    def __init__(self, words: list[str], folder: Path, port: int, address: str = "127.0.0.1") -> None:
        self.words, self.folder, self.port, self.address = words, folder, port, address
        self.url = f"http://{address}:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self.words,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": str(self.folder)},
                preexec_fn=lambda: _libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )
        until(self._ready, f"{self.words[0]} listens; see {self.folder / 'server.log'}", 60)

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.ending)
            try:
                self._process.wait(60)
            finally:
                self._process.kill()
                self._process.wait()
            self._process = None

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "server.log").read_text()[-2000:]
        return listens(self.port, self.address)


def listens(port: int, address: str = "127.0.0.1") -> bool:
    try:
        socket.create_connection((address, port), timeout=5).close()
    except OSError:
        return False
    return True


class SeaweedFS(Server):
    """An S3 server that checks signatures."""

    def __init__(self, folder: Path, address: str = "127.0.0.1") -> None:
        program = Path(sys.executable).with_name("weed")
        if not program.exists():
            raise Missing(f"{program} does not exist; it comes with requirements/dev.txt")
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        names = ("master.port", "volume.port", "filer.port", "s3.port")
        ports = free_ports(8)
        words = [str(program), "server", f"-ip={address}", f"-ip.bind={address}", f"-dir={folder}", "-filer", "-s3"]
        words += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.config=s3.json"]
        words += ["-master.volumeSizeLimitMB=256", "-volume.max=1000"]
        words += [f"-{name}={port}" for name, port in zip(names, ports, strict=False)]
        words += [f"-{name}.grpc={port}" for name, port in zip(names, ports[4:], strict=True)]
        super().__init__(words, folder, ports[3], address)

    def client(self) -> Any:
        """The official SDK's, for what petctl does not do."""
        import boto3

        keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1", **keys)

    def make(self, bucket: str) -> str:
        """A bucket, as a location. The server may need a moment after it listens."""
        client = self.client()

        def made() -> bool:
            try:
                client.create_bucket(Bucket=bucket)
            except client.exceptions.BucketAlreadyExists:
                return True
            except Exception:
                return False
            return True

        until(made, f"bucket {bucket} is made")
        return f"s3://{bucket}"

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url or self.url,
        }


class Azurite(Server):
    """Microsoft's emulator of Azure blobs."""

    ending = signal.SIGTERM  # only then does it write down which containers there are

    def __init__(self, folder: Path, in_memory: bool = False) -> None:
        """In memory it does not write all it knows of all blobs anew every few seconds."""
        found = subprocess.run([ROOT / "tools" / "azurite"], capture_output=True, text=True)
        if found.returncode:
            raise Missing(found.stderr.strip().splitlines()[-1] if found.stderr.strip() else "azurite is missing")
        node = shutil.which("node")
        if node is None:
            raise Missing("node is missing")
        (port,) = free_ports(1)
        words = [node, found.stdout.strip(), "--blobHost", "127.0.0.1", "--blobPort", str(port)]
        words += ["--inMemoryPersistence"] if in_memory else ["--location", str(folder)]
        words += ["--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        super().__init__(words, folder, port)

    def client(self) -> Any:
        """The official SDK's, for what petctl does not do."""
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient(f"{self.url}/{ACCOUNT}", credential=ACCOUNT_KEY)

    def make(self, container: str) -> str:
        """A container, as a location."""
        self.client().create_container(container)
        return f"az://{ACCOUNT}/{container}"

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": f"{url or self.url}/{ACCOUNT}",
        }
