"""The images that pods run: root file systems made with debootstrap, and what containerd makes of them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Sequence

from tests.k8s.cluster import cache, packages
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.waiting import until

PAUSE = "petctl.test/pause:1"
PYTHON = {"3.11": "bookworm", "3.9": "bullseye"}  # version -> the Debian release that has it
REVISION = 1  # another one is made anew
_LEFT_OUT = (
    "var/cache",
    "var/lib/apt/lists",
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "dev",
)


@dataclasses.dataclass(frozen=True)
class Image:
    """One image: what pods call it, and the archive that nodes import."""

    name: str
    archive: Path


def python(version: str) -> str:
    """What the image with that Python is called."""
    return f"petctl.test/python:{version}"


def all_images() -> list[Image]:
    """Every image, made first where it is not there yet."""
    images = [Image(PAUSE, _made("pause", "making the pause image", _pause))]
    for version, suite in PYTHON.items():
        words = f"making the image with Python {version} from Debian {suite} (50 seconds, 60 MB to download)"
        make = functools.partial(_debian, suite=suite, version=version)
        images.append(Image(python(version), _made(f"python-{version}", words, make)))
    return images


def containerd_root() -> Path:
    """What containerd makes of the images. A node starts with a copy of it, which takes less than importing them."""
    return cache.made(
        f"images-{REVISION}", "making images (once; 2 minutes)", lambda target: _unpack(all_images(), target)
    )


def copy(root: Path, target: Path) -> None:
    """A copy of it. Layers and blobs never change and are linked; the databases that name them do change."""
    subprocess.run(["cp", "--archive", "--link", str(root), str(target)], check=True)
    for database in target.glob("*/*.db"):
        content = database.read_bytes()
        database.unlink()
        database.write_bytes(content)


def _unpack(archives: list[Image], target: Path) -> None:
    """By a containerd that runs for this alone, and dies with us."""
    socket, log, config = target / "socket", target / "log", target / "config.toml"
    unwanted = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
    config.write_text(f"version = 2\ndisabled_plugins = {json.dumps(unwanted)}\n")
    words = [str(packages.program("setpriv")), "--pdeathsig=KILL", str(packages.program("containerd"))]
    words += [f"--config={config}", f"--root={target}/root", f"--state={target}/state", f"--address={socket}"]
    client = [packages.program("ctr"), f"--address={socket}", "--namespace=k8s.io"]
    with log.open("wb") as output, subprocess.Popen(words, stdout=output, stderr=output) as process:
        try:
            until(lambda: _ran([*client, "version"]) is None or process.poll(), "containerd answers", 60, 0.1)
            for image in archives:
                failure = _ran([*client, "images", "import", image.archive])
                if failure is not None:
                    raise ClusterError(f"{image.archive} could not be unpacked: {failure}\n{log.read_text()[-1000:]}")
        finally:
            process.terminate()
            process.wait()
    for path in target.iterdir():
        if path.name != "root":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for image in archives:  # all that is in them is here now
        shutil.rmtree(image.archive.parent)


def _ran(words: Sequence[object]) -> str | None:
    """None when it went well, else what it complained about."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def _made(name: str, announcement: str, make: cache.Make) -> Path:
    return cache.made(f"image-{name}-{REVISION}", announcement, make) / "image.tar"


def _pause(target: Path) -> None:
    root = target / "root"
    (root / "bin").mkdir(parents=True)
    shutil.copy(packages.program("busybox"), root / "bin" / "busybox")
    archive(root, target / "image.tar", PAUSE, ["/bin/busybox", "sleep", "2147483647"])
    shutil.rmtree(root)


def _debian(target: Path, suite: str, version: str) -> None:
    root = target / "root"
    words = [str(packages.program("debootstrap")), "--variant=minbase", "--include=python3", suite, str(root)]
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    if done.returncode != 0:
        raise ClusterError(f"`{' '.join(words)}` failed:\n{done.stdout[-2000:].strip()}")
    for name in _LEFT_OUT:
        shutil.rmtree(root / name)
        (root / name).mkdir()
    archive(root, target / "image.tar", python(version), ["python3"])
    shutil.rmtree(root)


def archive(root: Path, target: Path, name: str, command: list[str]) -> None:
    """Write a root file system as a docker archive: a manifest, a configuration and one layer."""
    layer = target.with_name("layer.tar")
    with tarfile.open(layer, "w") as opened:
        opened.add(root, arcname=".")
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    with contextlib.ExitStack() as stack:
        stack.callback(layer.unlink)
        opened = stack.enter_context(tarfile.open(target, "w"))
        for file_name, content in ((config_name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(file_name)
            entry.size = len(content)
            opened.addfile(entry, io.BytesIO(content))
        opened.add(layer, arcname="layer.tar")
