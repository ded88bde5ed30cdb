"""What the command line says about pods, alone and over a job file."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.errors import SpecError
from petctl.job.spec.volumes import Volume
from tests.unit.cli.test_words import job_of

ALL = ("--cpu", "4", "--memory", "16GiB", "--shm-size", "8Gi", "--volume", "data:/data:ro", "--volume", "out:/out")
DATA = Volume(kind="claim", source="data", path="/data", read_only=True)


def test_options() -> None:
    options = job_of(*ALL, "train.py").kubernetes
    assert (options.cpu, options.memory, options.shm_size) == ("4", "16Gi", "8Gi")
    assert options.volumes == [DATA, Volume(kind="claim", source="out", path="/out")]


def test_they_win_over_the_job_file_and_leave_the_rest_of_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "script: train.py\nkubernetes: {cpu: 1, priority_class: high, volumes: "
        "[{claim: old, path: /data}, {claim: home, path: /home}]}"
    )
    options = job_of("--cpu", "2", "--volume", "data:/data:ro", str(file)).kubernetes
    assert (options.cpu, options.priority_class) == ("2", "high")
    assert [(volume.source, volume.path) for volume in options.volumes] == [("home", "/home"), ("data", "/data")]
    assert job_of(str(file)).kubernetes.cpu == "1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpu", "many"), "kubernetes.cpu: expected an amount"),
        (("--shm-size", "big"), "kubernetes.shm_size: expected a size"),
        (("--volume", "data"), "--volume data: expected CLAIM:/PATH"),
        (("--volume", "a:/x", "--volume", "b:/x"), "a second volume at /x"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        job_of(*words, "train.py")
    assert said in str(caught.value)
