"""Jobs of others: what becomes of each field, what is left out by name, and what is refused."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.clusters.kubernetes.convert.convert import ConvertOptions, find_jobs
from petctl.clusters.kubernetes.convert.converted import elastic_job, job
from petctl.clusters.kubernetes.convert.launcher_args import Launch, launcher_length, read_launch
from petctl.errors import UsageError
from petctl.job.file.read import job_from_dict
from petctl.job.file.write import job_to_dict
from petctl.job.spec.problems import FieldError

HERE = Path(__file__).parent / "foreign"
OLD: list[dict[str, Any]] = list(yaml.safe_load_all((HERE / "elasticjob.yaml").read_text()))
PODS: list[dict[str, Any]] = list(yaml.safe_load_all((HERE / "pods.yaml").read_text()))


def test_an_old_elasticjob() -> None:
    (found,), notes = find_jobs(OLD, ConvertOptions())
    made = elastic_job(found)
    assert made["metadata"] == {"name": "imagenet", "namespace": "elastic-job"}
    spec = dict(made["spec"])
    template = spec.pop("template")
    assert spec == {
        "minReplicas": 1,
        "replicas": 2,
        "maxReplicas": 2,
        "procsPerNode": 4,
        "restartPolicy": "ExitCode",
        "backoffLimit": 5,
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 600,
        "activeDeadlineSeconds": 7200,
    }
    worker, beside = template["spec"]["containers"]  # the worker comes first
    assert worker["command"] == ["python3", "/workspace/main.py", "--epochs=20", "/workspace/data"]
    assert "args" not in worker and worker["resources"] == {"limits": {"nvidia.com/gpu": 4}}
    assert beside == {"name": "beside", "image": "example.org/side:1", "args": ["--watch"]}
    assert "restartPolicy" not in template["spec"]
    for name in ("rdzvEndpoint", "schedulingPolicy", "--rdzv_conf", "restartPolicy", "Service etcd", "Pod etcd"):
        assert sum(name in note for note in notes) == 1, name
    assert len(notes) == 6


def test_pods_that_are_one_job() -> None:
    (found,), notes = find_jobs(PODS, ConvertOptions(["python3", "/workspace/main.py"]))
    made = elastic_job(found)
    assert (made["metadata"], made["spec"]["minReplicas"]) == ({"name": "imagenet"}, 1)
    assert (made["spec"]["replicas"], made["spec"]["maxReplicas"]) == (2, 3)
    template = made["spec"]["template"]
    assert template["metadata"] == {"labels": {"team": "vision"}}
    (worker,) = template["spec"]["containers"]
    assert worker["command"] == ["python3", "/workspace/main.py", "--input_path", "/data/train", "--epochs", "10"]
    assert [variable["name"] for variable in worker["env"]] == ["NCCL_DEBUG", "HOST"]
    assert len(template["spec"]["volumes"]) == 2
    for words in (
        "Service imagenet-worker-2",
        "RDZV_ENDPOINT",
        "efs-claim stays",
        "<BUCKET>/somewhere/main.py is left",
    ):
        assert sum(words in note for note in notes) == 1, words


def test_pods_as_a_job_file_that_takes_the_script_from_its_address() -> None:
    (found,), notes = find_jobs(PODS, ConvertOptions(fetches=True))
    made, more = job(found)
    assert (str(made.nodes), made.resources.gpus, made.image) == ("1:2:3", 1, "example.org/examples:1")
    assert (made.code, made.command.words) == (
        "s3://<BUCKET>/somewhere/main.py",
        ["main.py", "--input_path", "/data/train", "--epochs", "10"],
    )
    assert made.env == {"NCCL_DEBUG": "INFO"} and more == []
    (worker,) = made.options["kubernetes"].to_plain()["pod"]["spec"]["containers"]
    assert [variable["name"] for variable in worker["env"]] == ["HOST"] and "resources" not in worker
    assert any("still holds the placeholder <BUCKET>" in note for note in notes)
    assert job_from_dict(job_to_dict(made)) == made


def test_an_old_elasticjob_as_a_job_file() -> None:
    made, notes = job(find_jobs(OLD, ConvertOptions())[0][0])
    assert (made.procs, made.resources.gpus, made.restarts, made.max_time) == ("4", 4, 5, 7200.0)
    assert made.retry_on == ["130", "137-138", "143"] and made.code == "none"
    assert [note.split(" is ")[0] for note in notes] == [
        "ElasticJob imagenet: cleanPodPolicy",
        "ElasticJob imagenet: ttlSecondsAfterFinished",
        "imagenet: the namespace elastic-job",
    ]


def changed(documents: list[dict[str, Any]], path: str, value: Any) -> list[dict[str, Any]]:
    """The same with one value in its first object changed; None takes it away."""
    result = copy.deepcopy(documents)
    place: Any = result[0]
    *steps, last = path.split(".")
    for step in steps:
        place = place[int(step) if step.isdecimal() else step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result


WORKER = "spec.replicaSpecs.Worker"


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}], "Deployment web (apps/v1) is"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}], "Pod a has no containers"),
        (changed(OLD, "apiVersion", "elastic.pytorch.org/v2"), "ElasticJob imagenet (elastic.pytorch.org/v2) is not"),
        (["text"], "expected Kubernetes objects"),
        ([{"kind": "Pod", "spec": 5}], "expected Kubernetes objects"),
        (changed(OLD, f"{WORKER}.template", None), "ElasticJob imagenet has no spec.replicaSpecs.Worker.template"),
        (changed(OLD, f"{WORKER}.replicas", 3), "3 nodes are not between the minimum (1) and the maximum (2)"),
        (changed(PODS, "spec.containers.0.image", "other"), "are not the same; a job has one template"),
        (changed(PODS[:1], "spec.containers.0.image", None), "'elastic-trainer-worker' has no image"),
        (PODS, "has no command, and what the ENTRYPOINT of example.org/examples:1 is"),
    ],
)
def test_what_is_refused_is_named(documents: list[Any], words: str) -> None:
    command = [] if documents is PODS else ["python3", "x.py"]
    with pytest.raises(UsageError) as caught:
        find_jobs(documents, ConvertOptions(command))
    assert words in str(caught.value)


@pytest.mark.parametrize(("policy", "becomes"), [("Never", None), ("Always", None), ("ExitCode", "ExitCode")])
def test_restart_policies(policy: str, becomes: str | None) -> None:
    (found,), notes = find_jobs(changed(OLD, f"{WORKER}.restartPolicy", policy), ConvertOptions())
    assert elastic_job(found)["spec"].get("restartPolicy") == becomes
    assert any("restartPolicy Never was about pods" in note for note in notes) == (policy == "Never")


def test_another_image_and_one_that_is_too_old() -> None:
    old = changed(PODS, "spec.containers.0.image", "torchelastic/examples:0.1.0rc1")[:1]
    notes = find_jobs(old, ConvertOptions(["x"]))[1]
    assert any(
        "has no Python 3.9, which the agent needs; set agentImage to an image that has it" in note for note in notes
    )
    (found,), notes = find_jobs(old, ConvertOptions(["x"], "example.org/new:1"))
    assert found.template["spec"]["containers"][0]["image"] == "example.org/new:1"
    assert not any("Python 3.9" in note for note in notes)


def test_lists_are_opened_and_a_name_is_made_fit() -> None:
    environment = [{"name": "RDZV_ENDPOINT", "value": "x"}, {"name": "JOB_ID", "value": "Big_Job"}]
    command = ["torchrun", "--nnodes=1:3", "--nproc-per-node", "2", "-m", "a.b"]
    container = {"name": "w", "image": "i", "command": command}
    pod = {"kind": "Pod", "apiVersion": "v1", "spec": {"containers": [{**container, "env": environment}]}}
    (found,), _ = find_jobs([{"kind": "List", "items": [pod]}, None], ConvertOptions())
    made = elastic_job(found)
    assert made["metadata"]["name"].startswith("big-job-")
    assert made["metadata"]["annotations"] == {"petctl.dev/id": "Big_Job"}
    sizes = [made["spec"][f"{name}Replicas"] for name in ("min", "max")]
    assert made["spec"]["procsPerNode"] == 2 and made["spec"]["replicas"] == 1 and sizes == [1, 3]
    (worker,) = made["spec"]["template"]["spec"]["containers"]
    assert worker["command"] == ["python3", "-m", "a.b"] and "env" not in worker


@pytest.mark.parametrize(
    ("words", "length"),
    [
        (["torchrun", "x.py"], 1),
        (["/usr/bin/torchrun"], 1),
        (["python", "-m", "torch.distributed.run", "x.py"], 3),
        (["python3", "-u", "-m", "torchelastic.distributed.launch"], 4),
        (["python", "x.py"], 0),
        (["python", "-m", "package"], 0),
        ([], 0),
    ],
)
def test_launchers_are_known(words: list[str], length: int) -> None:
    assert launcher_length(words) == length


def test_a_launchers_words() -> None:
    words = "--nnodes=1:4 --nproc-per-node gpu --max_restarts 7 --standalone --no_python ./run -x"
    launch = read_launch(words.split())
    assert launch[:4] == (["./run", "-x"], "gpu", "1:4", 7)
    assert [note.split()[0] for note in launch.notes] == ["--standalone"]
    assert read_launch(["x.py", "--nnodes=2"]) == Launch(["python3", "x.py", "--nnodes=2"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nproc_per_node=2"], "has no script"),
        (["--nproc_per_node"], "--nproc_per_node has no value"),
        (["--nonsense", "x.py"], "--nonsense is unknown"),
        (["--max_restarts=x", "x.py"], "'x', which is not a number"),
    ],
)
def test_a_launchers_words_that_are_wrong(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read_launch(words)


def test_what_is_of_another_shape_is_named() -> None:
    wrong = copy.deepcopy(OLD)
    wrong[0]["spec"]["replicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A"}, "B=1"]
    place = r"ElasticJob imagenet: spec\.replicaSpecs\.Worker\.template\.spec\.containers\[0\]\.env\[1\]"
    with pytest.raises(UsageError, match=rf"^{place} must be a mapping, not 'B=1'$"):
        find_jobs(wrong, ConvertOptions())


@pytest.mark.parametrize("documents", [OLD, PODS], ids=["elasticjob", "pods"])
@pytest.mark.parametrize("other", [None, [], {}, "x", 5, [None], [[]]], ids=repr)
def test_whatever_stands_in_a_place_nobody_sees_a_traceback(documents: list[dict[str, Any]], other: object) -> None:
    for place in places(documents):
        changed: Any = copy.deepcopy(documents)
        inner = changed
        for word in place[:-1]:
            inner = inner[word]
        inner[place[-1]] = copy.deepcopy(other)
        with contextlib.suppress(UsageError, FieldError):
            for found in find_jobs(changed, ConvertOptions(["python3", "main.py"], "python:3.11"))[0]:
                elastic_job(found)
                job(found)


def places(node: object) -> Iterator[tuple[Any, ...]]:
    """Every place in a tree, by the words that lead to it."""
    inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for word, value in inner:
        yield (word,)
        yield from ((word, *rest) for rest in places(value))
