"""The development cluster itself: what later tests take for granted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.k8s.cluster.cluster import Cluster
from tests.k8s.cluster.kubectl import pod, with_torch

pytestmark = [pytest.mark.root]
ROOT = Path(__file__).resolve().parents[2]

SERVER = ["python3", "-c", "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000, bind='0.0.0.0')"]
ASK = """
import sys, time, urllib.request
end = time.monotonic() + 60
for url in sys.argv[1:]:
    while True:
        try:
            # One that begins before its node knows who is behind a service may lead nowhere: soon try another.
            print(url, urllib.request.urlopen(url, timeout=5).status)
            break
        except OSError:  # every node learns by itself, and in its own time, who is behind a service
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
"""


def finished(cluster: Cluster, namespace: str, description: dict[str, Any]) -> str:
    """Run a pod to its end; what it said."""
    kubectl, name, there = cluster.kubectl, description["metadata"]["name"], f"--namespace={namespace}"
    kubectl.apply([description], there)
    done = kubectl.attempt("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", there, "--timeout=90s")
    said = kubectl.attempt("logs", name, there).stdout
    assert done.returncode == 0, said + kubectl("describe", "pod", name, there)
    return said


@pytest.fixture
def server(cluster: Cluster, namespace: str) -> str:
    """The address of a pod on the last node that serves HTTP, behind a Service `front` and a headless one, `peers`."""
    there, image = f"--namespace={namespace}", cluster.image("3.11")
    serving = pod("server", image, SERVER, nodeName=cluster.nodes[-1], subdomain="peers", hostname="zero")
    serving["spec"]["containers"][0]["readinessProbe"] = {"tcpSocket": {"port": 8000}, "periodSeconds": 1}
    cluster.kubectl.apply([serving, service("front"), service("peers", clusterIP="None")], there)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/server", there, "--timeout=90s")
    return cluster.kubectl.get("pod", "server", there)["status"]["podIP"]


def service(name: str, **fields: Any) -> dict[str, Any]:
    """A Service that leads to the pod `server`."""
    specification = {"selector": {"name": "server"}, "ports": [{"port": 80, "targetPort": 8000}], **fields}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": specification}


@pytest.mark.parametrize("version", ["3.11", "3.9"])
def test_a_pod_of_each_image_runs_its_python(cluster: Cluster, namespace: str, version: str) -> None:
    said = finished(cluster, namespace, pod("python", cluster.image(version), ["python3", "--version"]))
    assert said.startswith(f"Python {version}.")


def test_services_names_and_pods_are_reached_from_another_node(cluster: Cluster, namespace: str, server: str) -> None:
    urls = ["http://front", f"http://zero.peers.{namespace}.svc.cluster.local:8000", f"http://{server}:8000"]
    asking = pod("asking", cluster.image("3.9"), ["python3", "-c", ASK, *urls], nodeName=cluster.nodes[0])
    assert finished(cluster, namespace, asking).splitlines() == [f"{url} 200" for url in urls]


def test_exec_and_port_forward_reach_a_pod(cluster: Cluster, namespace: str, server: str) -> None:
    said = cluster.kubectl("exec", "server", f"--namespace={namespace}", "--", "hostname")
    assert said == "zero\n"
    words = cluster.kubectl.words("port-forward", f"--namespace={namespace}", "pod/server", ":8000")
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as forwarding:
        try:
            assert forwarding.stdout is not None
            port = re.findall(r"127\.0\.0\.1:(\d+)", forwarding.stdout.readline())[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=60) as answer:
                assert answer.status == 200
        finally:
            forwarding.kill()


def test_torch_enters_a_pod_as_a_mount(own_cluster: Cluster, namespace: str) -> None:
    python = os.environ.get("PETCTL_TORCH_PYTHON", str(ROOT / ".venv-torch/bin/python"))
    if not Path(python).exists():
        pytest.skip(f"{python} does not exist; `make test-k8s` installs it")
    asking = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    asked = subprocess.run(asking, check=True, capture_output=True, text=True)
    command = ["python3", "-c", "import torch; print(torch.ones(3).sum().item())"]
    described = with_torch(pod("torch", own_cluster.image("3.11"), command), Path(asked.stdout.strip()))
    assert finished(own_cluster, namespace, described) == "3.0\n"


def test_a_kubelet_that_was_killed_comes_back_to_its_pods(own_cluster: Cluster, namespace: str, server: str) -> None:
    node = own_cluster.machine("node2")
    node.stop("kubelet")
    assert not node.runs("kubelet")
    with urllib.request.urlopen(f"http://{server}:8000", timeout=60) as answer:  # this machine has a way to pods, too
        assert answer.status == 200
    node.start_again("kubelet")
    asking = pod("after", own_cluster.image("3.11"), ["python3", "-c", ASK, f"http://{server}:8000"], nodeName="node2")
    assert finished(own_cluster, namespace, asking) == f"http://{server}:8000 200\n"
    statuses = own_cluster.kubectl.get("pod", "server", f"--namespace={namespace}")["status"]["containerStatuses"]
    assert [status["restartCount"] for status in statuses] == [0]


def test_a_pod_runs_on_a_fake_node(own_cluster: Cluster, namespace: str) -> None:
    kubectl, there = own_cluster.kubectl, f"--namespace={namespace}"
    with own_cluster.fake_nodes(3) as names:
        assert set(names) <= set(own_cluster.nodes)
        kubectl.apply([pod("pretended", "nowhere/nothing:1", ["none"], nodeName=names[0])], there)
        kubectl("wait", "--for=condition=Ready", "pod/pretended", there, "--timeout=60s")
        kubectl("delete", "pod", "pretended", there, "--now")
    assert own_cluster.nodes == ["node1", "node2"]


def test_helm_installs_a_chart(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: small\nversion: 1.0.0\n")
    template = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}"}}
    (chart / "templates" / "map.yaml").write_text(json.dumps({**template, "data": {"word": "{{ .Values.word }}"}}))
    cluster.helm("install", "first", chart, f"--namespace={namespace}", "--set=word=hello")
    assert cluster.kubectl.get("configmap", "first", f"--namespace={namespace}")["data"] == {"word": "hello"}
    cluster.helm("uninstall", "first", f"--namespace={namespace}")


def test_a_second_cluster_is_refused_in_words(own_cluster: Cluster) -> None:
    words = [sys.executable, "-m", "tests.k8s.cluster", "up"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "a cluster is up already" in done.stderr and str(own_cluster.kubeconfig) in done.stderr
    assert own_cluster.kubectl("get", "--raw=/readyz") == "ok"
