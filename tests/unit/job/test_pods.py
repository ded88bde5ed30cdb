"""Options of the kind kubernetes: what they become, everything that is wrong with them, and there and back again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from petctl.clusters.kubernetes.pods.schema import KubernetesOptions
from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.spec import Job, Resources
from petctl.job.spec.options import options_for
from petctl.job.spec.volumes import Volume

PAGE = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
FULL = """
script: train.py
resources: {cpu: 4, memory: 16GiB, shm: 8Gi}
volumes:
  - {claim: data, path: /data/, read_only: true, sub_path: team/a}
  - {claim: scratch, path: /scratch, size: 50GiB, storage_class: fast, access: ReadWriteOnce, keep: false}
  - {claim: sets, path: /sets, prefetch: "curl ${URL} | tar x"}
  - {csi: csi.example.org, attributes: {share: models, mode: 1}, path: /models}
  - {nfs: "files.example.org:/export", path: /archive}
  - {secret: tokens, path: /tokens}
  - {config_map: names, path: /names}
  - {host_path: /mnt/disk, path: /disk}
  - {empty_dir: 10Gi, path: /tmp/fast, medium: Memory}
  - {empty_dir: "", path: /tmp/slow}
options:
  kubernetes:
    limits: {example.org/link: 1}
    requests: {ephemeral-storage: 20Gi}
    gpu_resource: amd.com/gpu
    node_selector: {pool: a100, example.org/spot: "true"}
    tolerations: [{key: spot, operator: Exists, tolerationSeconds: 30}]
    affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 5, preference: {}}]}}
    priority_class: high
    service_account: trainer
    runtime_class: nvidia
    scheduler: volcano
    host_network: true
    security_context: {runAsUser: 1000, privileged: false, capabilities: {add: [IPC_LOCK]}}
    labels: {kueue.x-k8s.io/queue-name: team}
    annotations: {note: "any text, and more"}
    pull_secrets: [registry]
    coordinator: {spec: {containers: [{resources: {limits: {cpu: 1}}}]}}
"""


def read(tmp_path: Path, text: str, name: str = "job.yaml") -> Job:
    path = tmp_path / name
    path.write_text(text)
    return read_job(path)


def problems(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, "script: a.py\n" + text)
    return [line.partition("job.yaml:")[2] for line in str(caught.value).splitlines()]


def test_every_word(tmp_path: Path) -> None:
    job = read(tmp_path, FULL)
    options = options_for(job.options, KubernetesOptions)
    assert job.resources == Resources(cpu=4.0, memory=16 << 30, shm=8 << 30)
    assert (options.limits, options.requests) == ({"example.org/link": "1"}, {"ephemeral-storage": "20Gi"})
    assert options.node_selector == {"pool": "a100", "example.org/spot": "true"}
    assert options.tolerations == [{"key": "spot", "operator": "Exists", "tolerationSeconds": 30}]
    (term,) = options.affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["weight"] == 5
    assert options.security_context == {
        "runAsUser": 1000,
        "privileged": False,
        "capabilities": {"add": ["IPC_LOCK"]},
    }
    assert options.host_network is True
    data, scratch, sets, csi, nfs, secret, config, host, fast, slow = job.volumes
    assert data == Volume(kind="claim", source="data", path="/data", read_only=True, sub_path="team/a")
    assert (scratch.size, scratch.storage_class, scratch.access, scratch.keep) == (
        *("50Gi", "fast", "ReadWriteOnce"),
        False,
    )
    assert sets.prefetch == "curl ${URL} | tar x"  # the shell's own
    assert csi.attributes == {"share": "models", "mode": "1"}
    assert (nfs.source, secret.source, config.source, host.source) == (
        *("files.example.org:/export", "tokens", "names"),
        "/mnt/disk",
    )
    assert (fast.source, fast.medium, slow.source, slow.medium) == ("10Gi", "Memory", "", "")


def test_there_and_back_again(tmp_path: Path) -> None:
    job = read(tmp_path, FULL)
    assert job_from_dict(json.loads(json.dumps(job_to_dict(job)))) == job
    assert read(tmp_path, job_to_yaml(job), "again.yaml") == job
    as_json = json.dumps(yaml.safe_load(FULL))
    assert read(tmp_path, as_json, "job.json") == job
    assert "options" not in job_to_dict(Job(script="a.py"))
    assert all(type(text) is str for text in options_for(job.options, KubernetesOptions).node_selector.values())


def test_a_piece_of_a_pod_has_the_types_that_were_written(tmp_path: Path) -> None:
    text = (
        "script: a.py\noptions: {k8s: {pod: {spec: {hostPID: true, x: 5, y: '5', z: 1.5, name: yes, w: 012, v: null}}}}"
    )
    spec = {"hostPID": True, "x": 5, "y": "5", "z": 1.5, "name": "yes", "w": "012", "v": None}
    said = {"kubernetes": {"pod": {"spec": spec}}}
    written = json.dumps({"script": "a.py", "options": said})
    jobs = read(tmp_path, text), read(tmp_path, written, "job.json"), Job(script="a.py", options=said)
    assert [job.options for job in jobs] == [{"kubernetes": KubernetesOptions(pod={"spec": spec})}] * 3
    job = read(tmp_path, "script: a.py\nenv: {A: 1, B: true}\nargs: [1, 0.10]\nname: 12\nlabels: {a: 5}")
    words = [*job.env.values(), *job.command.words, job.name, *job.labels.values(), *job.env]
    assert words == ["1", "true", "a.py", "1", "0.10", "12", "5", "A", "B"]
    assert all(type(word) is str for word in words)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kubernetes: 5", ["2:23: options.kubernetes: expected a mapping with pull_secrets, requests"]),
        (
            "kubernetes: {limit: {}}",
            ["2:24: options.kubernetes.limit: unknown field; did you mean 'limits'?"],
        ),
        (
            "kubernetes: {limits: {cpu: four}}",
            ["2:38: options.kubernetes.limits.cpu: expected an amount such as 4, 500m or 16Gi, got 'four'"],
        ),
        (
            "kubernetes: {node_selector: {a b: c}}",
            ["kubernetes.node_selector.a b: Kubernetes allows names such as"],
        ),
        ("kubernetes: {labels: {a: b c}}", ["a label's value has at most 63"]),
        ("kubernetes: {labels: {petctl.dev/job: x}}", ["reserved by petctl; choose another name"]),
        ("kubernetes: {tolerations: {key: a}}", ["kubernetes.tolerations: expected a list of mappings"]),
        ("kubernetes: {tolerations: [a]}", ["kubernetes.tolerations[0]: expected a mapping, got 'a'"]),
        ("kubernetes: {security_context: {runAsUsr: 1}}", ["unknown field; did you mean 'runAsUser'?"]),
        ("kubernetes: {host_network: yes}", ["kubernetes.host_network: expected true or false, got 'yes'"]),
        (
            "options:\n  kubernetes:\n    limits: {a: x}\n    host_network: y\n    tolerations: [z]",
            [
                "4:17: options.kubernetes.limits.a",
                "5:19: options.kubernetes.host_network",
                "6:19: options.kubernetes.tolerations[0]",
            ],
        ),
    ],
)
def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path, text: str, said: list[str]) -> None:
    found = problems(tmp_path, text if "\n" in text else f"options: {{{text}}}")
    assert len(found) == len(said), found
    for line, words in zip(found, said, strict=True):
        assert words in line


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "clusters:" not in text])
def test_the_examples_of_the_page_are_true(tmp_path: Path, text: str) -> None:
    job = read(tmp_path, text if "script:" in text else "script: a.py\n" + text)
    assert job.resources.asked() or job.volumes or job.options


def test_options_from_python() -> None:
    options = KubernetesOptions(limits={"example.org/link": 1})  # type: ignore[dict-item]
    assert Job(script="a.py", options={"kubernetes": options}).options == {"kubernetes": options}
    with pytest.raises(SpecError, match=r"options\.kubernetes\.limits\.cpu: expected an amount"):
        Job(script="a.py", options={"kubernetes": {"limits": {"cpu": "many"}}})
