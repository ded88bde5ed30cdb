"""A network switch in a process: it delays, loses and cuts frames, each way by itself.

Run by `unshare --net`, so that it also holds the namespace that a Lan is in. Requests are lines of its input, each with
one answer line:

    {"port": "eth-a"}                                           makes a TAP device of this name: one end is the switch's
    {"from": "eth-a", "to": "eth-b", "delay": 0.05, "loss": 1}  from now on; without a name: every port

It ends when its input does. Standard library only, and started by path.
"""

from __future__ import annotations

import fcntl
import heapq
import itertools
import json
import os
import random
import select
import struct
import time
from typing import Any

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x2, 0x1000


class Switch:
    """Ports by name; what waits to be delivered."""

    def __init__(self) -> None:
        self.ports: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._ways: dict[tuple[str, str], tuple[float, float]] = {}  # seconds, and the share that is lost
        self._places: dict[bytes, int] = {}  # Ethernet address -> the port that it was heard at
        self._late: list[tuple[float, int, int, bytes]] = []
        self._numbers = itertools.count()

    def obey(self, request: dict[str, Any]) -> None:
        """One request."""
        if "port" in request:
            port = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(port, TUNSETIFF, struct.pack("16sH22x", request["port"].encode(), IFF_TAP | IFF_NO_PI))
            self.ports[request["port"]], self._names[port] = port, request["port"]
            return
        for one in [request["from"]] if request.get("from") else self.ports:
            for other in [request["to"]] if request.get("to") else self.ports:
                self._ways[one, other] = (request.get("delay", 0.0), request.get("loss", 0.0))

    def take(self, port: int) -> None:
        """Every frame that has come in at a port."""
        while True:
            try:
                frame = os.read(port, 65536)
            except OSError:  # nothing more, or the machine at the other end has gone
                return
            self._places[frame[6:12]] = port
            known = self._places.get(frame[:6])
            for other in [known] if known is not None else self.ports.values():
                if other != port:
                    self._send(port, other, frame)

    def _send(self, port: int, other: int, frame: bytes) -> None:
        delay, loss = self._ways.get((self._names[port], self._names[other]), (0.0, 0.0))
        if loss and random.random() < loss:
            return
        if delay:
            heapq.heappush(self._late, (time.monotonic() + delay, next(self._numbers), other, frame))
        else:
            self._write(other, frame)

    def deliver(self) -> float | None:
        """Sends what is due; the seconds until something is."""
        while self._late:
            left = self._late[0][0] - time.monotonic()
            if left > 0:
                return left
            _, _, port, frame = heapq.heappop(self._late)
            self._write(port, frame)
        return None

    def _write(self, port: int, frame: bytes) -> None:
        try:
            os.write(port, frame)
        except OSError:  # its queue is full, or its machine has gone: a switch drops what it cannot send
            pass

    def close(self, port: int) -> None:
        """A machine has gone, and its device with it."""
        os.close(port)
        name = self._names.pop(port)
        if self.ports[name] == port:  # else it is back already
            del self.ports[name]
        self._places = {address: place for address, place in self._places.items() if place != port}


def main() -> None:
    """Until its input ends."""
    switch, rest = Switch(), b""
    print(json.dumps({"up": True}), flush=True)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    while True:
        wait = switch.deliver()
        for ready, event in poll.poll(None if wait is None else max(1, round(wait * 1000))):
            if ready != 0:
                switch.take(ready)
                if event & (select.POLLERR | select.POLLHUP):
                    poll.unregister(ready)
                    switch.close(ready)
                continue
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                request = json.loads(line)
                switch.obey(request)
                if "port" in request:
                    poll.register(switch.ports[request["port"]], select.POLLIN)
                print("{}", flush=True)


if __name__ == "__main__":
    main()
