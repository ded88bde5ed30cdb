"""Kubernetes, etcd, CoreDNS, KWOK, Helm and kubectl: built from the Go module proxy, pinned in `go/`.

One module and one `go build` for all of them, so that what they share is compiled once.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import time
import urllib.request
import zipfile
from pathlib import Path

from tests.k8s.cluster import cache
from tests.k8s.cluster.failure import ClusterError

MODULE = Path(__file__).parent / "go"
KUBERNETES = re.findall(r"k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text())[0]
KWOK = re.findall(r"sigs\.k8s\.io/kwok (v\S+)", (MODULE / "go.mod").read_text())[0]
PACKAGES = [
    "./coredns",
    "./etcd",
    "helm.sh/helm/v4/cmd/helm",
    *(
        f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet")
    ),
    "sigs.k8s.io/kwok/cmd/kwok",
]
STAGES = "stages.yaml"  # how KWOK's fake nodes and pods behave
_STAGES = ("node/fast", "node/heartbeat-with-lease", "pod/fast")

GO = "1.26.8"
_GO_ZIP = f"golang.org/toolchain/@v/v0.0.1-go{GO}.linux-amd64.zip"
_GO_SHA256 = "30c2b1bf7dcc88d3eb0a1364e47ddd9128edb3110a30e8a0ef61cd5856b31de7"


def name() -> str:
    """What the built programs are called in the cache: another pin is another name."""
    digest = hashlib.sha256()
    for path in sorted(MODULE.rglob("*")):
        if path.is_file():
            digest.update(str(path.relative_to(MODULE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"programs-{KUBERNETES}-{digest.hexdigest()[:12]}"


@functools.cache
def directory() -> Path:
    """Where the programs are; they are built first where they are not there yet."""
    place = cache.made(
        name(), f"building Kubernetes {KUBERNETES} and its company (once; 7 minutes on two cores)", _build
    )
    # What a build needs is kept until one is complete, so that one that was interrupted goes on where it was.
    shutil.rmtree(_workplace(), ignore_errors=True)
    return place


def program(name: str) -> Path:
    """Where one of them is."""
    return directory() / name


def _workplace() -> Path:
    return cache.home() / f".{name()}.build"


def _build(target: Path) -> None:
    workplace = _workplace()
    environment = os.environ | {
        "GOMODCACHE": str(workplace / "modules"),
        "GOCACHE": str(workplace / "compiled"),
        "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",
        "GOGC": "400",  # the compiler collects less and is faster by it
    }
    go = _go(workplace)
    _run([go, "mod", "download", "k8s.io/kubernetes", "sigs.k8s.io/kwok"], environment)
    version = "k8s.io/component-base/version"
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    stamps = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}  # clients choke on an unset version
    flags = " ".join(["-s", "-w", *(f"-X {version}.{key}={value}" for key, value in stamps.items())])
    listed = subprocess.run(
        [go, "list", "-deps", *PACKAGES], cwd=MODULE, env=environment, capture_output=True, text=True
    )
    _run([go, "build", "-v", "-trimpath", "-ldflags", flags, "-o", f"{target}/", *PACKAGES], environment, listed.stdout)
    stages = workplace / "modules" / f"sigs.k8s.io/kwok@{KWOK}" / "kustomize" / "stage"
    documents = [
        path.read_text()
        for part in _STAGES
        for path in sorted((stages / part).glob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]
    (target / STAGES).write_text("\n---\n".join(documents))


def _go(workplace: Path) -> str:
    """A Go that is new enough: the one on PATH, or the same one that Go itself would fetch."""
    found = shutil.which("go")
    if found is not None and new_enough(subprocess.run([found, "version"], capture_output=True, text=True).stdout):
        return found
    private = workplace / f"go{GO}"
    if not private.exists():
        proxy = (os.environ.get("GOPROXY") or "https://proxy.golang.org").split(",")[0]
        cache.say(f"fetching Go {GO} (70 MB)")
        with urllib.request.urlopen(f"{proxy}/{_GO_ZIP}", timeout=120) as answer:
            archive = answer.read()
        if hashlib.sha256(archive).hexdigest() != _GO_SHA256:
            raise ClusterError(f"{proxy}/{_GO_ZIP} is not what it was; install Go {GO} or newer yourself")
        half = workplace / f".go{GO}"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        (half / "toolchain.zip").write_bytes(archive)
        with zipfile.ZipFile(half / "toolchain.zip") as opened:
            opened.extractall(half)
        (tree,) = half.glob("golang.org/toolchain@*")
        for path in [*tree.glob("bin/*"), *tree.glob("pkg/tool/*/*")]:
            path.chmod(0o755)
        tree.rename(private)
        shutil.rmtree(half)
    return str(private / "bin" / "go")


def new_enough(version: str) -> bool:
    """Whether `go version` tells of the release that this Kubernetes needs, or a newer one."""
    numbers = re.findall(r"go(\d+)\.(\d+)", version)
    wanted = tuple(int(part) for part in GO.split(".")[:2])
    return bool(numbers) and tuple(int(part) for part in numbers[0]) >= wanted


def _run(words: list[str], environment: dict[str, str], expected: str = "") -> None:
    """Run it; where it prints one line for each package of `expected`, tell how far it is."""
    total, said, last = len(expected.split()), [], time.monotonic()
    with subprocess.Popen(words, cwd=MODULE, env=environment, stdout=2, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            if total and time.monotonic() - last > 20:
                last = time.monotonic()
                cache.say(f"  compiled {len(said)} of {total} packages")
    if process.returncode != 0:
        shown = " ".join(words[:3])
        raise ClusterError(f"`{shown} ...` in {MODULE} failed; try again:\n{''.join(said[-30:]).strip()}")
