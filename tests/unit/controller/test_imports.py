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
    modules = modules_of("import petctl.clusters.local.readers, petctl.clusters.local.job_status")
    assert not {name for name in modules if name.startswith("petctl.controller")} and "asyncio" not in modules


def test_process_1_of_a_container_stays_small() -> None:
    modules = modules_of("import petctl.controller.cli, petctl.controller.init_process")
    assert not modules & {"asyncio", "ssl", "socket", "logging", "json", "ctypes", "petctl.rendezvous"}


def test_a_supervisor_starts_without_what_few_jobs_need() -> None:
    modules = modules_of("import petctl.clusters.local.controller.supervisor")
    assert not modules & {"tarfile", "tempfile", "petctl.agent.data.code", "petctl.storage.core.files"}
