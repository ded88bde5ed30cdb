"""Fails in the way that its argument names, for real; the test gives it to jobs."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
    bytearray(1 << 30)


def oom() -> None:
    kept = []
    while True:
        kept.append(b"x" * (1 << 24))


def disk() -> None:
    with open("/dev/full", "w") as file:
        file.write("checkpoint")


def module() -> None:
    import no_such_module  # type: ignore[import-not-found]  # noqa: F401


def file() -> None:
    Path("/no/such/data.bin").read_bytes()


def descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    while True:
        os.open("/dev/null", os.O_RDONLY)


def port() -> None:
    first, second = socket.socket(), socket.socket()
    first.bind(("127.0.0.1", 0))
    first.listen()
    second.bind(first.getsockname())


def refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else will
        socket.create_connection(other.getsockname())


def name() -> None:
    socket.create_connection(("no-such-host.invalid", 80), timeout=5)


def segfault() -> None:
    ctypes.string_at(0)


def bus() -> None:
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        print(mapped[0])


def aborted() -> None:
    os.abort()


def killed() -> None:
    os.kill(os.getpid(), 9)


def arguments() -> None:
    import argparse

    argparse.ArgumentParser().parse_args(["--no-such-option"])


def wrapped() -> None:
    """What a launcher of one's own does: the true error is that of its child."""
    subprocess.run([sys.executable, __file__, "module"], check=True)


def to_stdout() -> None:
    print("fatal: unable to access: Could not resolve host: example.invalid")
    sys.exit(3)


def over_it() -> None:
    """An error that it got over is not why it fails."""
    print("Connection refused, trying again", file=sys.stderr)
    raise ValueError("bad step")


def hang() -> None:
    from petctl import elastic

    for step in range(20):
        elastic.report(step)
        time.sleep(0.01)
    time.sleep(60)


def twice() -> None:
    """Two failures of different causes, one after another."""
    refused() if os.environ["PETCTL_ROUND"] == "1" else module()


def nan() -> None:
    import torch

    with torch.autograd.set_detect_anomaly(True):
        x = torch.zeros(1, requires_grad=True)
        (x.sqrt() * 0).sum().backward()


def checkpoint() -> None:
    import torch

    with tempfile.NamedTemporaryFile() as file:
        torch.save({"a": torch.zeros(1000)}, file.name)
        os.truncate(file.name, 2000)
        torch.load(file.name)


def loader() -> None:
    import torch

    class Data(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> object:
            return Path("/no/such/data.bin").read_bytes()

    next(iter(torch.utils.data.DataLoader(Data(), num_workers=1)))


def gloo() -> None:
    """Rank 1 is done too early, and does not say goodbye."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(1))
    if os.environ["RANK"] == "1":
        os._exit(0)
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
