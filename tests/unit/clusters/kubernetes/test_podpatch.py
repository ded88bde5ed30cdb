"""Pieces of pod templates in a template."""

from __future__ import annotations

from typing import Any

import pytest

from petctl.clusters.kubernetes.pods.template_merge import patched
from petctl.errors import UsageError

TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [{"name": "petctl", "image": "i", "volumeMounts": [{"mountPath": "/petctl/state", "name": "s"}]}],
        "volumes": [{"name": "s", "emptyDir": {}}],
        "tolerations": [{"key": "gone", "tolerationSeconds": 10}],
    },
}


def test_what_has_a_name_is_merged_and_the_rest_added() -> None:
    patch: dict[str, Any] = {
        "metadata": {"labels": {"b": "2"}},
        "spec": {
            "nodeSelector": {"gpu": "yes"},
            "containers": [{"resources": {"limits": {"cpu": 2}}, "volumeMounts": [{"mountPath": "/d", "name": "d"}]}],
            "volumes": [{"name": "d", "hostPath": {"path": "/d"}}],
            "tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "gone", "tolerationSeconds": 60}],
        },
    }
    result = patched(TEMPLATE, patch, "pod")
    (container,) = result["spec"]["containers"]
    assert result["metadata"]["labels"] == {"a": "1", "b": "2"}
    assert container["image"] == "i" and container["resources"] == {"limits": {"cpu": 2}}
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/petctl/state", "/d"]
    assert [volume["name"] for volume in result["spec"]["volumes"]] == ["s", "d"]
    assert result["spec"]["tolerations"] == [{"key": "gone", "tolerationSeconds": 60}, patch["spec"]["tolerations"][0]]
    assert result["spec"]["nodeSelector"] == {"gpu": "yes"}
    assert "d" not in str(TEMPLATE["spec"]["volumes"])


def test_two_tolerations_of_one_key_stay_two_and_one_without_a_key_joins_them() -> None:
    new = [{"key": "spot", "effect": "NoSchedule"}, {"key": "spot", "effect": "NoExecute"}, {"operator": "Exists"}]
    result = patched(TEMPLATE, {"spec": {"tolerations": new}}, "pod")
    assert result["spec"]["tolerations"] == [*TEMPLATE["spec"]["tolerations"], *new]


def test_another_container_stands_beside() -> None:
    result = patched(TEMPLATE, {"spec": {"containers": [{"name": "side", "image": "x", "command": ["run"]}]}}, "pod")
    assert [container["name"] for container in result["spec"]["containers"]] == ["petctl", "side"]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"kind": "Pod"}, r"pod\.kind: a pod template has metadata and spec"),
        ({"spec": ["x"]}, r"pod\.spec must be a mapping, not list"),
        ({"spec": {"containers": {"image": "x"}}}, r"pod\.spec\.containers must be a list of mappings"),
        ({"spec": {"containers": ["x"]}}, r"pod\.spec\.containers must be a list of mappings"),
        ({"spec": {"containers": [{"command": ["x"]}]}}, "command is reserved by petctl"),
        ({"spec": {"restartPolicy": "Always"}}, r"pod\.spec\.restartPolicy"),
    ],
)
def test_what_would_break_the_node_is_refused(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        patched(TEMPLATE, patch, "pod")
