"""What the storage benchmarks share: a real server, a bucket in it, and the command lines of petctl and its peers.

Peers are looked for in .venv-bench (`make bench` fills it) and on PATH; azcopy only on PATH or where $AZCOPY says. One
that is not there is left out, and that is said. All get the same keys by environment, and settings that make them fast.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory

from common import ROOT, Missed, progress

sys.path.insert(0, str(ROOT))

from tests.integration.store.servers import ACCESS_KEY, ACCOUNT, ACCOUNT_KEY, SECRET_KEY, Azurite, SeaweedFS

from petctl.store.signing import blob_sas

BUCKET = "benchmark"


@dataclass(frozen=True)
class Stage:
    """A server that runs, a bucket in it, and a folder for files."""

    kind: str
    root: str
    url: str
    folder: Path
    environment: Mapping[str, str]

    def run(self, words: list[str], deadline: float = 1800.0) -> float:
        """Seconds that a command takes; Missed with its last line when it fails."""
        begin = time.monotonic()
        done = subprocess.run(
            words,
            env=dict(self.environment),
            capture_output=True,
            text=True,
            timeout=deadline,
            stdin=subprocess.DEVNULL,
        )
        seconds = time.monotonic() - begin
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["nothing said"]
            raise Missed(f"{Path(words[0]).name} ended with {done.returncode}: {said[-1][:200]}")
        return seconds

    def sas_url(self, path: str) -> str:
        """What azcopy wants."""
        now = datetime.now(timezone.utc)
        times = now - timedelta(hours=1), now + timedelta(days=1)
        return f"{self.url}/{ACCOUNT}/{BUCKET}/{path}?{blob_sas(ACCOUNT, ACCOUNT_KEY, BUCKET, '', 'racwdl', *times)}"


@contextmanager
def stage(kind: str) -> Iterator[Stage]:
    """SeaweedFS for s3, Azurite for az; gone at the end."""
    with TemporaryDirectory(prefix="petctl-bench-") as name:
        folder = Path(name)
        (folder / "server").mkdir()
        server = SeaweedFS(folder / "server") if kind == "s3" else Azurite(folder / "server")
        server.start()
        try:
            root = server.make(BUCKET)
            yield Stage(kind, root, server.url, folder, _environment(server, folder))
        finally:
            server.stop()


def _environment(server: SeaweedFS | Azurite, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        **server.environment(),
        "HOME": str(folder),
        "PETCTL_HOME": str(folder / "home"),
        "S3_ENDPOINT_URL": server.url,
        "RCLONE_CONFIG": "/dev/null",
        "RCLONE_S3_PROVIDER": "SeaweedFS",
        "RCLONE_S3_ENDPOINT": server.url,
        "RCLONE_S3_ACCESS_KEY_ID": ACCESS_KEY,
        "RCLONE_S3_SECRET_ACCESS_KEY": SECRET_KEY,
        "RCLONE_S3_NO_CHECK_BUCKET": "true",
        "RCLONE_AZUREBLOB_ACCOUNT": ACCOUNT,
        "RCLONE_AZUREBLOB_KEY": ACCOUNT_KEY,
        "RCLONE_AZUREBLOB_ENDPOINT": f"{server.url}/{ACCOUNT}",
        "RCLONE_AZUREBLOB_NO_CHECK_CONTAINER": "true",
        "AZCOPY_LOG_LOCATION": str(folder / "azcopy"),
        "AZCOPY_JOB_PLAN_LOCATION": str(folder / "azcopy"),
    }


def find(name: str) -> str | None:
    """A peer's program."""
    if name == "azcopy" and os.environ.get("AZCOPY"):
        return os.environ["AZCOPY"]
    beside = ROOT / ".venv-bench" / "bin" / name
    return str(beside) if beside.exists() else shutil.which(name)


def peers(kind: str) -> dict[str, str]:
    """Name -> program of those that are here and speak this store's protocol."""
    wanted = ("s5cmd", "rclone", "aws") if kind == "s3" else ("azcopy", "rclone")
    found = {name: find(name) for name in wanted}
    for name in wanted:
        if found[name] is None:
            progress(f"{name} is not here, and is left out")
    return {name: path for name, path in found.items() if path is not None}
