"""What the storage benchmarks share: a real server, a bucket in it, and the command lines of petctl and its peers.

Peers are looked for in .venv-bench (`make bench` fills it) and on PATH; azcopy comes by `tools/azcopy`. One that is not
there is left out, and that is said. All get the same keys by environment, and settings that make them fast.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from threading import Timer

from common import ROOT, Missed, progress

sys.path.insert(0, str(ROOT))

from tests.integration.storage.servers import ACCESS_KEY, ACCOUNT, ACCOUNT_KEY, SECRET_KEY, Azurite, SeaweedFS

from petctl.storage.core.signing import blob_sas

BUCKET = "benchmark"


@dataclass(frozen=True)
class Stage:
    """A server that runs, a bucket in it, and a folder for files."""

    kind: str
    root: str
    url: str
    folder: Path
    environment: Mapping[str, str]
    most: dict[str, int] = field(default_factory=dict)

    def run(self, words: list[str], deadline: float = 1800.0) -> float:
        """Seconds that a command takes; Missed with its last line when it fails."""
        with TemporaryFile("w+") as said:
            begin = time.monotonic()
            process = subprocess.Popen(
                words, env=dict(self.environment), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
            )
            limit = Timer(deadline, process.kill)
            limit.start()
            try:
                _, status, used = os.wait4(process.pid, 0)
            finally:
                limit.cancel()
            seconds = time.monotonic() - begin
            process.returncode = os.waitstatus_to_exitcode(status)  # it has been waited for
            self.most[words[0]] = max(self.most.get(words[0], 0), used.ru_maxrss // 1024)
            if process.returncode:
                said.seek(0)
                last = said.read().strip().splitlines() or ["nothing said"]
                raise Missed(f"{Path(words[0]).name} ended with {process.returncode}: {last[-1][:200]}")
        return seconds

    def memory(self, program: str) -> int:
        """The most memory that a program has had in any of its runs, in MB."""
        return self.most.get(program, 0)

    def note_memory(self, other: Stage) -> None:
        """Counts what programs needed at another one as needed here."""
        for program, used in other.most.items():
            self.most[program] = max(self.most.get(program, 0), used)

    def sas_url(self, path: str) -> str:
        """What azcopy wants."""
        now = datetime.now(timezone.utc)
        times = now - timedelta(hours=1), now + timedelta(days=1)
        sas = blob_sas(ACCOUNT, ACCOUNT_KEY, BUCKET, "", "racwdl", *times, https=False)  # it speaks no TLS
        return f"{self.url}/{ACCOUNT}/{BUCKET}/{path}?{sas}"


@contextmanager
def stage(kind: str, in_memory: bool = False) -> Iterator[Stage]:
    """SeaweedFS for s3, Azurite for az; gone at the end. In memory where a disk's own pace would be all one sees."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(prefix="petctl-bench-", dir=memory if in_memory and memory.is_dir() else None) as name:
        folder = Path(name)
        (folder / "server").mkdir()
        server = SeaweedFS(folder / "server") if kind == "s3" else Azurite(folder / "server", in_memory)
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
    if name == "azcopy" and shutil.which(name) is None:
        made = subprocess.run([ROOT / "tools" / "azcopy"], capture_output=True, text=True)
        return made.stdout.strip() if made.returncode == 0 else None
    # The program itself, where there is a script around it that starts it.
    inside = [*(ROOT / ".venv-bench").glob(f"lib/*/site-packages/{name}*/bin/{name}"), ROOT / ".venv-bench/bin" / name]
    return next((str(path) for path in inside if path.exists()), shutil.which(name))


def peers(kind: str) -> dict[str, str]:
    """Name -> program of those that are here and speak this store's protocol."""
    wanted = ("s5cmd", "rclone", "aws") if kind == "s3" else ("azcopy", "rclone")
    found = {name: find(name) for name in wanted}
    for name in wanted:
        if found[name] is None:
            progress(f"{name} is not here, and is left out")
    return {name: path for name, path in found.items() if path is not None}
