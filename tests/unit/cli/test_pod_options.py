"""What the command line says about pods, alone and over a job file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.cli.jobs.run import command as run
from petctl.clusters.kubernetes.pods.schema import KubernetesOptions
from petctl.errors import PetctlError
from petctl.job.spec.options import options_for
from petctl.job.spec.volumes import Volume
from tests.unit.cli.test_words import job_of

ALL = ("--cpu", "4", "--memory", "16GiB", "--shm-size", "8Gi", "--volume", "data:/data:ro", "--volume", "out:/out")
DATA = Volume(kind="claim", source="data", path="/data", read_only=True)


def test_options() -> None:
    options = options_for(job_of(*ALL, "train.py").options, KubernetesOptions)
    assert (options.cpu, options.memory, options.shm_size) == ("4", "16Gi", "8Gi")
    assert options.volumes == [DATA, Volume(kind="claim", source="out", path="/out")]


def test_they_win_over_the_job_file_and_leave_the_rest_of_it(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "script: train.py\noptions: {kubernetes: {cpu: 1, priority_class: high, volumes: "
        "[{claim: old, path: /data}, {claim: home, path: /home}]}}"
    )
    options = options_for(job_of("--cpu", "2", "--volume", "data:/data:ro", str(file)).options, KubernetesOptions)
    assert (options.cpu, options.priority_class) == ("2", "high")
    assert [(volume.source, volume.path) for volume in options.volumes] == [("home", "/home"), ("data", "/data")]
    assert options_for(job_of(str(file)).options, KubernetesOptions).cpu == "1"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--cpu", "many"), "options.kubernetes.cpu: expected an amount"),
        (("--shm-size", "big"), "options.kubernetes.shm_size: expected a size"),
        (("-c", "k8s", "--cpu", "4", "-O", "cpu=4"), "give either --cpu or -O cpu=..., not both"),
        (("-c", "k8s", "--volume", "a:/x", "-O", "volumes=[]"), "give either --volume or -O volumes=..., not both"),
        (("-c", "k8s", "-O", "cpus=4"), "kubernetes clusters have no option 'cpus'; did you mean 'cpu'?"),
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
    file.write_text("script: train.py\ncluster: k8s\noptions: {k8s: {cpu: 1, scheduler: own}}")
    words = ("--memory", "1Gi", "-O", "host_network=true", "-O", "ttl_after_finished=7d", "-O", "node_selector={a: b}")
    options = options_for(job_of(*words, "-O", "cpu=2", str(file)).options, KubernetesOptions)
    assert (options.cpu, options.memory, options.scheduler, options.host_network) == ("2", "1Gi", "own", True)
    assert (options.node_selector, options.ttl_after_finished) == ({"a": "b"}, 7 * 24 * 3600.0)
    shown = " ".join(CliRunner().invoke(run, ["-c", "k8s", "--help"]).stdout.split())
    for text in (
        "Options of kubernetes clusters: -O",
        "-O volumes=LIST",
        "-O pod=MAPPING",
        "[default: the cluster's]",
    ):
        assert text in shown
    for name in KubernetesOptions.__struct_fields__:
        assert f"-O {name}=" in shown
