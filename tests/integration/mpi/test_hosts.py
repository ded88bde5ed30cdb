"""Nodes on hosts of their own: three network namespaces on a bridge, joined over TLS; no ssh, no names."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from petctl.agent.node import runtime_dir
from petctl.agent.workers import processes
from petctl.clusters.agent_archive import build_agent
from petctl.jobs import get
from tests.integration.elastic.harness import IMPORTS
from tests.integration.local.conftest import Stage
from tests.integration.waiting import until

pytestmark = [
    pytest.mark.root,
    pytest.mark.torch,
    pytest.mark.timeout(400),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root for network namespaces"),
]

HOME, *OTHERS = (f"10.77.0.{number}" for number in (1, 2, 3))
PROGRAM = """
import json, os, pathlib, sys, time
import torch, torch.distributed as dist
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
mine = (os.environ["PETCTL_NODE"], os.environ["AZ_BATCH_HOST_LIST"])
nodes = world.allgather(mine[0])
dist.init_process_group("gloo")
value = torch.ones(1) * dist.get_rank()
dist.all_reduce(value)
number = os.environ["PETCTL_ROUND"]
mark = [world.size, total, int(value[0]), nodes, mine[1].split(","), os.getpid()]
here = pathlib.Path(f"mark-{number}-{world.rank}")
here.with_suffix(".new").write_text(json.dumps(mark))
here.with_suffix(".new").rename(here)
while not pathlib.Path("finish").exists():
    time.sleep(0.05)
world.barrier()
"""


def ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=not check)


class Mark(NamedTuple):
    """What a rank has found out."""

    size: int
    total: int
    summed: int
    nodes: list[str]  # of all ranks
    addresses: list[str]
    pid: int


class Hosts:
    """A job in `home`; nodes join it from the other two."""

    def __init__(self, stage: Stage, python: str) -> None:
        mark = secrets.token_hex(2)
        self.stage, self.python = stage, python
        self.home, *self.others = (f"petctl-{name}-{mark}" for name in ("home", "left", "right"))
        self.job = ""
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

    def connect(self) -> None:
        for name in (self.home, *self.others):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", self.home, "link", "add", "wire", "type", "bridge")
        ip("-n", self.home, "address", "add", f"{HOME}/24", "dev", "wire")
        ip("-n", self.home, "link", "set", "wire", "up")
        for number, (name, address) in enumerate(zip(self.others, OTHERS, strict=True), 2):
            ip("-n", self.home, "link", "add", f"port{number}", "type", "veth", "peer", "name", "wire", "netns", name)
            ip("-n", self.home, "link", "set", f"port{number}", "master", "wire", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")

    def petctl(self, *words: str) -> str:
        argv = ["ip", "netns", "exec", self.home, sys.executable, "-m", "petctl", *words]
        done = subprocess.run(argv, cwd=self.stage.path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def submit(self, **fields: object) -> None:
        (self.stage.path / "petctl.yaml").write_text("clusters:\n  local:\n    slots: 1\n")
        (self.stage.path / "program.py").write_text(PROGRAM)
        job = {
            "script": "program.py",
            "launcher": "mpi",
            "nodes": "1:3",
            "procs": 2,
            "python": self.python,
            "listen": HOME,
            "grace": 2,
            "env": {"GLOO_SOCKET_IFNAME": "wire"},  # the hosts share a name, by which gloo would look for itself
            "code": "none",
            "rendezvous": {"resize_interval": 0.1, "silence": 5},
            **fields,
        }
        (self.stage.path / "job.yaml").write_text(json.dumps(job))
        self.job = self.petctl("submit", "job.yaml").split()[-1]
        coordinator = self.stage.path / "home" / "jobs" / self.job / "coordinator.json"
        until(coordinator.exists, "the job's coordinator")
        self.petctl("token", self.job, "--address", HOME, "--file", "join.json")

    def join(self, name: str) -> None:
        agent = self.stage.path / "petctl-agent.pyz"
        if not agent.exists():
            build_agent(agent)
        argv = ["ip", "netns", "exec", name, sys.executable, str(agent), "join", "--file", "join.json"]
        argv += ["--node", name, "--state-dir", str(self.stage.path / name)]
        with open(self.stage.path / f"{name}.log", "ab") as log:
            self.agents[name] = subprocess.Popen(argv, cwd=self.stage.path, stdout=log, stderr=log)

    def marks(self, world: int, after: int = 0) -> tuple[int, list[Mark]]:
        """The first round after `after` of which all these ranks have left their mark, and the marks."""

        def look() -> tuple[int, list[Mark]] | None:
            rounds = sorted({int(path.name.split("-")[1]) for path in self.stage.path.glob("mark-*-?")})
            for number in (number for number in rounds if number > after):
                found = [
                    Mark(*json.loads(path.read_text())) for path in sorted(self.stage.path.glob(f"mark-{number}-?"))
                ]
                if len(found) == world == found[0].size:
                    return number, found
            return None

        number, found = until(look, f"a round after {after} with {world} ranks", 2 * IMPORTS)
        return int(number), list(found)

    def close(self) -> None:
        for agent in self.agents.values():
            agent.terminate()
        for agent in self.agents.values():
            try:
                agent.wait(30)
            except subprocess.TimeoutExpired:
                agent.kill()  # its agent ends the workers then
                agent.wait(30)
        for name in (self.home, *self.others):
            ip("netns", "delete", name, check=False)


@pytest.fixture
def hosts(mpi: Stage, torch_python: str) -> Iterator[Hosts]:
    """Three hosts, removed after the test with all that ran on them."""
    hosts = Hosts(mpi, torch_python)
    try:
        hosts.connect()
        yield hosts
        if hosts.job:
            (mpi.path / "finish").touch()
            hosts.petctl("wait", hosts.job, "--timeout", "110s")
    finally:
        hosts.close()


def test_three_hosts_train_together_and_one_may_be_lost(hosts: Hosts) -> None:
    hosts.submit()
    first, _ = hosts.marks(2)
    for name in hosts.others:
        hosts.join(name)
    left, right = hosts.others
    second, found = hosts.marks(6, after=first)
    order = [HOME, *sorted(OTHERS, key=found[0].addresses.index)]  # who came first is first
    names = dict(zip([HOME, *OTHERS], ["0", left, right], strict=True))
    for mark in found:
        assert (mark.size, mark.total, mark.summed) == (6, 15, 15)
        assert mark.nodes == [names[address] for address in order for _ in range(2)]
        assert mark.addresses == order
    ranks = [mark.pid for mark in found]
    hosts.agents[right].kill()  # its guardian: what it leaves behind is the agent's to end
    hosts.agents[right].wait(30)
    until(lambda: not set(ranks) & set(processes.table()), "the end of that round's ranks")
    hosts.marks(4, after=second)
    assert get(hosts.job).status().spent == 0
    runtime_dir.remove_of(str(hosts.stage.path / right))


def test_a_failed_rank_on_another_host_is_named(hosts: Hosts) -> None:
    hosts.submit(restarts=1)
    for name in hosts.others:
        hosts.join(name)
    number, found = hosts.marks(6)
    os.kill(found[5].pid, 9)
    again, _ = hosts.marks(6, after=number)
    told = lambda now: now.rounds and now.rounds[-1].number == again and now  # noqa: E731
    status = until(lambda: told(get(hosts.job).status()), "the status of that round")
    assert status.spent == 1
    assert f"rank 5 on node {found[5].nodes[5]} was killed by SIGKILL" in [past.reason for past in status.rounds][-1]
