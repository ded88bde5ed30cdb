"""The files and command lines of the cluster's programs: text in, text out, nothing is written or run here.

Where a setting is unusual, the line says why; most of these are about machines whose root has no CAP_SYS_RESOURCE and
whose control groups are of version 1.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.k8s.cluster import network
from tests.k8s.cluster.certificates import Pair
from tests.k8s.cluster.images import PAUSE

API = f"https://{network.CONTROL}:6443"
DOMAIN = "cluster.local"
CONTAINERD = "/run/containerd/containerd.sock"  # in the node's own /run
_CNI = "/var/lib/cni/net.d"  # in the node's own /var

# Clients' own limits (20 calls a second) would be what a test of many jobs measures.
_RATES = ["--kube-api-qps=200", "--kube-api-burst=400"]


def kubeconfig(authority: bytes, user: str, pair: Pair) -> str:
    """How a user reaches the API server; complete in itself, so that it can be copied."""

    def text(content: bytes) -> str:
        return base64.b64encode(content).decode()

    credentials = {"client-certificate-data": text(pair.certificate), "client-key-data": text(pair.key)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "petctl", "cluster": {"server": API, "certificate-authority-data": text(authority)}}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "petctl", "context": {"cluster": "petctl", "user": user, "namespace": "default"}}],
            "current-context": "petctl",
        },
        indent=2,
    )


def api_hosts() -> tuple[str, ...]:
    """Every name and address by which the API server is reached."""
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{DOMAIN}")
    return (*names, "localhost", "127.0.0.1", network.CONTROL, network.API_SERVICE)


def etcd() -> list[str]:
    """Its loopback is the control machine's own. Nothing of it must survive, so nothing is synced."""
    return [
        "--data-dir=/var/lib/etcd",
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--listen-peer-urls=http://127.0.0.1:2380",
    ]


def api_server(keys: Path) -> list[str]:
    """With the authorisation that clusters have: nodes may only what nodes need, everybody else by roles."""
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        f"--advertise-address={network.CONTROL}",
        "--secure-port=6443",
        f"--client-ca-file={keys}/ca.crt",
        f"--tls-cert-file={keys}/api-server.crt",
        f"--tls-private-key-file={keys}/api-server.key",
        f"--kubelet-certificate-authority={keys}/ca.crt",
        f"--kubelet-client-certificate={keys}/api-server-to-kubelets.crt",
        f"--kubelet-client-key={keys}/api-server-to-kubelets.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={keys}/accounts.crt",
        f"--service-account-signing-key-file={keys}/accounts.key",
        f"--service-cluster-ip-range={network.SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-aggregator-routing=true",  # no kube-proxy runs on this machine: webhooks go to endpoints
        "--allow-privileged=true",
        "--max-requests-inflight=1200",
        "--max-mutating-requests-inflight=600",
    ]


def controller_manager(keys: Path, configuration: Path) -> list[str]:
    """Alone, so there is no leader to elect."""
    return [
        f"--kubeconfig={configuration}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--root-ca-file={keys}/ca.crt",
        f"--service-account-private-key-file={keys}/accounts.key",
        f"--cluster-signing-cert-file={keys}/ca.crt",
        f"--cluster-signing-key-file={keys}/ca.key",
        f"--cluster-cidr={network.PODS}",
        "--allocate-node-cidrs=false",
        *_RATES,
    ]


def scheduler(configuration: Path) -> list[str]:
    """Alone too."""
    return [f"--kubeconfig={configuration}", "--leader-elect=false", *_RATES]


NAMES_READY = f"http://{network.CONTROL}:8181/ready"


def corefile(configuration: Path) -> str:
    """The cluster's names and no others. Answers are not kept: a test sees a new pod's name at once."""
    return f"""{DOMAIN}:53 in-addr.arpa:53 {{
    errors
    ready :8181
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {configuration}
        pods insecure
        ttl 0
    }}
}}
"""


def kubelet(keys: Path, node: str) -> str:
    """Paths are the defaults: /var and /run are the node's own."""
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{keys}/ca.crt"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{keys}/{node}.crt",
            "tlsPrivateKeyFile": f"{keys}/{node}.key",
            "address": network.NODES[node],
            "healthzBindAddress": "127.0.0.1",
            "clusterDNS": [network.DNS_SERVICE],
            "clusterDomain": DOMAIN,
            "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{cgroup(node)}",
            "cgroupsPerQOS": True,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,
            "failSwapOn": False,
            "resolvConf": "",  # this machine's own name servers mean nothing inside
            "volumePluginDir": "/var/lib/kubelet/volume-plugins",  # the default is in /usr, which is this machine's
            "evictionHard": {"memory.available": "100Mi"},  # not for the fill of a disk that nodes share with everybody
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        },
        indent=2,
    )


def kubelet_arguments(node: str, settings: Path, configuration: Path) -> list[str]:
    """What its file cannot say."""
    return [
        f"--config={settings}",
        f"--kubeconfig={configuration}",
        f"--hostname-override={node}",
        f"--node-ip={network.NODES[node]}",
    ]


def proxy(node: str, configuration: Path) -> str:
    """It leaves the kernel's table of connections alone: its size is not a node's to set."""
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(configuration)},
            "hostnameOverride": node,
            "mode": "iptables",
            "clusterCIDR": network.PODS,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        },
        indent=2,
    )


def containerd() -> str:
    """`restrict_oom_score_adj`: no CAP_SYS_RESOURCE, no negative scores; runc would fail without a word about it."""
    return f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]

[grpc]
  address = "{CONTAINERD}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "{_CNI}"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""


def pod_network(node: str) -> tuple[Path, str]:
    """Where in the node's file system the description of its pods' network is, and what it says."""
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": network.POD_NETWORKS[node]}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    described = {"cniVersion": "0.4.0", "name": "petctl", "plugins": [bridge, ports]}
    return Path(_CNI) / "petctl.conflist", json.dumps(described, indent=2)


def cgroup(node: str) -> str:
    """The control group that a node's pods are in."""
    return f"petctl-k8s-{node}"


def name_service() -> list[dict[str, Any]]:
    """What makes CoreDNS the cluster's name server: its rights, and a Service that leads to the control machine."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    role = "petctl:coredns"
    watched = [("", ["services", "pods", "namespaces"]), ("discovery.k8s.io", ["endpointslices"])]
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": role},
            "rules": [
                {"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]}
                for group, resources in watched
            ],
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "coredns"}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": network.DNS_SERVICE, "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns-control",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [network.CONTROL], "conditions": {"ready": True}}],
            "ports": ports,
        },
    ]
