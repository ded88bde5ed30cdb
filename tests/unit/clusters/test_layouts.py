"""What another system's scripts find on a node: checked by what builds records, and known to no backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import petctl
from petctl.clusters.debug import backend
from petctl.clusters.local.build_record import build_record
from petctl.clusters.local.job_directory import JobDirectory
from petctl.compat.batchai.jobfile import Found, JobFile, read_mapping
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import Job

SAID = "https://acc.file.core.windows.net/logs"
ROOMS = ("bundle", "clusters", "config", "controller", "elastic", "job", "jobs", "kube", "rendezvous", "submission")
_WORD = re.compile("batch ?ai", re.IGNORECASE)
BY_NAME = {"job/file/read.py"}  # the table of their readers, found by their names; that of kinds is in no room


def job_on(share: Path) -> Job:
    properties = {
        "nodeCount": 1,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
        "customToolkitSettings": {"commandLine": "true"},
        "mountVolumes": {"azureFileShares": [{"azureFileUrl": SAID, "relativeMountPath": "logs"}]},
    }
    return read_mapping(properties, JobFile(lambda volume: Found(str(share)))).job


def built(job: Job, home: Path) -> JobRecord:
    return build_record(job, JobDirectory(home / "jobs" / "j-2345"), {})


def test_this_machine_has_what_its_nodes_mount_or_the_job_is_refused(tmp_path: Path) -> None:
    job = job_on(tmp_path / "share")
    with pytest.raises(UsageError, match=f"{SAID} is .*/share, which does not exist on this machine"):
        built(job, tmp_path)
    (tmp_path / "share").mkdir()
    task = built(job, tmp_path).task
    assert [(mount.path, mount.directory) for mount in task.layout.mounts] == [("logs", str(tmp_path / "share"))]
    assert (task.layout.work, task.cwd) == ("batchai/NODE/work", "")


def test_a_cluster_that_lays_nothing_out_refuses_the_job(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"d cannot do this: .*layout"):
        backend.connect(tmp_path, {"name": "d"}).build_record(job_on(tmp_path), "j-2345")


def test_a_record_is_read_with_its_layout(tmp_path: Path) -> None:
    record = built(job_on(tmp_path), tmp_path)
    assert JobRecord.from_dict(record.to_dict()) == record
    broken = {**record.to_dict()["task"], "layout": {"mounts": [{"path": 3}]}}
    with pytest.raises(ValueError, match="mounts: path: must be str"):
        JobRecord.from_dict({**record.to_dict(), "task": broken})


def test_no_room_but_its_own_knows_the_system() -> None:
    place = Path(petctl.__file__).parent
    files = [path for room in ROOMS for path in (place / room).rglob("*.py")]
    knowing = {path.relative_to(place).as_posix() for path in files if _WORD.search(path.read_text("utf-8"))}
    assert knowing == BY_NAME
