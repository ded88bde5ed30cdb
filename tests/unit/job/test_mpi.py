"""What a job may say of mpirun."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.submission.task import config_of, task_of


def job(**fields: Any) -> Job:
    return Job(**{"script": "train.py", "launcher": "mpi", **fields})


def test_processes_and_options_reach_the_nodes_and_the_coordinator() -> None:
    made = job(nodes=2, processes=5, mpi_options="--mca btl 'tcp,self'")
    task = task_of(made, "j", "/here", "")
    assert (task.launcher, task.processes, task.mpi_options) == ("mpi", 5, ["--mca", "btl", "tcp,self"])
    assert (config_of(made).offers, config_of(made).tasks) == (True, (5,))
    assert config_of(job(nodes=2, procs=3)).tasks == ()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"launcher": "elastic", "processes": 4}, "processes: is for launcher mpi, not elastic; use procs"),
        ({"launcher": "plain", "mpi_options": ["-v"]}, "mpi_options: is for launcher mpi, not plain"),
        ({"nodes": "2:4", "processes": 3}, "processes: 4 nodes need at least 4 processes, but there are 3"),
        ({"mpi_options": ["--host", "a,b"]}, "mpi_options: --host is set by petctl; use nodes, procs or processes"),
    ],
)
def test_what_does_not_fit_is_named(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        job(**fields)
