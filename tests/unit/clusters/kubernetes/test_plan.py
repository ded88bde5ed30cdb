"""From a job to its record: what is refused, in which words, and what the record holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.build_record import build_record
from petctl.clusters.kubernetes.pods.manifests import MOST_CODE, PIECE, RECOVERY
from petctl.compat.batchai.jobfile import Found, JobFile, read_mapping
from petctl.compat.batchai.layout import stored
from petctl.errors import UsageError
from petctl.job.record import JobRecord
from petctl.job.spec import Job

SETTINGS = {"name": "west", "kind": "kubernetes", "image": "example.org/image:1"}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "train.py").write_text("print('hello')")
    (project / "petctl.yaml").write_text("{}")
    monkeypatch.chdir(project)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return project


def made(job: Job, home: Path, pinned: dict[str, Any] | None = None, **settings: Any) -> JobRecord:
    return build_record(job, "train-2222", home / "home", "team", {**SETTINGS, **settings}, pinned)


def refusal(job: Job, home: Path, pinned: dict[str, Any] | None = None, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        made(job, home, pinned, **settings)
    return str(caught.value)


def test_a_record_holds_what_the_coordinator_needs_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_SUBMITTER", "private-words")
    job = Job(script="train.py", nodes="1:2:3", secrets={"KEY": "wandb"}, max_time="2m", env={"A": "b"})
    record = made(job, tmp_path)
    assert (record.id, record.name, record.cluster) == ("train-2222", "train", "west")
    config, task = record.config, record.task
    assert (config.min_nodes, config.wanted, config.max_nodes) == (1, 2, 3)
    assert config.recover_within == RECOVERY
    assert (record.max_time, record.request["namespace"]) == (120.0, "team")
    assert (record.secrets, task.secrets) == ({"KEY": "wandb"}, {})
    assert (task.code.id, task.code.links, task.cwd, task.env) == (record.code["id"], {}, "", {"A": "b"})
    assert "private-words" not in json.dumps(record.to_dict())
    kinds = [found["metadata"]["name"] for found in record.request["objects"]]
    assert kinds == ["train-2222-coordinator", "train-2222", "train-2222-node"]
    assert record.request["objects"][2]["spec"]["completions"] == 2
    assert record.request["pieces"] == 1


@pytest.mark.parametrize("here", ["~/runs", "runs"])
def test_checkpoints_go_to_a_place_of_the_pods(tmp_path: Path, here: str) -> None:
    plan = made(Job(shell="x", env={"PETCTL_CHECKPOINT_DIR": "/data/runs"}), tmp_path)
    assert plan.task.checkpoint_dir == "/data/runs"
    said = refusal(Job(shell="x", env={"PETCTL_CHECKPOINT_DIR": here}), tmp_path)
    assert said.startswith(f"PETCTL_CHECKPOINT_DIR={here}: pods do not know this machine's directories")


def test_credentials_of_images_are_the_clusters_own_here(tmp_path: Path) -> None:
    words = refusal(Job(script="train.py", image="x:1", image_credentials="registry"), tmp_path)
    assert "kubernetes.pull_secrets" in words


def test_a_job_needs_an_image_and_its_own_comes_first(tmp_path: Path) -> None:
    words = refusal(Job(script="train.py"), tmp_path, image="")
    assert words == (
        "a job needs an image on Kubernetes; give one with --image, or set clusters.west.image "
        "in petctl.yaml. Any image with Python 3.9 or newer will do; for others name one that has it as agent_image"
    )
    record = made(Job(script="train.py", image="own:2"), tmp_path)
    images = {
        container["image"]
        for found in record.request["objects"]
        if found["kind"] == "Job"
        for container in found["spec"]["template"]["spec"]["containers"]
    }
    assert images == {"own:2"}


def test_an_unknown_setting_is_refused_with_those_there_are(tmp_path: Path) -> None:
    words = refusal(Job(script="train.py"), tmp_path, imagee="x")
    assert words.startswith("clusters.west has no setting 'imagee'; it has kind, context, kubeconfig, namespace, image")
    assert "name," not in words.replace("namespace,", "")  # nobody can set that


def test_settings_of_a_pod(tmp_path: Path) -> None:
    record = made(Job(script="train.py"), tmp_path, pull_policy="Never", pull_secrets="one", python="python3.12")
    for found in (record.request["objects"][0], record.request["objects"][2]):
        spec = found["spec"]["template"]["spec"]
        assert spec["imagePullSecrets"] == [{"name": "one"}]
        assert spec["containers"][0]["imagePullPolicy"] == "Never"
        assert spec["containers"][0]["command"][0] == "python3.12"
    assert refusal(Job(script="train.py"), tmp_path, pod=["x"]) == (
        "clusters.west.pod must be part of a pod template, not ['x']"
    )


def test_a_pieces_of_pod_of_the_job_wins_over_the_clusters(tmp_path: Path) -> None:
    of = [{"spec": {"nodeSelector": {"disk": value, value: "yes"}}} for value in ("slow", "fast")]
    record = made(Job(script="train.py", options={"kubernetes": {"pod": of[1]}}), tmp_path, pod=of[0])
    spec = record.request["objects"][2]["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"disk": "fast", "slow": "yes", "fast": "yes"}


def test_mapped_folders_need_code_unless_they_are_not_wanted(project: Path, tmp_path: Path) -> None:
    (project / "petctl.yaml").write_text("folders: {data: 's3://bucket/data'}")
    assert refusal(Job(shell="ls", code="none"), tmp_path) == (
        "mapped folders appear inside a job's code, but this job has none; run it with --no-folders"
    )
    assert made(Job(shell="ls", code="none", folders="none"), tmp_path).folders == []


def test_mapped_folders_are_not_code_even_when_they_are_not_wanted(project: Path, tmp_path: Path) -> None:
    before = made(Job(script="train.py"), tmp_path).code["files"]
    (project / "data").mkdir()
    (project / "data" / "large").write_text("x")
    (project / "petctl.yaml").write_text("folders: {data: 's3://bucket/data'}")
    assert made(Job(script="train.py", folders="none"), tmp_path).code["files"] == before


@pytest.mark.parametrize("what", ["folder", "store"])
def test_a_directory_of_this_machine_is_nothing_for_pods(project: Path, tmp_path: Path, what: str) -> None:
    place = tmp_path / "place"
    place.mkdir()
    job = Job(script="train.py", store=str(place))
    if what == "folder":
        (project / "petctl.yaml").write_text(json.dumps({"folders": {"data": str(place)}}))
        job = Job(script="train.py")
    words = refusal(job, tmp_path)
    assert str(place) in words
    assert words.endswith("is a directory of this machine, which pods cannot see; use s3:// or az://")


def batchai_job(mount: dict[str, Any]) -> Job:
    found = {name: mount.get(name, value) for name, value in {"directory": "", "here": True, "location": ""}.items()}
    properties = {
        "nodeCount": 2,
        "stdOutErrPathPrefix": "$AZ_BATCHAI_JOB_MOUNT_ROOT/logs",
        "customToolkitSettings": {"commandLine": "true"},
        "mountVolumes": {
            "azureBlobFileSystems": [{"accountName": "acc", "containerName": "logs", "relativeMountPath": "logs"}]
        },
    }
    return read_mapping(properties, JobFile(lambda volume: Found(**found))).job


def test_a_batch_ai_job_mounts_what_pods_can_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "acc")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    words = refusal(batchai_job({"directory": "/of/this/machine"}), tmp_path)
    assert "https://acc.blob.core.windows.net/logs is /of/this/machine on this machine" in words
    assert "mounts: {https://acc.blob.core.windows.net/logs: DIRECTORY}" in words
    task = made(batchai_job({"directory": "/mnt/logs", "here": False}), tmp_path).task
    assert task.layout.mounts[0].directory == "/mnt/logs"
    assert (task.cwd, task.folders) == ("", [])
    record = made(batchai_job({"location": "az://acc/logs"}), tmp_path)
    (folder,) = record.task.folders
    assert (folder.path, folder.location, folder.mode) == (".mounts/logs", "az://acc/logs/", "rw")
    assert record.grants[folder.grant]["write"] is True
    found = stored(record)["stdouterr"]
    assert found.location.startswith("az://acc/logs/00000000-") and found.location.endswith("/stdouterr")
    assert found.settings == {"endpoint": record.grants[folder.grant]["endpoint"]}, "reached as the nodes reach it"
    assert record.folders == []
    assert "a2V5" not in json.dumps(record.to_dict())


def test_a_missing_script_is_refused_here(tmp_path: Path) -> None:
    assert "there is no script missing.py" in refusal(Job(script="missing.py"), tmp_path)


def test_why_no_code_is_taken_along_is_told(tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("")
    record = made(Job(script=str(outside)), tmp_path)
    assert record.code == {} and record.request["pieces"] == 0
    assert record.notes and record.notes[0].startswith("no code is included: ")
    assert made(Job(shell="ls", code="none"), tmp_path).notes == []


def sparse(path: Path, size: int) -> dict[str, Any]:
    with path.open("wb") as file:
        file.truncate(size)
    return {"id": "a" * 64, "inside": "", "source": "/project", "archive": str(path), "files": 1, "links": {}}


@pytest.mark.parametrize(
    "size, pieces",
    [(1, 1), (PIECE, 1), (PIECE + 1, 2), (23 * PIECE, 23), (MOST_CODE, 24)],
)
def test_code_is_cut_into_pieces(tmp_path: Path, size: int, pieces: int) -> None:
    record = made(Job(script="train.py"), tmp_path, sparse(tmp_path / "archive", size))
    sources = next(
        volume["projected"]["sources"]
        for volume in record.request["objects"][0]["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "job"
    )
    assert record.request["pieces"] == pieces
    assert sum("-code-" in source.get("configMap", {}).get("name", "") for source in sources) == pieces


def test_code_that_is_too_large_is_refused(tmp_path: Path) -> None:
    words = refusal(Job(script="train.py"), tmp_path, sparse(tmp_path / "archive", MOST_CODE + 1))
    assert words == (
        "the code archive has 22 MiB, but a cluster can keep only 21 MiB; leave more out with .petctlignore"
    )


def test_code_that_is_gone_from_this_machine_is_told(tmp_path: Path) -> None:
    pinned = sparse(tmp_path / "archive", 1)
    (tmp_path / "archive").unlink()
    words = refusal(Job(script="train.py"), tmp_path, pinned)
    assert "is no longer on this machine" in words and "petctl resubmit --new-code" in words
