"""Words about pods as a piece of a pod template: of the job, of the cluster, and of both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.kubernetes.build_record import build_record
from petctl.clusters.kubernetes.pods import pod_options
from petctl.clusters.kubernetes.pods.manifests import PodSettings, node_job
from petctl.clusters.kubernetes.pods.pod_options import claims, labelled, merged, options_of, preparation, queued
from petctl.clusters.kubernetes.pods.schema import PodOptions
from petctl.errors import UsageError
from petctl.job.spec import Job, Resources
from petctl.job.spec.volumes import volumes


def options(**words: Any) -> PodOptions:
    return PodOptions(**words)


def piece(found: PodOptions, needs: Resources | None = None, seen: Sequence[Any] = ()) -> dict[str, Any]:
    return pod_options.piece(found, needs or Resources(), volumes(seen))


def container(found: dict[str, Any]) -> dict[str, Any]:
    (own,) = found["spec"]["containers"]
    assert own["name"] == "petctl"
    return dict(own)


def test_nothing_said_is_nothing_changed() -> None:
    assert piece(PodOptions()) == {}


def test_amounts() -> None:
    found = container(piece(options(), Resources(cpu=4, memory="16GiB")))  # type: ignore[arg-type]
    assert found["resources"] == {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"memory": "16Gi"}}
    more = options(requests={"cpu": "2"}, limits={"cpu": 3, "example.org/link": 1})
    found = container(piece(more, Resources(cpu=4, memory=1 << 30)))
    assert found["resources"]["requests"] == {"cpu": "2", "memory": "1Gi"}
    assert found["resources"]["limits"] == {"memory": "1Gi", "cpu": "3", "example.org/link": "1"}
    found = container(piece(options(), Resources(cpu=0.25, memory=1500)))
    assert found["resources"] == {"requests": {"cpu": "250m", "memory": "1500"}, "limits": {"memory": "1500"}}


def test_where_and_as_whom() -> None:
    found = piece(
        options(
            node_selector={"pool": "a"},
            tolerations=[{"key": "spot", "operator": "Exists"}],
            affinity={"podAntiAffinity": {}},
            priority_class="high",
            service_account="trainer",
            runtime_class="nvidia",
            scheduler="volcano",
            host_network=True,
            security_context={"runAsUser": 5, "privileged": True},
        )
    )
    assert found["spec"] == {
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
        "priorityClassName": "high",
        "serviceAccountName": "trainer",
        "runtimeClassName": "nvidia",
        "schedulerName": "volcano",
        "hostNetwork": True,
        "dnsPolicy": "ClusterFirstWithHostNet",
        "securityContext": {"runAsUser": 5},
        "containers": [{"name": "petctl", "securityContext": {"privileged": True}}],
    }


def test_volumes_and_shared_memory() -> None:
    seen = [
        {"claim": "data", "path": "/data", "read_only": True, "sub_path": "a"},
        {"csi": "csi.example.org", "attributes": {"share": "x"}, "path": "/csi"},
        {"nfs": "server:/export", "path": "/nfs"},
        {"secret": "tokens", "path": "/secret"},
        {"config_map": "names", "path": "/names"},
        {"host_path": "/mnt", "path": "/host"},
        {"empty_dir": "1Gi", "path": "/own"},
    ]
    found = piece(options(), Resources(shm=8 << 30), seen)
    assert [{key: value for key, value in volume.items() if key != "name"} for volume in found["spec"]["volumes"]] == [
        {"persistentVolumeClaim": {"claimName": "data"}},
        {"csi": {"driver": "csi.example.org", "volumeAttributes": {"share": "x"}}},
        {"nfs": {"server": "server", "path": "/export"}},
        {"secret": {"secretName": "tokens"}},
        {"configMap": {"name": "names"}},
        {"hostPath": {"path": "/mnt"}},
        {"emptyDir": {"sizeLimit": "1Gi"}},
        {"emptyDir": {"sizeLimit": "8Gi", "medium": "Memory"}},
    ]
    mounts = container(found)["volumeMounts"]
    assert [mount["name"] for mount in mounts] == [volume["name"] for volume in found["spec"]["volumes"]]
    assert mounts[0] == {"name": "volume-0", "mountPath": "/data", "readOnly": True, "subPath": "a"}
    assert mounts[-1]["mountPath"] == "/dev/shm"


def test_the_job_wins_over_the_cluster() -> None:
    cluster = options_of(
        {
            "name": "west",
            "image": "not of this kind",
            "host_network": True,
            "node_selector": {"pool": "a", "zone": "x"},
            "pull_secrets": "one",
            "tolerations": [{"key": "spot"}],
            "limits": {"a": 1, "b": 1},
        }
    )
    job = options(
        host_network=False,
        node_selector={"pool": "b"},
        pull_secrets=["one", "two"],
        tolerations=[{"key": "gpu"}],
        limits={"b": 2},
        requests={"a": 1},
    )
    both = merged(cluster, job)
    assert both.host_network is False
    assert both.node_selector == {"pool": "b", "zone": "x"}
    assert (both.pull_secrets, both.tolerations) == (["one", "two"], [{"key": "spot"}, {"key": "gpu"}])
    assert (both.limits, both.requests) == ({"a": "1", "b": "2"}, {"a": "1"})
    assert merged(cluster, PodOptions()) == cluster and merged(PodOptions(), job) == job


def test_settings_that_are_wrong_name_the_cluster() -> None:
    with pytest.raises(UsageError) as caught:
        options_of({"name": "west", "limits": {"cpu": "x"}, "host_network": -1})
    assert [line.partition(": ")[0] for line in str(caught.value).splitlines()] == [
        "clusters.west.limits.cpu",
        "clusters.west.host_network",
    ]


def test_labels_are_on_the_pods_and_on_what_makes_them_and_never_on_petctls_own() -> None:
    said = options(labels={"kueue.x-k8s.io/queue-name": "team"}, annotations={"a": "b"})
    made = labelled(node_job("train-1", PodSettings("image", patches=[("kubernetes", piece(said))]), 1), said)
    for metadata in (made["metadata"], made["spec"]["template"]["metadata"]):
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "team"
        assert metadata["labels"]["petctl.dev/job"] == "train-1"
        assert metadata["annotations"]["a"] == "b" and metadata["annotations"]["petctl.dev/id"] == "train-1"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({}, False),
        ({"labels": {"team": "a"}}, False),
        ({"labels": {"kueue.x-k8s.io/queue-name": "a"}}, True),
        ({"annotations": {"scheduling.volcano.sh/queue-name": "a"}}, True),
    ],
)
def test_who_waits_in_a_queue(words: dict[str, Any], expected: bool) -> None:
    assert queued(options(**words)) is expected


def test_claims_are_made_only_with_a_size_and_are_the_jobs_only_when_it_says_so() -> None:
    seen: list[Any] = [
        {"claim": "there", "path": "/a"},
        {"claim": "kept", "path": "/b", "size": "5GiB"},
        {
            "claim": "own",
            "path": "/c",
            "size": "1Gi",
            "keep": False,
            "storage_class": "fast",
            "access": "ReadWriteOnce",
        },
    ]
    kept, own = claims(volumes(seen), "train-1")
    assert kept["metadata"] == {"name": "kept"}
    assert kept["spec"] == {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}}
    assert own["metadata"]["labels"]["petctl.dev/job"] == "train-1"
    assert own["spec"]["storageClassName"] == "fast" and own["spec"]["accessModes"] == ["ReadWriteOnce"]


AGENT = ["python3", "-I", "/petctl/agent/petctl-agent.pyz"]


def test_volumes_are_filled_before_the_jobs_own_line() -> None:
    said = volumes([{"claim": "a", "path": "/a", "prefetch": "x 'y' && z"}, {"claim": "b", "path": "/b"}])
    first = """python3 -I /petctl/agent/petctl-agent.pyz fill /a 'x '"'"'y'"'"' && z' || exit"""
    assert preparation(said, AGENT, "make; test -e done") == f"{first}\nmake; test -e done"
    assert preparation(said, AGENT, "") == first
    assert preparation([], AGENT, "make") == "make"
    assert preparation([], AGENT, "") == ""


def plan_of(job: Job, tmp_path: Path, **settings: Any) -> dict[str, Any]:
    known = {"name": "west", "kind": "kubernetes", "image": "example.org/image:1", **settings}
    found: dict[str, Any] = build_record(job, "train-2222", tmp_path, "team", known, None).to_dict()
    return {**found, **found["request"]}


def test_a_plan_with_words_about_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    volume = {"claim": "data", "path": "/data", "size": "1Gi", "prefetch": "fetch"}
    job = Job(
        shell="train",
        code="none",
        resources={"gpus": 2},
        volumes=[volume],
        prepare="make",
        options={
            "kubernetes": {
                "gpu_resource": "amd.com/gpu",
                "pull_secrets": ["b"],
                "pod": {"spec": {"nodeSelector": {"pool": "c"}}},
            }
        },
    )
    plan = plan_of(job, tmp_path, pull_secrets="a", node_selector={"pool": "a", "zone": "z"}, resources={"shm": "1Gi"})
    coordinator, _, nodes = plan["objects"]
    pod, other = (found["spec"]["template"]["spec"] for found in (nodes, coordinator))
    assert pod["containers"][0]["resources"] == {"limits": {"amd.com/gpu": "2"}}
    assert pod["nodeSelector"] == {"pool": "c", "zone": "z"} and "nodeSelector" not in other  # the raw piece wins
    assert pod["imagePullSecrets"] == other["imagePullSecrets"] == [{"name": "a"}, {"name": "b"}]
    assert [claim["metadata"]["name"] for claim in plan["claims"]] == ["data"]
    filling, own = plan["task"]["prepare"].splitlines()
    assert filling.endswith("fill /data fetch || exit") and own == "make"
    assert plan["config"]["join_timeout"] == 600.0


@pytest.mark.parametrize(("said", "limit"), [(None, 0.0), ("5m", 300.0)])
def test_a_job_in_a_queue_waits_as_long_as_it_takes_unless_it_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str | None, limit: float
) -> None:
    monkeypatch.chdir(tmp_path)
    labels = {"kueue.x-k8s.io/queue-name": "team"}
    timing = {"join_timeout": said} if said else None
    job = Job(shell="train", code="none", options={"kubernetes": {"labels": labels}}, rendezvous=timing)
    assert plan_of(job, tmp_path)["config"]["join_timeout"] == limit


def test_wrong_settings_of_a_cluster_are_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"clusters\.west\.volumes\[0\]: its path on the nodes is missing"):
        plan_of(Job(shell="train", code="none"), tmp_path, volumes=[{"claim": "a"}])
