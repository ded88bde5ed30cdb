"""What each node of a job has, whatever the kind of cluster: resources and volumes, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict
from petctl.job.spec import Job, Resources
from petctl.job.spec.volumes import Volume, merged_volumes, parse_volume_option, volumes


def problems(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "job.yaml"
    path.write_text("script: a.py\n" + text)
    with pytest.raises(SpecError) as caught:
        read_job(path)
    return [line.partition("job.yaml:")[2] for line in str(caught.value).splitlines()]


@pytest.mark.parametrize(
    ("written", "cpu"),
    [(4, 4.0), ("4", 4.0), ("0.5", 0.5), (1 / 3, 0.333), ("1500m", 1.5), ("1m", 0.001), ("250.0m", 0.25)],
)
def test_processors_are_counted_in_thousandths(written: Any, cpu: float) -> None:
    assert Job(script="a.py", resources={"cpu": written}).resources == Resources(cpu=cpu)


def test_they_are_written_as_they_are_read() -> None:
    plain = {"cpu": 1.5, "memory": "16GiB", "gpus": 0, "shm": 500_000_000}
    job = Job(script="a.py", resources=plain)
    assert job.resources == Resources(cpu=1.5, memory=16 << 30, gpus=0, shm=500_000_000)
    assert job_to_dict(job) == {"script": "a.py", "resources": plain}
    assert job_from_dict(job_to_dict(job)) == job
    assert job_to_dict(Job(script="a.py", resources={"cpu": 4}))["resources"] == {"cpu": 4}
    assert "resources" not in job_to_dict(Job(script="a.py", resources={}))


def test_what_is_said_wins_over_what_is_usual_also_where_it_is_none() -> None:
    usual = Resources(cpu=2, gpus=8, shm=1 << 30)
    assert Resources(cpu=4, gpus=0).over(usual) == Resources(cpu=4, gpus=0, shm=1 << 30)
    assert Resources().over(usual) == usual and usual.over(Resources()) == usual
    assert Resources(cpu=4, gpus=0).asked() == ["cpu"]


def test_a_volume_takes_the_place_of_a_weaker_one_at_its_path() -> None:
    old = volumes([{"claim": "old", "path": "/data"}, {"claim": "home", "path": "/home"}])
    new = volumes([{"claim": "new", "path": "/data"}])
    assert [volume.source for volume in merged_volumes(old, new)] == ["home", "new"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resources: 4", ["2:12: resources: expected a mapping with cpu, memory, gpus, shm, got '4'"]),
        ("resources: {memry: 1Gi}", ["2:13: resources.memry: unknown field; did you mean 'memory'?"]),
        ("resources: {shm: lots}", ["2:18: resources.shm: expected a size such as"]),
        ("resources: {memory: 0}", ["2:21: resources.memory: must be above zero"]),
        ("resources: {cpu: four}", ["resources.cpu: expected processors such as 4, 0.5 or 500m, got 'four'"]),
        ("resources: {cpu: 0}", ["resources.cpu: must be at least 0.001"]),
        ("resources: {gpus: 1.5}", ["resources.gpus: expected a whole number of 0 or more, got '1.5'"]),
        ("gpus: 1", ["2:1: gpus: unknown field; write resources: {gpus: ...}"]),
        ("volumes: data", ["volumes: expected a list such as [{claim: data, path: /data}]"]),
        ("volumes: [data]", ["volumes[0]: expected a mapping such as {claim: data, path: /data}"]),
        ("volumes: [{path: /a}]", ["its source is missing: give one of claim, csi, nfs"]),
        ("volumes: [{claim: a}]", ["its path on the nodes is missing: give one"]),
        ("volumes: [{claim: a, nfs: 's:/b', path: /a}]", ["nfs: a second source besides 'claim'"]),
        ("volumes: [{claime: a, path: /a}]", ["unknown field; did you mean 'claim'?"]),
        ("volumes: [{nfs: 's:/b', path: /a, attributes: {}}]", ["attributes: unknown field"]),
        ("volumes: [{nfs: server, path: /a}]", ["expected SERVER:/PATH, got 'server'"]),
        ("volumes: [{claim: A, path: /a}]", ["expected a name with lower-case letters"]),
        ("volumes: [{claim: a, path: data}]", ["expected an absolute path on the nodes"]),
        ("volumes: [{claim: a, path: /petctl/x}]", ["/petctl is reserved by petctl"]),
        ("volumes: [{claim: a, path: /a, sub_path: ../b}]", ["expected a path inside the volume"]),
        ("volumes: [{claim: a, path: /a, keep: false}]", ["keep: is for a claim that petctl creates"]),
        (
            "volumes: [{claim: a, path: /a, prefetch: ls, read_only: true}]",
            ["a volume that is to be filled must be writable"],
        ),
        ("volumes: [{claim: a, path: /a}, {claim: b, path: /a/}]", ["volumes[1].path: a second volume at /a"]),
        (
            "resources: {shm: 1Gi}\nvolumes: [{claim: a, path: /dev/shm}]",
            ["2:18: resources.shm: there is a volume at /dev/shm already; keep one of them"],
        ),
        (
            "resources:\n  cpu: x\n  shm: y\nvolumes: [{claim: B, path: c}]",
            ["3:8: resources.cpu", "4:8: resources.shm", "5:19: volumes[0].claim", "5:28: volumes[0].path"],
        ),
    ],
)
def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path, text: str, said: list[str]) -> None:
    found = problems(tmp_path, text)
    assert len(found) == len(said), found
    for line, words in zip(found, said, strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("data:/data", {"path": "/data"}),
        ("data:/data:ro", {"path": "/data", "read_only": True}),
        ("data:/data:rw", {"path": "/data"}),
        ("/mnt/a:/data:ro", {"kind": "host_path", "source": "/mnt/a", "path": "/data", "read_only": True}),
    ],
)
def test_volumes_of_the_command_line(text: str, volume: dict[str, Any]) -> None:
    assert parse_volume_option(text) == Volume(**{"kind": "claim", "source": "data", **volume})


@pytest.mark.parametrize("text", ["data", "data:data", ":/data", "data:/data:wo", "Data:/data", "a:/petctl"])
def test_volumes_of_the_command_line_that_are_none(text: str) -> None:
    with pytest.raises(SpecError, match=f"^--volume {text}: "):
        parse_volume_option(text)
