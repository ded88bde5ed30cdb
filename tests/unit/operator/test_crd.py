"""The ElasticJob's definition as data; what a server makes of it is tested on a real one (tests/k8s/test_crd.py)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Iterator

from petctl.clusters.kubernetes.operator.elasticjob import read_job
from petctl.clusters.kubernetes.operator.install.crd import crd
from petctl.clusters.kubernetes.operator.install.template import OF_CONTAINERS, OF_PODS

DOCS = Path(__file__).parents[3] / "docs"
(VERSION,) = crd()["spec"]["versions"]
SCHEMA: dict[str, Any] = VERSION["schema"]["openAPIV3Schema"]


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field of an object in the schema."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from walk(field, f"{path}.{name}")
        yield from walk(field.get("items", {}), f"{path}.{name}[]")


def test_every_field_is_explained() -> None:
    texts = {path: field.get("description", "") for path, field in walk(SCHEMA)}
    plain = {path for path in texts if path.startswith(".spec.template.metadata.")}  # labels and annotations
    assert [path for path in texts if not texts[path] and path not in plain] == []
    assert len(texts) > 60


def test_every_rule_says_what_to_do_in_one_line() -> None:
    rules = [rule for _, field in walk(SCHEMA) for rule in field.get("x-kubernetes-validations", ())]
    assert len(rules) > 10
    for rule in rules:
        assert set(rule) == {"rule", "message"} and "\n" not in rule["message"] and len(rule["message"]) < 200
        assert not rule["message"].endswith(".")


def test_whoever_reads_a_job_fills_in_what_the_server_does() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    defaults = {name: field["default"] for name, field in spec.items() if "default" in field}
    assert defaults == {
        "suspend": False,
        "cleanPodPolicy": "Running",
        "backoffLimit": 3,
        "restartPolicy": "OnFailure",
        "procsPerNode": 1,
        "launcher": "elastic",
        "python": "python3",
        "agentImage": "",
        "warm": True,
    }
    about = {"name": "job", "namespace": "team", "uid": "1"}
    bare, filled = (read_job({"metadata": about, "spec": spec}) for spec in [dict[str, Any](template={}), defaults])
    for name in ("restarts", "retry_on", "suspended", "least", "most"):
        assert getattr(bare, name) == getattr(filled, name)


def test_a_job_has_a_largest_size() -> None:
    """One object must not be able to ask for millions of pods."""
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert {spec[name]["maximum"] for name in ("replicas", "minReplicas", "maxReplicas")} == {10_000}


def test_what_a_pod_can_have_is_known_by_name_once() -> None:
    for names in (OF_PODS.split(), OF_CONTAINERS.split()):
        assert len(names) == len(set(names)) > 20
    pod = SCHEMA["properties"]["spec"]["properties"]["template"]["properties"]["spec"]
    assert {"containers", "restartPolicy", *OF_PODS.split()} == set(pod["properties"])


def test_nothing_is_empty() -> None:
    """Servers leave that out, and find another definition each time that it is applied."""
    assert [path for path, field in walk(SCHEMA) if {} in field.values() or [] in field.values()] == []


def test_columns_are_fields_that_there_are() -> None:
    paths = {path for path, _ in walk(SCHEMA)}
    columns = {column["name"]: column["jsonPath"] for column in VERSION["additionalPrinterColumns"]}
    assert list(columns) == ["Min", "Max", "Wanted", "Ready", "State", "Cause", "Age", "Message"]
    assert set(columns.values()) - paths == {".metadata.creationTimestamp"}
    assert set(VERSION["subresources"]["scale"].values()) <= paths


def test_the_guide_names_every_field_and_shows_the_example_as_it_is() -> None:
    guide = (DOCS / "operator.md").read_text()
    assert [name for name in SCHEMA["properties"]["spec"]["properties"] if f"\n| `{name}` |" not in guide] == []
    example = (DOCS / "kubernetes" / "elasticjob.yaml").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)
    assert shown == "".join(line for line in example.splitlines(keepends=True) if not line.startswith("#"))


def test_it_is_fresh_each_time_and_fits_where_kubectl_keeps_a_copy() -> None:
    crd()["metadata"]["name"] = "changed"
    assert crd()["metadata"]["name"] == "elasticjobs.petctl.dev"
    assert len(json.dumps(crd())) < 100_000
