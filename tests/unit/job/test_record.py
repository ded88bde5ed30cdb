"""A job's record is the same after it was kept, and a damaged one says what is wrong with it."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.jobrequest import KubernetesRequest
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.record import LocalRequest, find_record, read_record, write_record
from petctl.errors import InternalError, NotFound
from petctl.job.fields import encode
from petctl.job.record import JobRecord, ResultsRecord
from petctl.job.task import Code, Folder, Role, Timing
from petctl.rendezvous.core.events import Config
from tests.unit.records import job_record

LOCAL = LocalRequest(
    ["python3"], 4, [["a", "b"]], "0.0.0.0", "10.0.0.1", -3, {"engine": "docker"}, 2, ["0", "1"], {"cpu": 1.5}
)
FULL = job_record(
    "full-22aa",
    {
        "code": Code(id="a" * 64, links={"data": "/data"}),
        "folders": [Folder("data", "s3://b/data")],
        "roles": [Role("ps", 2, serves=True)],
        "timing": Timing(1.0, 2.0),
        "outputs": ["model"],
        "env": {"A": "b"},
    },
    config=Config(1, 4, 2, retry_on=((1, 3), (137, 137)), retry_causes=("oom",), tasks=(2, 0)),
    cwd="/home/somebody",
    code={"id": "a" * 64, "links": {}, "files": 3},
    folders=[{"name": "data", "location": "s3://b/data"}],
    results=ResultsRecord("s3://b/logs", {"": "s3://b/outputs"}),
    in_copy=True,
    notes=["a sentence"],
    directory="/jobs/full-22aa",
    job={"script": "train.py"},
    secrets={"TOKEN": "hf"},
    grants={"store": {"location": "s3://b", "write": True}},
    max_time=120.0,
    request=encode(LOCAL),
)


def test_every_field_survives() -> None:
    unlike = job_record("other-22aa", cluster="k8s", submitted=5.0, command="x")
    same = [field.name for field in fields(JobRecord) if getattr(FULL, field.name) == getattr(unlike, field.name)]
    assert same == [], "each is put to the test"
    assert JobRecord.from_dict(json.loads(json.dumps(FULL.to_dict()))) == FULL
    assert LocalRequest.of(FULL) == LOCAL


def test_what_newer_versions_add_is_left_out() -> None:
    plain = FULL.to_dict()
    assert JobRecord.from_dict({**plain, "invented": 1, "task": {**plain["task"], "more": 2}}) == FULL


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": 3}, "id: must be str"),
        ({"task": None}, "task: "),
        ({"task": {"job": "x"}}, "task: "),
        ({"config": {"min_nodes": 1}}, "config: max_nodes is missing"),
        ({"config": {"min_nodes": "1"}}, "config: min_nodes: must be int"),
        ({"secrets": {"X": None}}, "secrets: must be str"),
        ({"grants": {"store": "s3://b"}}, "grants: must be an object"),
        ({"results": {"outputs": []}}, "results: outputs: must be an object"),
    ],
)
def test_a_damaged_record_says_where(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        JobRecord.from_dict({**FULL.to_dict(), **change})
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("missing", ["id", "name", "cluster", "submitted", "command", "config", "task"])
def test_what_a_record_must_have(missing: str) -> None:
    plain = FULL.to_dict()
    del plain[missing]
    with pytest.raises(ValueError, match=missing):
        JobRecord.from_dict(plain)


def test_a_file_that_is_damaged_is_named(tmp_path: Path) -> None:
    directory = JobDirectory(tmp_path / "full-22aa")
    with pytest.raises(NotFound, match="job 'full-22aa' no longer exists"):
        read_record(directory)
    directory.path.mkdir()
    with pytest.raises(InternalError, match=r"full-22aa/job\.json is missing or damaged; .*petctl rm full-22aa"):
        read_record(directory)
    write_record(directory, FULL)
    assert read_record(directory) == FULL == find_record(directory)
    plain = FULL.to_dict()
    for damaged, words in (
        ({**plain, "name": None}, r"job\.json is damaged \(name: must be str"),
        ({**plain, "request": {**plain["request"], "slots": "4"}}, r"damaged \(request: slots: must be int"),
    ):
        directory.job.write_text(json.dumps(damaged))
        with pytest.raises(InternalError, match=words):
            read_record(directory)
        assert find_record(directory) is None


def test_what_kubernetes_keeps_of_its_own() -> None:
    request = KubernetesRequest(
        "team", 2, "petctl-agent", False, [{"kind": "Job"}], [{"kind": "PersistentVolumeClaim"}]
    )
    kept = JobRecord.from_dict(json.loads(json.dumps(job_record(request=encode(request)).to_dict())))
    assert KubernetesRequest.of(kept) == request
    with pytest.raises(InternalError, match=r"record of train-2222 is damaged: request: namespace is missing"):
        KubernetesRequest.of(job_record(request={"pieces": 1}))
