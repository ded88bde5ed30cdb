"""The programs that come from Debian packages; installed here where that is allowed, named otherwise."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.k8s.cluster.cache import say
from tests.k8s.cluster.failure import ClusterError

PACKAGES = {  # program -> Debian package
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "unshare": "util-linux",
    "mount": "mount",
    "busybox": "busybox-static",
    "debootstrap": "debootstrap",
}
_SEARCHED = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def missing() -> list[str]:
    """The packages whose programs are not here."""
    absent = {package for program, package in PACKAGES.items() if shutil.which(program, path=_SEARCHED) is None}
    return sorted(absent)


def require() -> None:
    """All of them, or a sentence about what to do."""
    wanted = missing()
    if os.geteuid() != 0:
        absent = f"; missing too: {', '.join(wanted)} (Debian packages)" if wanted else ""
        raise ClusterError(f"a cluster needs root (namespaces, mounts, cgroups); run it again as root{absent}")
    if not wanted:
        return
    command = f"apt-get install --no-install-recommends {' '.join(wanted)}"
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"these programs are missing: {', '.join(wanted)} (their names as Debian packages); install them"
        )
    say(f"installing Debian packages: {' '.join(wanted)} (half a minute)")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["apt-get", "update", "-qq"], [*command.split(), "-y", "-qq"]):
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise ClusterError(f"`{' '.join(words)}` failed; run `{command}` yourself:\n{done.stderr.strip()}")
    if missing():
        raise ClusterError(f"installed, but still missing: {', '.join(missing())}")


def program(name: str) -> Path:
    """Where a program of a Debian package is."""
    found = shutil.which(name, path=_SEARCHED)
    if found is None:
        raise ClusterError(f"{name} is missing; `make k8s-up` installs it")
    return Path(found)
