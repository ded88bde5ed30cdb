"""Going up: keys, machines, programs, in the order in which they need each other, and the proof that pods run."""

from __future__ import annotations

import concurrent.futures
import functools
import ssl
import time
import urllib.request
from pathlib import Path

from tests.k8s.cluster import cgroups, images, network, packages, programs, settings
from tests.k8s.cluster.cache import say
from tests.k8s.cluster.certificates import Authority, Pair, signing_keys
from tests.k8s.cluster.cluster import Cluster, kubeconfig_of
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.kubectl import pod
from tests.k8s.cluster.ledger import Ledger
from tests.k8s.cluster.machine import Machine
from tests.k8s.cluster.waiting import until

_MASTERS = ("system:masters",)
_PROBE = """
import socket, sys
socket.create_connection(("kubernetes.default.svc.cluster.local", 443), 10).close()
print("Python", sys.version.split()[0])
"""


def prepare() -> Path:
    """Everything that is made once: packages, programs, images; where these are."""
    packages.require()
    programs.directory()
    return images.containerd_root()


def bring_up(state: Path) -> Cluster:
    """A cluster that has proved itself. Where that fails, what was started is in the ledger."""
    _check_place(state)
    unpacked = prepare()
    begun = time.monotonic()
    book = Ledger.open_new(state)
    _make_keys(state)
    book.record.links = network.links()
    book.record.cgroups = [settings.cgroup(node) for node in network.NODES]
    book.write()
    for group in book.record.cgroups:
        cgroups.make(group)
    network.make_bridge()
    control = Machine("control", book)
    control.boot()
    nodes = [Machine(name, book) for name in network.NODES]
    for node in nodes:
        node.boot()
    say("starting the control plane")
    with concurrent.futures.ThreadPoolExecutor() as threads:
        waiting = [threads.submit(_start_runtime, node, unpacked) for node in nodes]
        _start_control_plane(control, state)
        cluster = Cluster(kubeconfig_of(state), book)
        cluster.kubectl.apply(settings.name_service())
        control.start("coredns", [programs.program("coredns"), "-conf", _write(control, "Corefile", _corefile(state))])
        for future in waiting:
            future.result()
    for node in nodes:
        _start_node(node, state)
    _prove(cluster, control, nodes)
    book.record.ready = True
    book.write()
    say(f"the cluster is up, {time.monotonic() - begun:.0f} s after its first process")
    return cluster


def _check_place(state: Path) -> None:
    for own in ("/var", "/run"):
        if state.is_relative_to(own):
            raise ClusterError(
                f"{state} is in {own}, which nodes have of their own; set PETCTL_DEV_CACHE to another place"
            )
    others = network.existing()
    if others:
        raise ClusterError(
            f"the links {', '.join(others)} exist, and no cluster in {state} made them; "
            f"if another user's cluster is up, take that down, else remove them: ip link delete {others[0]}"
        )


def _make_keys(state: Path) -> None:
    """Certificates for servers and kubeconfigs for clients, all signed by an authority that nobody else knows."""
    keys = state / "keys"
    keys.mkdir(mode=0o700)
    authority = Authority()
    _write_pair(keys, "ca", Pair(authority.certificate, authority.key))
    _write_pair(keys, "accounts", signing_keys())
    _write_pair(keys, "api-server", authority.issue("kube-apiserver", hosts=settings.api_hosts()))
    _write_pair(keys, "api-server-to-kubelets", authority.issue("kube-apiserver-to-kubelets", _MASTERS))
    for node, address in network.NODES.items():
        _write_pair(keys, node, authority.issue(f"system:node:{node}", ("system:nodes",), (node, address)))
    users = {
        "controller-manager": ("system:kube-controller-manager", ()),
        "scheduler": ("system:kube-scheduler", ()),
        "proxy": ("system:kube-proxy", ()),
        "coredns": ("coredns", ()),
        **{node: (f"system:node:{node}", ("system:nodes",)) for node in network.NODES},
    }
    for name, (user, groups) in users.items():
        pair = authority.issue(user, groups)
        _private(keys / f"{name}.kubeconfig", settings.kubeconfig(authority.certificate, user, pair).encode())
    admin = settings.kubeconfig(authority.certificate, "admin", authority.issue("admin", _MASTERS))
    _private(kubeconfig_of(state), admin.encode())


def _start_control_plane(control: Machine, state: Path) -> None:
    keys = state / "keys"
    control.start("etcd", [programs.program("etcd"), *settings.etcd()])
    control.start("kube-apiserver", [programs.program("kube-apiserver"), *settings.api_server(keys)])
    needed = ("etcd", "kube-apiserver")
    healthy = functools.partial(_answers, control, f"{settings.API}/readyz", needed, keys / "ca.crt")
    until(healthy, "the API server is ready", 180, 0.1)
    say("the API server is ready")
    manager = settings.controller_manager(keys, keys / "controller-manager.kubeconfig")
    control.start("kube-controller-manager", [programs.program("kube-controller-manager"), *manager])
    control.start(
        "kube-scheduler", [programs.program("kube-scheduler"), *settings.scheduler(keys / "scheduler.kubeconfig")]
    )


def _answers(machine: Machine, url: str, needed: tuple[str, ...], authority: Path | None = None) -> bool:
    """Whether there is a good answer at an address; raises where a program that it needs has ended."""
    for name in needed:
        if not machine.runs(name):
            raise ClusterError(f"{machine.name}: {name} has ended:\n{machine.log(name)}")
    trusting = ssl.create_default_context(cafile=authority)
    try:
        with urllib.request.urlopen(url, timeout=5, context=trusting) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _start_runtime(node: Machine, unpacked: Path) -> None:
    """containerd, with all images in it."""
    place, text = settings.pod_network(node.name)
    inside = node.directory / place.relative_to("/")  # the node's /var, seen from here
    inside.parent.mkdir(parents=True)
    inside.write_text(text)
    images.copy(unpacked / "root", node.directory / "var" / "lib" / "containerd")
    configuration = _write(node, "containerd.toml", settings.containerd())
    node.start("containerd", [packages.program("containerd"), "--config", configuration])
    client = [packages.program("ctr"), f"--address={settings.CONTAINERD}", "--namespace=k8s.io"]
    until(lambda: _takes_calls(node, [*client, "version"]), f"{node.name}: containerd answers", 60, 0.1)


def _takes_calls(node: Machine, words: list[object]) -> bool:
    if not node.runs("containerd"):
        raise ClusterError(f"{node.name}: containerd has ended:\n{node.log('containerd')}")
    try:
        node.run(words)
    except ClusterError:
        return False
    return True


def _start_node(node: Machine, state: Path) -> None:
    keys = state / "keys"
    kubelet = _write(node, "kubelet.yaml", settings.kubelet(keys, node.name))
    arguments = settings.kubelet_arguments(node.name, kubelet, keys / f"{node.name}.kubeconfig")
    node.start("kubelet", [programs.program("kubelet"), *arguments])
    proxy = _write(node, "kube-proxy.yaml", settings.proxy(node.name, keys / "proxy.kubeconfig"))
    node.start("kube-proxy", [programs.program("kube-proxy"), f"--config={proxy}"])


def _prove(cluster: Cluster, control: Machine, nodes: list[Machine]) -> None:
    """Both nodes are ready, and on each a pod finds the API server by the name of its Service."""
    kubectl = cluster.kubectl
    for node in nodes:
        done = kubectl.attempt("wait", "--for=create", f"node/{node.name}", "--timeout=120s")
        done = kubectl.attempt("wait", "--for=condition=Ready", f"node/{node.name}", "--timeout=120s")
        if done.returncode != 0:
            raise ClusterError(f"{node.name} is not ready ({done.stderr.strip()}); its kubelet:\n{node.log('kubelet')}")
    names = functools.partial(_answers, control, settings.NAMES_READY, ("coredns", "kube-controller-manager"))
    until(names, "CoreDNS knows the cluster's names", 60, 0.1)
    say("both nodes are ready; one pod of each image proves it")
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=120s")
    probes = {f"probe-{node.name}": (node, version) for node, version in zip(nodes, images.PYTHON)}
    kubectl.apply(
        pod(name, cluster.image(version), ["python3", "-c", _PROBE], nodeName=node.name)
        for name, (node, version) in probes.items()
    )
    for name, (node, version) in probes.items():
        done = kubectl.attempt(
            "wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated}", f"pod/{name}", "--timeout=120s"
        )
        said = kubectl.attempt("logs", name).stdout
        if done.returncode != 0 or f"Python {version}." not in said:
            events = kubectl.attempt("describe", "pod", name).stdout[-2000:]
            raise ClusterError(f"{name} did not succeed on {node.name}: {said}\n{events}\n{control.log('coredns')}")
        say(f"{node.name}: {said.strip()}, names resolve")
    kubectl("delete", "pods", *probes, "--now", "--wait=false")


def _corefile(state: Path) -> str:
    return settings.corefile(state / "keys" / "coredns.kubeconfig")


def _write(machine: Machine, name: str, text: str) -> Path:
    path = machine.directory / name
    path.write_text(text)
    return path


def _write_pair(directory: Path, name: str, pair: Pair) -> None:
    (directory / f"{name}.crt").write_bytes(pair.certificate)
    _private(directory / f"{name}.key", pair.key)


def _private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
