"""petctl operator: which cluster is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from petctl.clusters.kubernetes.commands.operator import command
from petctl.errors import UsageError


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clusters = {"west": {"kind": "kubernetes"}, "east": {"kind": "k8s"}, "here": {"kind": "local"}}
    (tmp_path / "petctl.yaml").write_text(json.dumps({"clusters": clusters}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))


@pytest.mark.parametrize("verb", ["install", "uninstall"])
@pytest.mark.parametrize(
    "cluster, sentence",
    [
        ("west", "nothing does not exist"),
        ("east", "nothing does not exist"),
        ("k8s", "nothing does not exist"),
        ("here", "here is not a Kubernetes cluster"),
        ("local", "local is not a Kubernetes cluster"),
        ("nowhere", "nowhere is not a Kubernetes cluster"),
    ],
)
def test_only_a_kubernetes_cluster_has_an_operator(verb: str, cluster: str, sentence: str) -> None:
    done = CliRunner().invoke(command, [verb, "-c", cluster])
    assert isinstance(done.exception, UsageError)
    assert sentence in str(done.exception)
