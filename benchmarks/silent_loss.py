"""Claim: a node that falls silent costs at most the heartbeat limit, half a second and a cold start.

Silent: its packets are dropped and nothing is closed.

The job runs in one network namespace, with one node of its own; two more nodes join it from namespaces of theirs over
TLS, as other machines would. Then the cable of one is pulled: its bridge port is set down, so packets vanish in both
directions and no connection is closed. The clock runs until the remaining two step in a round of their own.

Beside it: the heartbeat limit (5 s) and a cold start of two bare workers. torchrun was given its best settings in
recovery.py; it notices a silent node only by its own keep-alive (5 s, 3 times, by default) and is not repeated here.
Needs root. The namespaces are made for the run and removed after it.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from functools import partial
from typing import Self

from common import Claim, finish, interleave, options, print_table
from subjects import BareProcesses, PetctlJob

START = 30.0
SILENCE = 5.0
HOME_ADDRESS = "10.77.0.1"


class Network:
    """Three namespaces on one bridge: `home` with the bridge, `left` and `right`."""

    def __init__(self) -> None:
        mark = secrets.token_hex(2)
        self.home, self.left, self.right = (f"petctl-{name}-{mark}" for name in ("home", "left", "right"))

    def __enter__(self) -> Self:
        try:
            for name in (self.home, self.left, self.right):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", self.home, "link", "add", "bridge0", "type", "bridge")
            ip("-n", self.home, "address", "add", f"{HOME_ADDRESS}/24", "dev", "bridge0")
            ip("-n", self.home, "link", "set", "bridge0", "up")
            for number, (port, name) in enumerate((("left", self.left), ("right", self.right)), 2):
                ip("-n", self.home, "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", name)
                ip("-n", self.home, "link", "set", port, "master", "bridge0", "up")
                ip("-n", name, "address", "add", f"10.77.0.{number}/24", "dev", "cable")
                ip("-n", name, "link", "set", "cable", "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.home, self.left, self.right):
            ip("netns", "delete", name, check=False)

    def pull_cable(self) -> float:
        """From now on nothing passes between `right` and the others; the moment."""
        moment = time.monotonic()
        # Down, not only off the bridge: a bridge may share this port's address, and then still takes its packets in.
        ip("-n", self.home, "link", "set", "right", "down")
        return moment


class AwayJob(PetctlJob):
    """A job whose commands run in the home namespace; nodes may join from the others."""

    def __init__(self, network: Network, petctl: str, python: str) -> None:
        super().__init__(petctl, python, pace=0.02, alone=True)
        self.network = network

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.network.home, *super().command(*words)]

    def join(self, namespace: str) -> None:
        """One more node, from a machine of its own as far as the network goes."""
        file = self.directory / "join.json"
        if not file.exists():
            self.call("token", self.id, "--address", HOME_ADDRESS, "--file", str(file))
        agent = [self.python, "-m", "petctl.agent", "join", "--file", str(file), "--node", namespace]
        agent += ["--state-dir", str(self.directory / namespace)]
        self.spawn(["ip", "netns", "exec", namespace, *agent])


def ip(*words: str, check: bool = True) -> None:
    """The `ip` command."""
    subprocess.run(["ip", *words], check=check, capture_output=not check)


def silent_loss(petctl: str, python: str) -> float:
    """One pulled cable."""
    with Network() as network, AwayJob(network, petctl, python) as job:
        (job.directory / "petctl.yaml").write_text("clusters:\n  local:\n    slots: 1\n")  # room for those who join
        job.job_file(
            nodes="1:3",
            listen=HOME_ADDRESS,
            restarts=0,
            rendezvous={"silence": SILENCE, "resize_interval": 0.1},
        )
        job.marks.stepping(START, world=1, steps=5)
        job.join(network.left)
        job.join(network.right)
        job.marks.stepping(START, world=3, steps=50)
        old = job.marks.pids()
        moment = network.pull_cable()
        return job.marks.stepping(START, world=2, old=old) - moment


def cold_start() -> float:
    """Two bare workers of the same kind."""
    with BareProcesses(sys.executable, 2, pace=0.02, alone=True) as bare:
        begin = bare.start()
        return bare.marks.stepping(START, world=2) - begin


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    if os.geteuid() != 0:
        print("silent_loss.py makes network namespaces and so needs root: sudo make bench", file=sys.stderr)
        return 2
    subjects = {
        "petctl": partial(silent_loss, chosen.petctl, sys.executable),
        "cold start, no launcher": partial(cold_start),
    }
    samples = interleave(chosen.pairs, subjects)
    print_table("a node falls silent: until the others step again", list(samples.values()), "petctl")
    limit = SILENCE + 0.5 + samples["cold start, no launcher"].median
    took = samples["petctl"].median
    claims = [Claim(f"{took:.2f} s (at most {limit:.2f}: 5 s of silence, 0.5 s, a cold start)", took <= limit)]
    return finish("silent_loss", chosen.output, {"silent loss": list(samples.values())}, claims)


if __name__ == "__main__":
    sys.exit(main())
