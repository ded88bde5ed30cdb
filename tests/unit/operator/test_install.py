"""The operator's own objects: their order, the rights they grant, and that Helm's chart can hold them."""

from __future__ import annotations

import base64
import importlib.util
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import petctl
from petctl.clusters.agent_archive import operator_bytes
from petctl.clusters.kubernetes.operator.install.objects import (
    MINE,
    NAME,
    UNPACKED,
    InstallOptions,
    objects,
    operator,
    rules_for_jobs,
)

ROOT = Path(__file__).parents[3]


def kinds(wishes: InstallOptions) -> list[tuple[str, str]]:
    return [(thing["kind"], thing["metadata"].get("namespace", "")) for thing in objects(wishes, b"archive")]


def test_what_others_need_comes_before_them() -> None:
    assert kinds(InstallOptions()) == [
        ("Namespace", ""),
        ("CustomResourceDefinition", ""),
        ("ClusterRole", ""),
        ("ClusterRole", ""),
        ("ServiceAccount", "petctl-system"),
        ("ClusterRole", ""),
        ("ClusterRoleBinding", ""),
        ("Role", "petctl-system"),
        ("RoleBinding", "petctl-system"),
        ("Lease", "petctl-system"),
        ("ConfigMap", "petctl-system"),
        ("Deployment", "petctl-system"),
    ]


def test_an_operator_of_one_namespace_has_no_rights_elsewhere() -> None:
    there = InstallOptions(namespace="team", only_namespace="team")
    assert [kind for kind, _ in kinds(there)][:4] == [
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRole",
        "ServiceAccount",
    ]
    bound = [thing for thing in objects(there, b"") if thing["kind"].endswith("Binding")]
    assert [(thing["kind"], thing["metadata"]["namespace"]) for thing in bound] == [("RoleBinding", "team")] * 2
    (deployment,) = (thing for thing in objects(there, b"") if thing["kind"] == "Deployment")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["command"][-2:] == ["--namespace", "team"]
    apart = kinds(InstallOptions(namespace="tools", only_namespace="team"))
    assert ("Namespace", "") in apart and ("Role", "team") in apart and ("Role", "tools") in apart


def test_an_operator_in_another_namespace_has_rights_of_its_own() -> None:
    """A binding has one subject here: under one name, the second would take the first one's rights away."""

    def bindings(wishes: InstallOptions) -> set[str]:
        return {thing["metadata"]["name"] for thing in objects(wishes, b"") if thing["kind"] == "ClusterRoleBinding"}

    assert bindings(InstallOptions()) == {NAME}
    assert bindings(InstallOptions(namespace="other")) == {f"{NAME}.other"}


def test_no_two_operators_share_a_role() -> None:
    """Also where one lives in the namespace that another one looks after from elsewhere."""
    found: dict[tuple[str, str, str], InstallOptions] = {}
    for home in ("petctl-system", "team", "tools"):
        for only in ("", "petctl-system", "team", "tools"):
            wishes = InstallOptions(namespace=home, only_namespace=only)
            for thing in operator(wishes, b""):
                about = thing["metadata"]
                if not thing["kind"].endswith(("Role", "RoleBinding")) or about["name"].endswith("-lease"):
                    continue
                other = found.setdefault((thing["kind"], about.get("namespace", ""), about["name"]), wishes)
                assert other.namespace == home, f"{wishes} and {other} share {thing['kind']} {about['name']}"


def test_only_whoever_looks_after_all_namespaces_sees_machines() -> None:
    def named(rules: list[dict[str, Any]]) -> set[str]:
        return {name for rule in rules for name in rule["resources"]}

    assert named(rules_for_jobs(False)) - named(rules_for_jobs(True)) == {"nodes"}
    for rule in [*rules_for_jobs(False), *rules_for_jobs(True)]:
        assert "*" not in [*rule["resources"], *rule["verbs"], *rule["apiGroups"]]


def test_everything_is_found_by_its_label_and_nothing_is_taken_for_a_part_of_a_job() -> None:
    for thing in objects(InstallOptions(), b""):
        found = thing["metadata"]["labels"]
        assert MINE.items() <= found.items()
        assert "app.kubernetes.io/managed-by" not in found


def test_another_archive_makes_other_pods() -> None:
    def template(archive: bytes) -> Any:
        return objects(InstallOptions(), archive)[-1]["spec"]["template"]

    assert template(b"one") == template(b"one") != template(b"other")


def test_the_archive_is_whole() -> None:
    (config,) = (thing for thing in objects(InstallOptions(), operator_bytes(UNPACKED)) if thing["kind"] == "ConfigMap")
    assert base64.b64decode(config["binaryData"][f"{NAME}.pyz"]) == operator_bytes(UNPACKED)
    assert len(json.dumps(config)) < 1_000_000


def test_helm_can_keep_a_release() -> None:
    """In a Secret, compressed and then as text, both in the chart and in what became of it; that may have 1 MiB."""
    assert 2 * len(operator_bytes(UNPACKED)) * 4 / 3 < 0.9 * (1 << 20)


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """As `make chart` builds it."""
    found = importlib.util.spec_from_file_location("build_chart", ROOT / "charts" / "build.py")
    assert found is not None and found.loader is not None
    build = importlib.util.module_from_spec(found)
    found.loader.exec_module(build)
    made: Path = build.build(tmp_path / "charts")
    assert made.read_bytes() == build.build(tmp_path / "again").read_bytes()
    return made


def test_the_chart_has_the_archive_the_definition_and_the_version_of_this_petctl(chart: Path) -> None:
    with tarfile.open(chart) as archive:
        files = {name.partition("/")[2]: archive.extractfile(name) for name in archive.getnames()}
        texts = {name: file.read() for name, file in files.items() if file is not None}
    assert chart.name == f"petctl-operator-{petctl.__version__}.tgz"
    about = yaml.safe_load(texts["Chart.yaml"])
    assert str(about["version"]) == str(about["appVersion"]) == petctl.__version__
    assert texts["files/petctl-operator.pyz"] == operator_bytes(UNPACKED)
    assert yaml.safe_load(texts["crds/elasticjobs.petctl.dev.yaml"]) == objects(InstallOptions(), b"")[1]
