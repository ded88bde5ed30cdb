"""What the command line says about nodes and about pods, alone and over a job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.cli.jobs.run import command as run
from petctl.clusters.kubernetes.pods.schema import KubernetesOptions
from petctl.errors import PetctlError
from petctl.job.spec import Resources
from petctl.job.spec.options import options_for
from petctl.job.spec.volumes import Volume
from tests.unit.cli.test_words import job_of

ALL = (
    *("--cpu", "4", "--memory", "16GiB", "--gpus", "2", "--shm-size", "8Gi"),
    *("--volume", "data:/data:ro", "--volume", "out:/out"),
)
DATA = Volume(kind="claim", source="data", path="/data", read_only=True)


def test_options() -> None:
    job = job_of(*ALL, "train.py")
    assert job.resources == Resources(cpu=4, memory=16 << 30, gpus=2, shm=8 << 30)
    assert job.volumes == [DATA, Volume(kind="claim", source="out", path="/out")]


def test_they_win_over_the_job_file_and_leave_the_rest_of_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "script: train.py\nresources: {cpu: 1, gpus: 8}\n"
        "volumes: [{claim: old, path: /data}, {claim: home, path: /home}]"
    )
    job = job_of("--cpu", "2", "--volume", "data:/data:ro", str(file))
    assert job.resources == Resources(cpu=2, gpus=8)
    assert [(volume.source, volume.path) for volume in job.volumes] == [("home", "/home"), ("data", "/data")]
    assert job_of(str(file)).resources.cpu == 1
    assert job_of("--gpus", "0", str(file)).resources.gpus == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpu", "many"), "resources.cpu: expected processors"),
        (("--shm-size", "big"), "resources.shm: expected a size"),
        (("-c", "k8s", "-O", "cpu=4"), "kubernetes clusters have no option 'cpu'"),
        (("-c", "k8s", "-O", "limit={}"), "kubernetes clusters have no option 'limit'; did you mean 'limits'?"),
        (("-c", "k8s", "-O", "host_network=yes"), "options.kubernetes.host_network: expected true or false, got 'yes'"),
        (("--volume", "data"), "--volume data: expected CLAIM:/PATH"),
        (("--volume", "a:/x", "--volume", "b:/x"), "a second volume at /x"),
    ],
)
def test_what_is_wrong_is_named(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(PetctlError) as caught:
        job_of(*words, "train.py")
    assert said in str(caught.value)


def test_options_of_the_kind(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("script: train.py\ncluster: k8s\noptions: {k8s: {priority_class: low, scheduler: own}}")
    words = ("-O", "host_network=true", "-O", "ttl_after_finished=7d", "-O", "node_selector={a: b}")
    options = options_for(job_of(*words, "-O", "priority_class=high", str(file)).options, KubernetesOptions)
    assert (options.priority_class, options.scheduler, options.host_network) == ("high", "own", True)
    assert (options.node_selector, options.ttl_after_finished) == ({"a": "b"}, 7 * 24 * 3600.0)
    shown = " ".join(CliRunner().invoke(run, ["-c", "k8s", "--help"]).stdout.split())
    for text in (
        "Options of kubernetes clusters: -O",
        "-O limits=MAPPING",
        "-O pod=MAPPING",
        "[default: the cluster's]",
    ):
        assert text in shown
    for name in KubernetesOptions.__struct_fields__:
        assert f"-O {name}=" in shown
