"""Options of the kind kubernetes: what they become, everything that is wrong with them, and there and back again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.clusters.kubernetes.pods.schema import KubernetesOptions
from petctl.errors import SpecError
from petctl.job.file.read import job_from_dict, read_job
from petctl.job.file.write import job_to_dict, job_to_yaml
from petctl.job.spec import Job
from petctl.job.spec.options import options_for
from petctl.job.spec.volumes import Volume, parse_volume_option

PAGE = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()
EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
FULL = """
script: train.py
options:
  kubernetes:
    cpu: 4
    memory: 16GiB
    resources: {limits: {example.org/link: 1}, requests: {ephemeral-storage: 20Gi}}
    gpu_resource: amd.com/gpu
    shm_size: 8Gi
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
    options = options_for(read(tmp_path, FULL).options, KubernetesOptions)
    assert (options.cpu, options.memory, options.shm_size) == ("4", "16Gi", "8Gi")
    assert options.resources == {"limits": {"example.org/link": "1"}, "requests": {"ephemeral-storage": "20Gi"}}
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
    data, scratch, sets, csi, nfs, secret, config, host, fast, slow = options.volumes
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
        ("kubernetes: 5", ["2:23: options.kubernetes: expected a mapping with pull_secrets, cpu"]),
        (
            "kubernetes: {shmsize: 1Gi}",
            ["2:24: options.kubernetes.shmsize: unknown field; did you mean 'shm_size'?"],
        ),
        ("kubernetes: {shm_size: lots}", ["2:34: options.kubernetes.shm_size: expected a size such as"]),
        ("kubernetes: {memory: 0}", ["2:32: options.kubernetes.memory: must be above zero"]),
        (
            "kubernetes: {cpu: four}",
            ["2:29: options.kubernetes.cpu: expected an amount such as 4, 500m or 16Gi, got 'four'"],
        ),
        ("kubernetes: {resources: {limit: {}}}", ["unknown field; did you mean 'limits'?"]),
        (
            "kubernetes: {resources: {limits: {cpu: x}}}",
            ["kubernetes.resources.limits.cpu: expected an amount"],
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
            "kubernetes: {volumes: data}",
            ["kubernetes.volumes: expected a list such as [{claim: data, path: /data}]"],
        ),
        (
            "kubernetes: {volumes: [data]}",
            ["volumes[0]: expected a mapping such as {claim: data, path: /data}"],
        ),
        ("kubernetes: {volumes: [{path: /a}]}", ["its source is missing: give one of claim, csi, nfs"]),
        ("kubernetes: {volumes: [{claim: a}]}", ["its path in the pods is missing: give one"]),
        (
            "kubernetes: {volumes: [{claim: a, nfs: 's:/b', path: /a}]}",
            ["nfs: a second source besides 'claim'"],
        ),
        ("kubernetes: {volumes: [{claime: a, path: /a}]}", ["unknown field; did you mean 'claim'?"]),
        ("kubernetes: {volumes: [{nfs: 's:/b', path: /a, attributes: {}}]}", ["attributes: unknown field"]),
        ("kubernetes: {volumes: [{nfs: server, path: /a}]}", ["expected SERVER:/PATH, got 'server'"]),
        ("kubernetes: {volumes: [{claim: A, path: /a}]}", ["expected a name with lower-case letters"]),
        ("kubernetes: {volumes: [{claim: a, path: data}]}", ["expected an absolute path in the pods"]),
        ("kubernetes: {volumes: [{claim: a, path: /petctl/x}]}", ["/petctl is reserved by petctl"]),
        (
            "kubernetes: {volumes: [{claim: a, path: /a, sub_path: ../b}]}",
            ["expected a path inside the volume"],
        ),
        (
            "kubernetes: {volumes: [{claim: a, path: /a, keep: false}]}",
            ["keep: is for a claim that petctl creates"],
        ),
        (
            "kubernetes: {volumes: [{claim: a, path: /a, prefetch: ls, read_only: true}]}",
            ["a volume that is to be filled must be writable"],
        ),
        (
            "kubernetes: {volumes: [{claim: a, path: /a}, {claim: b, path: /a/}]}",
            ["volumes[1].path: a second volume at /a"],
        ),
        (
            "kubernetes: {shm_size: 1Gi, volumes: [{claim: a, path: /dev/shm}]}",
            ["there is a volume at /dev/shm already; keep one of them"],
        ),
        (
            "options:\n  kubernetes:\n    cpu: x\n    shm_size: y\n    volumes: [{claim: B, path: c}]",
            [
                "4:10: options.kubernetes.cpu",
                "5:15: options.kubernetes.shm_size",
                "6:23: options.kubernetes.volumes[0].claim",
                "kubernetes.volumes[0].path",
            ],
        ),
    ],
)
def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path, text: str, said: list[str]) -> None:
    found = problems(tmp_path, text if "\n" in text else f"options: {{{text}}}")
    assert len(found) == len(said), found
    for line, words in zip(found, said, strict=True):
        assert words in line


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("data:/data", {"path": "/data"}),
        ("data:/data:ro", {"path": "/data", "read_only": True}),
        ("data:/data:rw", {"path": "/data"}),
    ],
)
def test_volumes_of_the_command_line(text: str, volume: dict[str, Any]) -> None:
    assert parse_volume_option(text) == Volume(kind="claim", source="data", **volume)


@pytest.mark.parametrize("text", ["data", "data:data", ":/data", "data:/data:wo", "Data:/data", "a:/petctl"])
def test_volumes_of_the_command_line_that_are_none(text: str) -> None:
    with pytest.raises(SpecError, match=f"^--volume {text}: "):
        parse_volume_option(text)


@pytest.mark.parametrize("text", [text for text in EXAMPLES if "clusters:" not in text])
def test_the_examples_of_the_page_are_true(tmp_path: Path, text: str) -> None:
    job = read(tmp_path, text if "script:" in text else "script: a.py\n" + text)
    assert options_for(job.options, KubernetesOptions) != KubernetesOptions()


def test_options_from_python() -> None:
    options = KubernetesOptions(shm_size="1GiB", volumes=[{"claim": "data", "path": "/data"}])  # type: ignore[list-item]
    assert Job(script="a.py", options={"kubernetes": options}).options == {"kubernetes": options}
    assert options.volumes[0].source == "data"
    with pytest.raises(SpecError, match=r"options\.kubernetes\.cpu: expected an amount"):
        Job(script="a.py", options={"kubernetes": {"cpu": "many"}})
