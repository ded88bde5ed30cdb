"""What `petctl render` prints for Kubernetes: nothing secret unless asked, and nothing but what `submit` creates."""

from __future__ import annotations

import base64
import copy
import json
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from petctl.cli.group import petctl
from petctl.clusters.kubernetes.backend import KubernetesBackend
from petctl.clusters.kubernetes.job_status import OUTCOME
from petctl.clusters.kubernetes.pods import manifests
from petctl.clusters.managed import ManagedCluster
from petctl.controller.job_files import GRANTS
from petctl.errors import UsageError
from petctl.job.spec import Job
from petctl.jobs import render
from petctl.jobs.registry import Registry
from petctl.kube.api import Items
from petctl.kube.failures import NoSuchObject, ObjectExists

MARK = b"known to nobody else"
JOB = Job(script="train.py", nodes="1:3", secrets={"KEY": "wandb"})
MAPS = "/api/v1/namespaces/research/configmaps"
AGENT = f"{MAPS}/agent"
USERS = "/api/v1/namespaces/research/secrets/petctl-secrets"


class Objects:
    """A namespace in memory, as far as creating, looking and deleting go; it deletes nothing that is owned."""

    access = SimpleNamespace(namespace="research")

    def __init__(self) -> None:
        self.held: dict[str, dict[str, Any]] = {USERS: {"metadata": {"name": "petctl-secrets"}, "data": {"wandb": ""}}}

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if f"{path}/{body['metadata']['name']}" in self.held:
            raise ObjectExists(path)
        made = copy.deepcopy(body)
        made["metadata"] = {**made["metadata"], "uid": f"uid-{len(self.held)}"}
        self.held[f"{path}/{body['metadata']['name']}"] = made
        return made

    def get(self, path: str) -> dict[str, Any]:
        if path not in self.held:
            raise NoSuchObject(path)
        return self.held[path]

    def list(self, path: str, selector: str) -> Items:
        return Items()

    def patch(self, path: str, body: dict[str, Any], kind: str = "merge") -> dict[str, Any]:
        found = self.get(path)
        found.setdefault("spec", {}).update(body.get("spec", {}))
        if kind == "strategic":
            found["metadata"]["ownerReferences"] += body["metadata"]["ownerReferences"]
        return found

    def delete(self, path: str) -> None:
        self.get(path)
        del self.held[path]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script, and a petctl.yaml with a cluster that nobody can reach."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("print('hello')\n")
    context = {"name": "there", "context": {"cluster": "there", "user": "me"}}
    known = {
        "current-context": "there",
        "contexts": [context],
        "clusters": [{"name": "there", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "me", "user": {"token": "opens-the-cluster"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(known))
    settings = {"namespace": "research", "image": "python:3.11"}
    (tmp_path / "project" / "petctl.yaml").write_text(json.dumps({"clusters": {"k8s": settings}}))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("PETCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def cluster(project: Path, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> ManagedCluster[KubernetesBackend]:
    """The cluster, with a namespace in memory and a clock that stands still."""
    monkeypatch.setattr("petctl.clusters.building.time", SimpleNamespace(time=lambda: 1.0))
    found = ManagedCluster(
        KubernetesBackend(project / "home", {"name": "k8s", "image": "python:3.11", "python": "python3.11"})
    )
    found.backend.__dict__["_api"] = objects
    return found


def created(objects: Objects) -> dict[str, Any]:
    """All that the job consists of, by path, without what cannot be known before and what is random."""
    found: dict[str, Any] = {}
    for path, made in objects.held.items():
        if path != USERS:
            shown = copy.deepcopy(made)
            for name in ("uid", "ownerReferences", "namespace"):
                shown["metadata"].pop(name, None)
            if not shown.get("spec", {}).get("suspend", True):
                del shown["spec"]["suspend"]
            if shown["kind"] == "Secret":
                shown["data"] = sorted(shown["data"])
            if "job.json" in shown.get("data", {}):
                record = json.loads(shown["data"]["job.json"])
                record["request"].pop("agent")
                shown["data"] = record
            if (
                shown.get("binaryData", {}).keys() & manifests.AGENT_FILES.keys()
            ):  # one that jobs share, or the job's own
                found.setdefault(AGENT, {}).update(shown["binaryData"])
            else:
                found[path] = shown
    return found


def agents(objects: Objects) -> set[str]:
    """The ConfigMaps from which the pods of Jobs have the agent."""
    templates = [made["spec"]["template"] for made in objects.held.values() if made.get("kind") == "Job"]
    found = [volume for template in templates for volume in template["spec"]["volumes"] if volume["name"] == "agent"]
    names = set()
    for volume in found:
        sources = volume.pop("projected", {"sources": [volume]})["sources"]
        names |= {source["configMap"].pop("name") for source in sources}
        volume["configMap"] = {"items": [item for source in sources for item in source["configMap"]["items"]]}
    return names


def apply(objects: Objects, printed: list[dict[str, Any]]) -> None:
    for manifest in printed:
        group = "apis/batch/v1" if manifest["kind"] == "Job" else "api/v1"
        objects.create(f"/{group}/namespaces/{manifest['metadata']['namespace']}/{manifest['kind'].lower()}s", manifest)


@pytest.mark.parametrize("with_secrets", [False, True])
def test_what_is_rendered_is_what_submit_creates(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, with_secrets: bool
) -> None:
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    applied = Objects()
    apply(applied, cluster.backend.manifests(JOB, "train-22aa", with_secrets))
    (shared,), own = agents(objects), agents(applied)
    parts = [part for name in own for part in applied.held[f"{MAPS}/{name}"]["binaryData"].items()]
    assert objects.held[f"{MAPS}/{shared}"]["binaryData"] == dict(parts) and len(parts) == 2
    assert created(applied) == created(objects)
    assert len(created(applied)) == 7
    assert all("ownerReferences" not in made["metadata"] for made in applied.held.values())


def test_the_coordinator_is_awake_before_nodes_are_made(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a quota has room for a few pods only, nodes would take it all, and nobody would lead them."""
    create, asleep = objects.create, []

    def watched(path: str, body: dict[str, Any]) -> dict[str, Any]:
        if body["metadata"]["name"].endswith("-node"):
            asleep.append(objects.held[f"{path}/train-22aa-coordinator"]["spec"]["suspend"])
        return create(path, body)

    monkeypatch.setattr(objects, "create", watched)
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    assert asleep == [False]


def test_what_is_rendered_is_small_enough_for_kubectl_apply(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, project: Path
) -> None:
    """It keeps a copy of each object in an annotation, and annotations have 262,144 bytes. Submitting takes fewer."""
    (project / "project" / "data").write_bytes(random.Random(1).randbytes(1_000_000))
    printed = cluster.backend.manifests(JOB, "train-22aa", True)
    assert max(len(json.dumps(manifest)) for manifest in printed) < 262_144
    pieces = [made["metadata"]["name"] for made in printed if "-code-" in made["metadata"]["name"]]
    assert len(pieces) == 6
    held = [made["metadata"]["name"] for made in printed if made["kind"] in ("Secret", "ConfigMap")]
    assert held[-1] == "train-22aa"  # whoever finds the record relies on the others
    apply(objects, printed)
    end(objects, "train-22aa")
    cluster.remove("train-22aa")
    assert list(objects.held) == [USERS]
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    assert sum("-code-" in name for name in objects.held) == 2


def test_a_script_that_the_image_has_runs_where_it_lies(project: Path) -> None:
    command = CliRunner().invoke(petctl, ["render", "-c", "k8s", "--no-upload", "/opt/app", "train.py", "--lr", "0.1"])
    assert command.exit_code == 0, command.output
    objects = list(yaml.safe_load_all(command.stdout))
    record = next(json.loads(made["data"]["job.json"]) for made in objects if "job.json" in made.get("data", {}))
    task = record["task"]
    assert (task["cwd"], task["words"], task["code"]["id"]) == ("/opt/app", ["train.py", "--lr", "0.1"], "")
    assert not any("-code-" in made["metadata"]["name"] for made in objects)


@pytest.mark.parametrize("place", ["./d", "d"])
@pytest.mark.parametrize("is_here", [True, False])
def test_a_relative_place_is_refused_with_the_absolute_one(project: Path, place: str, is_here: bool) -> None:
    here = project / "project" / "d"
    if is_here:
        here.mkdir()
    command = CliRunner().invoke(petctl, ["render", "-c", "k8s", "--no-upload", place, "train.py"])
    if place == "d" and not is_here:  # a program of the image
        assert command.exit_code == 0
    else:
        assert isinstance(command.exception, UsageError)
        assert f"the job's directory {place} is relative" in str(command.exception)
        assert f"such as {here}, or" in str(command.exception)


def test_no_secret_is_printed_unless_asked_for(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("token", "tls.crt", "tls.key", "join.json")
    monkeypatch.setattr("petctl.clusters.kubernetes.payload.new_credentials", lambda *words: dict.fromkeys(names, MARK))
    coded = base64.b64encode(MARK).decode()
    for output in ("yaml", "json"):
        text = render(JOB, "k8s", output)
        assert coded not in text and MARK.decode() not in text and "opens-the-cluster" not in text
        assert text.count("--with-secrets prints it") == len(names)
        assert render(JOB, "k8s", output, with_secrets=True).count(coded) == len(names)


def test_yaml_says_that_it_is_incomplete_and_only_then(project: Path) -> None:
    incomplete = render(JOB, "k8s")
    assert incomplete.startswith("# Secret values are left out") and "--with-secrets" in incomplete.splitlines()[0]
    assert "#" not in render(JOB, "k8s", with_secrets=True).splitlines()[0]
    assert next(made["kind"] for made in yaml.safe_load_all(incomplete)) == "Secret"
    whole = json.loads(render(JOB, "k8s", "json"))
    assert (whole["apiVersion"], whole["kind"], len(whole["items"])) == ("v1", "List", 8)


def test_a_rendered_job_is_looked_for_where_it_was_rendered_for(project: Path) -> None:
    render(JOB, "k8s")
    assert Registry(project / "home").clusters() == ["k8s"]


def test_a_withheld_value_is_no_base64() -> None:
    with pytest.raises(ValueError):
        base64.b64decode(manifests.WITHHELD, validate=True)


def test_every_rendered_job_has_an_id_of_its_own(project: Path) -> None:
    ids = {next(yaml.safe_load_all(render(JOB, "k8s")))["metadata"]["name"] for _ in range(3)}
    assert len(ids) == 3 and not any(name.endswith("-0000") for name in ids)


def test_this_machine_shows_the_record_and_has_nothing_to_add(project: Path) -> None:
    record = yaml.safe_load(render(Job(script="train.py")))
    assert record["id"] == "train-0000"
    with pytest.raises(UsageError, match="leave --with-secrets out"):
        render(Job(script="train.py"), with_secrets=True)


def end(objects: Objects, job_id: str) -> None:
    outcome = json.dumps({"outcome": {"state": "succeeded", "code": 0, "sentence": "done"}})
    owner = objects.held[f"/apis/batch/v1/namespaces/research/jobs/{job_id}-coordinator"]
    owner["metadata"]["annotations"][OUTCOME] = outcome


def test_all_of_a_job_without_owner_is_deleted(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    apply(objects, cluster.backend.manifests(JOB, "train-22aa", True))
    end(objects, "train-22aa")
    cluster.remove("train-22aa")
    assert list(objects.held) == [USERS]


def test_what_a_job_only_mounts_is_not_deleted(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    theirs = {"kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "research"}}
    printed = copy.deepcopy(cluster.backend.manifests(JOB, "train-22aa", True))
    coordinator = next(made for made in printed if made["metadata"]["name"] == "train-22aa-coordinator")
    mounted = {"name": "more", "projected": {"sources": [{"configMap": {"name": "settings"}}]}}
    coordinator["spec"]["template"]["spec"]["volumes"].append(mounted)
    apply(objects, [*printed, theirs])
    end(objects, "train-22aa")
    cluster.remove("train-22aa")
    assert list(objects.held) == [USERS, "/api/v1/namespaces/research/configmaps/settings"]


@pytest.mark.parametrize("missing", ["Secret", "ConfigMap", "Service"])
def test_what_was_created_of_half_a_job_is_deleted(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, missing: str
) -> None:
    printed = cluster.backend.manifests(JOB, "train-22aa", True)
    apply(objects, [manifest for manifest in printed if manifest["kind"] != missing])
    end(objects, "train-22aa")
    cluster.remove("train-22aa")
    assert list(objects.held) == [USERS]


def test_jobs_share_the_agent_and_all_own_it(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    for job in ("train-22aa", "train-22bb"):
        cluster.submit(cluster.build_record(JOB, job))
    (shared,) = agents(objects)
    made = objects.held[f"{MAPS}/{shared}"]
    owners = [owner["name"] for owner in made["metadata"]["ownerReferences"]]
    assert owners == ["train-22aa-coordinator", "train-22bb-coordinator"] and made["immutable"]
    assert f"{MAPS}/train-22aa.agent" not in objects.held


def test_an_agent_that_is_collected_meanwhile_is_made_anew(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    (shared,), patch = agents(objects), objects.patch

    def collected(path: str, body: dict[str, Any], kind: str = "merge") -> dict[str, Any]:
        if path == f"{MAPS}/{shared}":
            objects.held.pop(path, None)  # by the server, which has seen its last owner go
        return patch(path, body, kind)

    monkeypatch.setattr(objects, "patch", collected)
    cluster.submit(cluster.build_record(JOB, "train-22bb"))
    (owner,) = objects.held[f"{MAPS}/{shared}"]["metadata"]["ownerReferences"]
    assert owner["name"] == "train-22bb-coordinator"


def test_another_ones_agent_is_not_used(cluster: ManagedCluster[KubernetesBackend], objects: Objects) -> None:
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    (shared,) = agents(objects)
    objects.held[f"{MAPS}/{shared}"]["binaryData"] = {"petctl-agent.pyz": "ZXZpbA=="}
    with pytest.raises(UsageError, match="was changed since petctl created it"):
        cluster.submit(cluster.build_record(JOB, "train-22bb"))
    assert not [path for path in objects.held if "train-22bb-coordinator" in path]


@pytest.mark.parametrize("operated", [False, True])
def test_a_time_to_live_is_the_owners(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects, operated: bool
) -> None:
    cluster.backend.settings = {**cluster.backend.settings, "operator": operated, "ttl_after_finished": "1d"}
    first, *others = cluster.build_record(JOB, "train-22aa").request["objects"]
    assert first["spec"]["ttlSecondsAfterFinished"] == 86_400
    assert not any("ttlSecondsAfterFinished" in made.get("spec", {}) for made in others)
    printed = cluster.backend.manifests(
        JOB, "train-22aa", False
    )  # which nothing owns, so it would leave the rest behind
    assert not any("ttlSecondsAfterFinished" in made.get("spec", {}) for made in printed)


def test_of_a_submitted_job_only_the_owner_is_deleted(
    cluster: ManagedCluster[KubernetesBackend], objects: Objects
) -> None:
    cluster.submit(cluster.build_record(JOB, "train-22aa"))
    before = set(objects.held)
    end(objects, "train-22aa")
    cluster.remove("train-22aa")
    assert before - set(objects.held) == {"/apis/batch/v1/namespaces/research/jobs/train-22aa-coordinator"}


def test_keys_of_a_store_are_as_secret_as_the_token(
    cluster: ManagedCluster[KubernetesBackend], monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    asked = "petctl.clusters.kubernetes.backend.check_stores"
    monkeypatch.setattr(asked, lambda record, home: checked.append(record.id))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "opens-the-store")
    job = Job(script="train.py", store="s3://bucket/runs")
    incomplete = cluster.backend.manifests(job, "train-22aa", False)
    assert incomplete[0]["data"][GRANTS] == manifests.WITHHELD
    assert "opens-the-store" not in json.dumps(incomplete) and not checked
    whole = cluster.backend.manifests(job, "train-22aa", True)
    assert b"opens-the-store" in base64.b64decode(whole[0]["data"].pop(GRANTS))
    assert "opens-the-store" not in json.dumps(whole[1:])
    assert checked == ["train-22aa"]  # nobody else would send the code
