"""The objects of a job: what they promise each other, and what they keep from each other."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from petctl.agent.node.options import added_up
from petctl.clusters.kubernetes.names import COORDINATOR, ID, NODE, labels, object_name
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.clusters.kubernetes.pods.template_merge import patched
from petctl.errors import UsageError
from petctl.job.task import Code, Timing

JOB = "My.Job-2222"
NAME = object_name(JOB)
WISHES = make.PodSettings(image="example.org/image:1")


def coordinator(wishes: make.PodSettings = WISHES, pieces: int = 0, secrets: list[str] | None = None) -> dict[str, Any]:
    return make.coordinator_job(JOB, wishes, pieces, secrets or [], stores=False, suspend=True)


def container(job: dict[str, Any]) -> dict[str, Any]:
    (only,) = job["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def volumes(job: dict[str, Any]) -> dict[str, Any]:
    return {volume["name"]: volume for volume in job["spec"]["template"]["spec"]["volumes"]}


def environment(job: dict[str, Any]) -> dict[str, Any]:
    return {entry["name"]: entry for entry in container(job)["env"]}


BOTH = [coordinator(), make.node_job(JOB, WISHES, 3)]


@pytest.mark.parametrize("job", BOTH, ids=[COORDINATOR, NODE])
def test_what_every_pod_of_a_job_has(job: dict[str, Any]) -> None:
    pod, spec = job["spec"]["template"], job["spec"]
    assert job["metadata"]["labels"] == pod["metadata"]["labels"]
    assert pod["metadata"]["annotations"][ID] == job["metadata"]["annotations"][ID] == JOB
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["restartPolicy"] == "Never"
    assert spec["completionMode"] == "Indexed"
    assert {key["tolerationSeconds"] for key in pod["spec"]["tolerations"]} == {make.AWAY}
    mounts = {mount["name"]: mount for mount in container(job)["volumeMounts"]}
    assert mounts.keys() == volumes(job).keys()
    assert [name for name, mount in mounts.items() if not mount.get("readOnly")] == ["state"]
    assert container(job)["command"][:3] == ["python3", "-I", "/petctl/agent/petctl-agent.pyz"]


@pytest.mark.parametrize("job", BOTH, ids=[COORDINATOR, NODE])
def test_a_pod_knows_how_many_were_before_it(job: dict[str, Any]) -> None:
    words = container(job)["command"]
    assert words[words.index("--replacement") + 1] == "$(PETCTL_REPLACEMENT)"
    known = environment(job)
    assert known["PETCTL_REPLACEMENT"]["value"].endswith("$(PETCTL_FAILED)+$(PETCTL_IGNORED)")
    paths = [known[name]["valueFrom"]["fieldRef"]["fieldPath"] for name in ("PETCTL_FAILED", "PETCTL_IGNORED")]
    assert paths == [
        "metadata.annotations['batch.kubernetes.io/job-index-failure-count']",
        "metadata.annotations['batch.kubernetes.io/job-index-ignored-failure-count']",
    ]
    counted = known["PETCTL_REPLACEMENT"]["value"]
    named = [name for name in known if f"$({name})" in counted]
    assert all(
        list(known).index(name) < list(known).index("PETCTL_REPLACEMENT") for name in named
    )  # or it is not filled in


def test_a_coordinators_losses_never_make_the_next_wait_longer_than_nodes_do_without_one() -> None:
    """A Job's back-off doubles for each index from 10 s on; the next index has none, and its number is higher."""
    job = coordinator()
    spec, losses = job["spec"], job["spec"]["backoffLimitPerIndex"] + 1
    assert 10 * 2 ** (losses - 2) <= Timing().fence_after / 3
    assert (spec["parallelism"], spec["completions"]) == (1, 1000)
    assert spec["successPolicy"] == {"rules": [{"succeededCount": 1}]}

    def number(index: int, failed: int) -> int:
        words = str(environment(job)["PETCTL_REPLACEMENT"]["value"])
        for name, value in (("INDEX", str(index)), ("FAILED", str(failed)), ("IGNORED", "")):
            words = words.replace(f"$(PETCTL_{name})", value)
        return added_up(words)

    assert [number(index, failed) for index in range(3) for failed in range(losses)] == list(range(3 * losses))


def test_the_coordinators_job_replaces_at_once_and_can_sleep() -> None:
    job = coordinator()
    assert job["metadata"]["name"] == f"{NAME}-coordinator"
    assert (job["spec"]["podReplacementPolicy"], job["spec"]["suspend"]) == ("TerminatingOrFailed", True)
    assert "podFailurePolicy" not in job["spec"]  # not allowed together with it
    assert "suspend" not in make.coordinator_job(JOB, WISHES, 0, [], stores=False, suspend=False)["spec"]
    words = container(job)["command"]
    assert words[words.index("--message") + 1] == "/dev/termination-log"
    security = container(job)["securityContext"]
    assert security["runAsNonRoot"] and not security["allowPrivilegeEscalation"]
    assert security["capabilities"] == {"drop": ["ALL"]}


def test_the_nodes_job_ignores_those_that_left_and_replaces_when_they_have() -> None:
    job = make.node_job(JOB, WISHES, 3)
    assert (job["metadata"]["name"], job["spec"]["parallelism"]) == (f"{NAME}-node", 3)
    assert job["spec"]["completions"] == 3 and job["spec"]["backoffLimitPerIndex"] > 1_000_000
    assert job["spec"]["podReplacementPolicy"] == "Failed"
    rules = job["spec"]["podFailurePolicy"]["rules"]
    words = container(job)["command"]
    left = int(words[words.index("--leave-code") + 1])
    assert {"action": "Ignore", "onExitCodes": {"containerName": "petctl", "operator": "In", "values": [left]}} in rules
    assert container(job)["name"] == "petctl"


def test_only_the_coordinator_sees_token_key_and_secrets() -> None:
    sources = volumes(coordinator(secrets=["b", "a", "b"]))["job"]["projected"]["sources"]
    own, users = (source["secret"] for source in sources if "secret" in source)
    assert {item["key"] for item in own["items"]} == {"token", "tls.crt", "tls.key", "join.json"}
    assert users == {
        "name": make.SECRETS,
        "items": [{"key": "a", "path": "secrets/a"}, {"key": "b", "path": "secrets/b"}],
    }
    seen = volumes(make.node_job(JOB, WISHES, 1))
    assert seen["join"]["secret"] == {"secretName": NAME, "items": [{"key": "join.json", "path": "join.json"}]}
    assert not [name for name, volume in seen.items() if "secret" in volume and name != "join"]


def test_the_service_leads_to_the_coordinators_pod() -> None:
    service, job = make.service(JOB), coordinator()
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    nodes = make.node_job(JOB, WISHES, 1)["spec"]["template"]["metadata"]["labels"]
    assert not service["spec"]["selector"].items() <= nodes.items()
    (port,) = service["spec"]["ports"]
    assert container(job)["ports"] == [{"containerPort": port["targetPort"]}]
    words = container(job)["command"]
    assert int(words[words.index("--port") + 1]) == port["port"]
    assert make.service_name(JOB, "team") == f"{service['metadata']['name']}.team.svc"


def test_wishes_reach_both_kinds_of_pods_gpus_only_nodes() -> None:
    wishes = make.PodSettings("i", pull_policy="Always", pull_secrets=["x"], python="/opt/python", gpus=2, grace=7.9)
    jobs = [coordinator(wishes), make.node_job(JOB, wishes, 1)]
    for job in jobs:
        assert container(job)["imagePullPolicy"] == "Always"
        assert container(job)["command"][0] == "/opt/python"
        assert job["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "x"}]
    assert "limits" not in container(jobs[0])["resources"]
    assert container(jobs[1])["resources"] == {"limits": {"nvidia.com/gpu": "2"}}
    assert jobs[1]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > 7.9
    assert "imagePullPolicy" not in container(coordinator()) and "resources" not in container(BOTH[1])


def test_what_a_user_adds_to_a_pod_leaves_the_agents_container() -> None:
    patch = {"spec": {"containers": [{"name": "beside", "image": "b"}], "nodeSelector": {"disk": "fast"}}}
    pod = make.node_job(JOB, WISHES._replace(patches=[("pod", patch)]), 1)["spec"]["template"]
    assert pod == patched(make.node_pod(JOB, WISHES, [*make.COUNTED, make.INDEX]), patch, "pod")
    assert [found["name"] for found in pod["spec"]["containers"]] == ["petctl", "beside"]
    assert coordinator(WISHES._replace(patches=[("pod", patch)])) == coordinator()


@pytest.mark.parametrize("largest", [make.PIECE, make.SMALL_PIECE])
@pytest.mark.parametrize("full, more, pieces", [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2), (3, 0, 3)])
def test_pieces_of_code_are_all_of_it_and_fit(largest: int, full: int, more: int, pieces: int) -> None:
    size = full * largest + more
    archive = (bytes(index % 251 for index in range(1000)) * (size // 1000 + 1))[:size]
    made = list(make.code_pieces(JOB, archive, pieces))
    values = [base64.b64decode(piece["binaryData"]["piece"]) for piece in made]
    assert b"".join(values) == archive
    assert len(made) == pieces and all(len(value) <= largest for value in values)
    sources = volumes(coordinator(pieces=pieces))["job"]["projected"]["sources"]
    mounted = [
        source["configMap"] for source in sources if "configMap" in source and "optional" not in source["configMap"]
    ][1:]
    assert [one["name"] for one in mounted] == [piece["metadata"]["name"] for piece in made]
    paths = [one["items"][0]["path"] for one in mounted]
    assert paths == sorted(paths) and len(set(paths)) == pieces
    assert all(one["items"][0]["key"] == "piece" for one in mounted)


def test_what_is_mounted_is_what_is_made() -> None:
    secret = make.secret(JOB, {name: name.encode() for name in make.CREDENTIALS})
    files = {"petctl-agent.pyz": b"agent", "petctl-agent.rest": b"rest"}
    agent, config, code = make.agent_configs(JOB, files), make.config(JOB, "{}"), make.code_pieces(JOB, b"x", 1)
    assert base64.b64decode(secret["data"]["token"]) == b"token"
    held = {file: base64.b64decode(data) for made in agent for file, data in made["binaryData"].items()}
    assert held == files
    for job in BOTH:
        for source, made in zip(volumes(job)["agent"]["projected"]["sources"], agent, strict=True):
            assert source["configMap"]["name"] == made["metadata"]["name"]
            assert {item["key"] for item in source["configMap"]["items"]} == made["binaryData"].keys()
    size = make.size_config(JOB, 2)
    assert "immutable" not in size  # the next one must be seen
    assert {"name": size["metadata"]["name"], "items": [{"key": "wanted", "path": "wanted"}], "optional": True} in [
        source.get("configMap") for source in volumes(coordinator())["job"]["projected"]["sources"]
    ]
    record = volumes(coordinator())["job"]["projected"]["sources"][0]["configMap"]
    assert record["name"] == config["metadata"]["name"]
    assert {item["key"] for item in record["items"]} == config["data"].keys()
    kept = [secret, *agent, config, *code]
    assert all(made["immutable"] for made in kept)
    for made in (*kept, make.service(JOB)):
        assert made["metadata"]["labels"] == labels(JOB)
        assert made["metadata"]["annotations"] == {ID: JOB}


def test_a_secret_that_is_only_shown_holds_nothing_that_could_be_one() -> None:
    shown = make.secret(JOB, dict.fromkeys(make.CREDENTIALS))
    assert set(shown["data"].values()) == {make.WITHHELD}
    with pytest.raises(ValueError):
        base64.b64decode(make.WITHHELD, validate=True)


def test_an_owned_object_is_the_same_and_names_its_owner() -> None:
    known = {"apiVersion": "batch/v1", "kind": "Job"}
    owner = {**known, "metadata": {"name": "owner", "uid": "u-1", "labels": {}}}
    made = make.owned(make.service(JOB), owner)
    (reference,) = made["metadata"].pop("ownerReferences")
    assert reference == {**known, "name": "owner", "uid": "u-1"}
    assert made == make.service(JOB)


def test_an_operator_finds_what_an_elastic_job_owns() -> None:
    about = {"name": "train", "uid": "u-1"}
    owner = {"apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "metadata": about}
    (reference,) = make.owned(make.service(JOB), owner)["metadata"]["ownerReferences"]
    assert reference == {**about, "apiVersion": "petctl.dev/v1", "kind": "ElasticJob", "controller": True}


def test_an_image_without_python_has_it_from_another() -> None:
    limits = {"limits": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}}
    patch = {"spec": {"containers": [{"resources": limits}], "initContainers": [{"name": "own", "image": "o"}]}}
    wishes = WISHES._replace(agent_image="python:3.13-slim", python="python3.13", patches=[("pod", patch)])
    node = make.node_job(JOB, wishes, 1)["spec"]["template"]["spec"]
    first, own = node["initContainers"]
    assert own["name"] == "own" and first["image"] == "python:3.13-slim"
    assert first["command"] == ["python3.13", "-I", make.ARCHIVE, "copy-python", "/petctl/python"]
    assert first["resources"] == {"limits": {"cpu": "2", "memory": "1Gi"}}, "whoever takes turns needs no more"
    (main,) = node["containers"]
    assert main["image"] == WISHES.image and main["command"][0] == "/petctl/python/bin/loader"
    assert {"name": "python", "mountPath": "/petctl/python", "readOnly": True} in main["volumeMounts"]
    coordinator = make.coordinator_job(JOB, wishes, 0, [], False, suspend=False)["spec"]["template"]["spec"]
    assert "initContainers" not in coordinator and coordinator["containers"][0]["image"] == "python:3.13-slim"
    assert coordinator["containers"][0]["command"][:3] == ["python3.13", "-I", make.ARCHIVE]


def test_what_belongs_to_a_job_is_all_that_was_made_for_it() -> None:
    made = [make.service(JOB), make.node_job(JOB, WISHES, 1), make.config(JOB, "")]
    made += [
        *make.agent_configs(JOB, dict.fromkeys(make.AGENT_FILES, b"")),
        make.secret(JOB, {}),
        *make.code_pieces(JOB, b"x", 1),
    ]
    names = sorted((f"{one['kind'].lower()}s", one["metadata"]["name"]) for one in made)
    assert sorted(make.belongings(JOB, coordinator(pieces=1))) == names


@pytest.mark.parametrize("other", [f"{NAME}-agent", f"{NAME}.agent", f"{NAME}-agent-rest", f"{NAME}.agent-rest"])
def test_no_job_has_a_name_under_which_another_keeps_its_agent(other: str) -> None:
    """An ElasticJob's id is what its user calls it: `ppo` and `ppo-agent` must get along."""
    assert make.config(other, "")["metadata"]["name"] not in make.agent_names(JOB)


def test_what_kubectl_is_to_create_fits_where_it_keeps_a_copy() -> None:
    """The annotations of an object may have 262,144 bytes together."""
    (piece,) = make.code_pieces("a" * 100, bytes(make.SMALL_PIECE), 1)
    assert len(json.dumps(make.free(piece, "n" * 63))) < 0.98 * 262_144


def test_code_lies_where_the_agent_unpacks_it() -> None:
    assert make.code_directory(Code(id="a" * 64, inside="sub")) == f"/petctl/state/code/{'a' * 16}/sub"


def test_the_coordinator_goes_where_nodes_may_go_but_needs_none_of_their_means() -> None:
    spot = {"key": "spot", "operator": "Exists"}
    patch = {"spec": {"tolerations": [spot], "priorityClassName": "high", "nodeSelector": {"gpu": "yes"}}}
    wishes = WISHES._replace(patches=[("pod", patch)])
    spec = make.coordinator_pod(JOB, wishes, 0, [], False, make.COUNTED)["spec"]
    assert spot in spec["tolerations"]
    assert spec["priorityClassName"] == "high"
    assert "nodeSelector" not in spec


def test_the_coordinator_has_the_limits_that_it_is_given() -> None:
    limits = {"spec": {"containers": [{"resources": {"limits": {"cpu": "1"}}}], "nodeSelector": {"pool": "small"}}}
    pod = make.coordinator_pod(JOB, WISHES._replace(coordinator=limits), 0, [], False, [])
    (own,) = pod["spec"]["containers"]
    assert own["resources"] == {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"cpu": "1"}}
    assert pod["spec"]["nodeSelector"] == {"pool": "small"}
    with pytest.raises(UsageError, match=r"kubernetes\.coordinator\.spec\.containers: command is reserved by petctl"):
        wrong = {"spec": {"containers": [{"command": ["sh"]}]}}
        make.coordinator_pod(JOB, WISHES._replace(coordinator=wrong), 0, [], False, [])
