"""What the user's commands do not need is not imported for them."""

from __future__ import annotations

import subprocess
import sys


def modules_of(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_reading_a_status_needs_no_supervision() -> None:
    modules = modules_of("import petctl.clusters.local.reading, petctl.clusters.local.lost")
    assert not {name for name in modules if name.startswith("petctl.supervision")} and "asyncio" not in modules


def test_process_1_of_a_container_stays_small() -> None:
    modules = modules_of("import petctl.supervision.cli, petctl.supervision.parent")
    assert not modules & {"asyncio", "ssl", "socket", "logging", "json", "ctypes", "petctl.rendezvous"}
