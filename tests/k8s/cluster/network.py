"""One bridge on this machine, and each of the cluster's machines on it with a link of its own; no way outside."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.k8s.cluster import packages
from tests.k8s.cluster.failure import ClusterError

BRIDGE = "petctl-k8s"
HOST = "10.213.0.1"
CONTROL = "10.213.0.10"
NODES = {"node1": "10.213.0.11", "node2": "10.213.0.12"}
ADDRESSES = {"control": CONTROL, **NODES}
POD_NETWORKS = {"node1": "10.244.1.0/24", "node2": "10.244.2.0/24"}
PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS_SERVICE = "10.96.0.10"


def link(machine: str) -> str:
    """The end of a machine's link that is on the bridge: take it down and the machine is cut off."""
    return f"petctl-{machine}"  # at most 15 characters


def links() -> list[str]:
    """Every name that is used here."""
    return [BRIDGE, *(link(machine) for machine in ADDRESSES)]


def existing() -> list[str]:
    """Those of these names that are there."""
    return [name for name in links() if Path(f"/sys/class/net/{name}").exists()]


def make_bridge() -> None:
    """The bridge, with this machine's own address, and a way to the pods."""
    _ip([f"link add {BRIDGE} type bridge", f"addr add {HOST}/24 dev {BRIDGE}", f"link set {BRIDGE} up"])
    _ip([f"route add {network} via {NODES[node]} dev {BRIDGE} onlink" for node, network in POD_NETWORKS.items()])


def attach(machine: str, pid: int) -> None:
    """Give the machine whose first process is `pid` its address and its ways to the other machines' pods."""
    outside = link(machine)
    _ip([f"link add {outside} type veth peer name eth0 netns {pid}", f"link set {outside} master {BRIDGE} up"])
    _ip(
        [
            "link set lo up",
            f"addr add {ADDRESSES[machine]}/24 dev eth0",
            "link set eth0 up",
            f"route add default via {HOST}",
            *(f"route add {net} via {NODES[node]}" for node, net in POD_NETWORKS.items() if node != machine),
        ],
        pid,
    )
    forward = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"]
    subprocess.run([str(packages.program("nsenter")), f"--net=/proc/{pid}/ns/net", *forward], check=True)


def remove(name: str) -> None:
    """A link, where it is there."""
    if Path(f"/sys/class/net/{name}").exists():
        try:
            _ip([f"link delete {name}"])
        except ClusterError:
            if Path(f"/sys/class/net/{name}").exists():  # else its other end went just then, and it with that
                raise


def _ip(commands: list[str], pid: int | None = None) -> None:
    enter = [] if pid is None else [str(packages.program("nsenter")), f"--net=/proc/{pid}/ns/net"]
    words = [*enter, str(packages.program("ip")), "-batch", "-"]
    done = subprocess.run(words, input="\n".join(commands) + "\n", capture_output=True, text=True)
    if done.returncode != 0:
        raise ClusterError(f"setting up the network failed at one of {commands}: {done.stderr.strip()}")
