"""The network of some machines, and the machines themselves: all made together, all ended together.

    with Lan(tmp_path, ["laptop", "a", "b"]) as lan:
        lan["a"].run(["ping", "-c1", "b"])
        lan.cut("b")            nothing comes or goes, without a word
        lan["b"].kill()         its processes end; their connections close
        lan["b"].boot()

The network is a namespace of its own: no address of it is anybody else's, and any number of Lans can be there at once.
It is a bridge of the kernel, or with `delay` or `loss` a switch in a process (`switch.py`), which is slower.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.machines.machine import HOME, Machine

SWITCH = Path(__file__).with_name("switch.py")
NOBODY = "02:00:00:00:00:01"  # an Ethernet address that no machine has


class Lan:
    """Machines by name; `shared` is a directory of all of them, at /mnt."""

    def __init__(
        self, directory: Path, names: Sequence[str], delay: float = 0.0, loss: float = 0.0, disk: str = ""
    ) -> None:
        self.directory, self.shared = directory, directory / "shared"
        self.shared.mkdir(parents=True)
        self.addresses = {name: f"10.99.0.{number}" for number, name in enumerate(names, 1)}
        self._switched = bool(delay or loss)
        self._switch = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-I", str(SWITCH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.machines: dict[str, Machine] = {}
        try:
            assert self._hear() == {"up": True}
            if not self._switched:
                self._ip("link add lan type bridge", "link set lan up")
            hosts = "".join(f"{address} {name}\n" for name, address in self.addresses.items())
            (directory / "hosts").write_text(f"127.0.0.1 localhost\n{hosts}")
            root, *others = Path("/etc/passwd").read_text().splitlines(keepends=True)
            (directory / "passwd").write_text("".join([root.replace(":/root:", f":{HOME}:"), *others]))
            for name in names:
                self.machines[name] = Machine(name, directory, self.shared, disk, self._attach)
                self.machines[name].boot()
            if self._switched:
                self._ask({"delay": delay, "loss": loss})
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Machine:
        return self.machines[name]

    def __iter__(self) -> Iterator[Machine]:
        return iter(self.machines.values())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the machines with all that runs there, and the network with them."""
        with ExitStack() as stack:
            stack.callback(self._close_switch)
            for machine in self:
                stack.callback(machine.kill)

    def _close_switch(self) -> None:
        assert self._switch.stdin is not None and self._switch.stdout is not None
        self._switch.kill()
        self._switch.wait(30)
        self._switch.stdin.close()
        self._switch.stdout.close()

    # -- faults of the network -----------------------------------------------------------------------------------------

    def cut(self, name: str) -> None:
        """From now on nothing comes to a machine and nothing goes from it; no connection is told."""
        if self._switched:
            self._ask({"from": port(name), "loss": 1.0})
            self._ask({"to": port(name), "loss": 1.0})
        else:
            self._ip(f"link set {port(name)} nomaster")

    def cut_way(self, name: str, other: str) -> None:
        """From now on nothing goes from one machine to another; the other way is as it was."""
        if self._switched:
            self._ask({"from": port(name), "to": port(other), "loss": 1.0})
        else:
            self[name].ip(f"neigh replace {self.addresses[other]} lladdr {NOBODY} nud permanent dev eth0")

    def mend(self, delay: float = 0.0, loss: float = 0.0) -> None:
        """Nothing is cut any more."""
        if self._switched:
            self._ask({"delay": delay, "loss": loss})
            return
        for machine in self:
            if machine.is_up:
                self._ip(f"link set {port(machine.name)} master lan")
                machine.ip("neigh flush dev eth0 nud permanent")

    # -- within --------------------------------------------------------------------------------------------------------

    def _attach(self, machine: Machine) -> None:
        """Gives a machine that has just been booted its address."""
        name, pid = port(machine.name), machine.pid
        if self._switched:
            self._ask({"port": name})
            self._ip(f"link set {name} netns {pid} name eth0")
        else:
            self._ip(f"link add {name} type veth peer name eth0 netns {pid}", f"link set {name} master lan up")
        address = self.addresses[machine.name]
        card = f"02:00:00:00:01:{int(address.rpartition('.')[2]):02x}"  # a machine keeps it when it is rebooted
        machine.ip("link set lo up", f"link set eth0 address {card} up", f"addr add {address}/24 dev eth0")

    def _ask(self, request: dict[str, object]) -> None:
        assert self._switch.stdin is not None
        self._switch.stdin.write(json.dumps(request).encode() + b"\n")
        self._switch.stdin.flush()
        assert self._hear() == {}, request

    def _hear(self) -> object:
        assert self._switch.stdout is not None
        return json.loads(self._switch.stdout.readline() or b'"the switch has ended"')

    def _ip(self, *commands: str) -> None:
        ip(self._switch.pid, *commands)


def port(name: str) -> str:
    """The switch's end of a machine's link."""
    return f"to-{name}"  # of at most 15 characters


def ip(pid: int, *commands: str) -> None:
    """Commands of ip(8), in the network namespace of a process."""
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip", "-batch", "-"]
    done = subprocess.run(words, input="\n".join(commands) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, f"{commands}: {done.stderr}"
