"""Which clusters are asked for their jobs, and what the Python API does about one that does not answer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from petctl.errors import PetctlError, UsageError
from petctl.jobs import list_jobs
from petctl.jobs.listing import other_clusters
from petctl.jobs.registry import Registry


def test_configured_clusters_and_those_submitted_to_are_asked_once_each(home: Path) -> None:
    (home / "petctl.yaml").write_text(
        "clusters: {west: {kind: k8s, namespace: a}, same: {kind: kubernetes, namespace: a}, big: {kind: local}}"
    )
    registry = Registry(home / "PETCTL_HOME")
    for name in ("k8s", "kubernetes", "west", "elsewhere"):
        registry.know(name)
    assert other_clusters(home / "PETCTL_HOME") == ["elsewhere", "k8s", "same"]


def test_an_unanswered_cluster_is_a_warning_or_the_callers_business(home: Path) -> None:
    (home / "petctl.yaml").write_text("clusters: {west: {kind: kubernetes}}")
    with pytest.warns(RuntimeWarning, match="cannot list the jobs of cluster west: ") as told:
        assert list_jobs() == []
    assert told[0].filename == __file__
    heard: dict[str, PetctlError] = {}
    assert list_jobs(unanswered=heard.__setitem__) == []
    assert list(heard) == ["west"]
    with pytest.raises(UsageError):
        list_jobs("west")
    assert list_jobs("local") == list_jobs("") == []


def test_with_this_machine_alone_nothing_more_is_imported(home: Path) -> None:
    code = "import sys\nfrom petctl.jobs import list_jobs\nlist_jobs()\nprint(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert "petctl.clusters.local.backend" in modules
    assert not modules & {"petctl.clusters.kubernetes", "petctl.jobs.api", "queue", "yaml", "http.client", "asyncio"}
