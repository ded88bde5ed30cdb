"""A socket that leads to a port of a pod: one end for the caller, the other carried by a thread through `portforward`.

    0 data, both ways   1 what went wrong there, in words          (each begins with two bytes: the port's number)

The protocol (v4.channel.k8s.io, which every API server since 1.6 passes on to the kubelet) cannot tell the end of one
direction alone. So when the caller has closed its end, or only said that it will send no more and the pod has closed
too, the connection ends; a program that answers only after the end of its input gets none.
"""

from __future__ import annotations

import select
import socket
import threading

from petctl.errors import ProtocolError
from petctl.kube.failures import KubernetesError
from petctl.kube.websocket import BEAT, BLOCK, HIGH_WATER, WebSocket

PROTOCOLS = ("v4.channel.k8s.io",)
_DATA, _ERROR = 0, 1
_HUP = select.POLLHUP | select.POLLERR


class Dialled(socket.socket):
    """The caller's end. After the end of data, `failure` says why where something went wrong."""

    def __init__(self, near: socket.socket, reports: list[KubernetesError]) -> None:
        super().__init__(near.family, near.type, near.proto, near.detach())
        self._reports = reports

    @property
    def failure(self) -> KubernetesError | None:
        """What went wrong, once something has; still there when another socket has taken over the descriptor."""
        return self._reports[0] if self._reports else None


def carried(link: WebSocket, what: str) -> Dialled:
    """The caller's end of a connection that a daemon thread carries until either side closes it."""
    near, far = socket.socketpair()
    reports: list[KubernetesError] = []
    carrier = _Carrier(link, far, reports, what)  # not the caller's socket: who forgets that has closed it
    threading.Thread(target=carrier.run, name=f"petctl: {what}", daemon=True).start()
    return Dialled(near, reports)


class _Carrier:
    """Both directions of one connection, in one thread."""

    def __init__(self, link: WebSocket, far: socket.socket, reports: list[KubernetesError], what: str) -> None:
        self._link = link
        self._local = far
        self._reports = reports
        self._what = what
        self._arrived = bytearray()  # for the caller
        self._words = bytearray()  # of the error channel
        self._numbers = {_DATA: 2, _ERROR: 2}  # bytes of each channel's port number still to come
        self._sending = True  # what the caller has sent is not all read
        self._heard = True  # the caller may still read
        far.setblocking(False)

    @property
    def _closed(self) -> bool:
        """The caller has closed its end, and all it sent is on its way."""
        return not (self._sending or self._heard)

    def run(self) -> None:
        """Carries until the end; what went wrong is reported before the caller sees the end."""
        reason = ""
        try:
            self._carry()
            if not self._closed and self._link.closing is None:
                reason = "the connection to the API server was cut"
        except (OSError, ProtocolError) as error:
            reason = "" if self._closed else str(error)
        said = self._words.decode("utf-8", "replace").strip() or reason
        if said:
            self._reports.append(KubernetesError(f"{self._what}: {said}"))
        self._local.close()
        self._link.close()

    def _carry(self) -> None:
        link, local = self._link, self._local
        while not (self._closed and not link.unsent) and not (link.ended and not self._arrived):
            ready = self._wait()
            if not ready:
                link.ping()
            if local.fileno() in ready:
                self._exchange(ready[local.fileno()])
            link.flush()
            if ready.get(link.fileno(), 0) & ~select.POLLOUT and not link.ended:
                for message in link.receive():
                    self._take(message)

    def _wait(self) -> dict[int, int]:
        """What can be done; neither side is read faster than the other takes it, while there is another."""
        link, local = self._link, self._local
        reading = not link.ended and len(self._arrived) < HIGH_WATER
        wanted = select.POLLIN if self._sending and link.unsent < HIGH_WATER else 0
        wanted |= select.POLLOUT if self._arrived else 0
        poll = select.poll()
        if wanted or self._heard:  # without a wish, only that the caller has gone is told, over and over
            poll.register(local.fileno(), wanted)
        if reading or link.unsent:
            poll.register(link.fileno(), link.events(reading))
        waiting = reading and link.waiting()
        ready = dict(poll.poll(0 if waiting else BEAT * 1000))
        if waiting:
            ready[link.fileno()] = select.POLLIN
        return ready

    def _exchange(self, events: int) -> None:
        """With the caller's end. An error there is its end: nobody is left to be told."""
        if events & select.POLLIN:
            try:
                data = self._local.recv(BLOCK)
            except OSError:
                data = b""
            if data:
                self._link.send(bytes([_DATA]) + data)
            else:
                self._sending = False
        if events & select.POLLOUT and self._arrived:
            try:
                del self._arrived[: self._local.send(self._arrived[: 4 * BLOCK])]
            except BlockingIOError:
                pass
            except OSError:
                self._arrived.clear()
        if events & _HUP:  # what it sent before may still be there to read
            self._heard = False
            self._arrived.clear()

    def _take(self, message: bytes) -> None:
        channel, data = message[0] if message else 255, message[1:]
        number = self._numbers.get(channel, 0)
        if number:
            self._numbers[channel] = max(0, number - len(data))
            data = data[number:]
        if channel == _DATA and self._heard:
            self._arrived += data
        elif channel == _ERROR:
            self._words += data
