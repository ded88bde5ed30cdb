"""The cluster that is this machine, with real supervisors, guardians and agents."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from petctl.jobs import JobHandle
from tests.conformance.backend import Backend
from tests.integration.local.conftest import still_there

SLOTS = 8


class LocalBackend(Backend):
    """A private $PETCTL_HOME."""

    name = cluster = "local"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        (self.project / "petctl.yaml").write_text(f"clusters: {{local: {{slots: {SLOTS}}}}}\n")
        self._seen: set[Path] = set()

    def start(self, *words: str, **fields: Any) -> JobHandle:
        handle = super().start(*words, **fields)
        self._seen.add(self._directory(handle.id))
        return handle

    def close(self) -> None:
        left = still_there(sorted(self._seen))
        assert not left, f"processes were left behind: {left}"

    def _directory(self, job_id: str) -> Path:
        return self.directory / "home" / "jobs" / job_id

    def left(self, job_id: str) -> list[str]:
        path = self._directory(job_id)
        return [*map(str, still_there([path])), *([str(path)] if path.exists() else [])]

    def at_rest(self, job_id: str) -> bytes:
        files = [path for path in self._directory(job_id).rglob("*") if path.is_file()]
        return b"".join(path.read_bytes() for path in files)

    def lose_node(self, handle: JobHandle, node: str) -> None:
        pids = [row.pid for row in self.seen(handle, lambda now: _pid(now, node), "its process").nodes]
        os.kill(pids[int(node)], signal.SIGKILL)

    def _supervisor(self, handle: JobHandle) -> int:
        return int(json.loads((self._directory(handle.id) / "coordinator.json").read_text())["pid"])

    def lose_controller(self, handle: JobHandle) -> None:
        os.kill(self._supervisor(handle), signal.SIGKILL)

    @contextmanager
    def waiting(self) -> Iterator[dict[str, Any]]:
        blocker = self.start("wait", nodes=SLOTS)  # behind one that waits for all slots, if it does not have them
        try:
            yield {"nodes": SLOTS}
        finally:
            self.end(blocker)

    @contextmanager
    def unreachable(self, handle: JobHandle) -> Iterator[Callable[[], object]]:
        pid = self._supervisor(handle)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield lambda: handle.scale(1)
        finally:
            os.kill(pid, signal.SIGCONT)


def _pid(status: Any, node: str) -> int:
    return next((row.pid for row in status.nodes if row.name == node), 0)
