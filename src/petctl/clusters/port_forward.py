"""A port on this machine that leads to another port, wherever that is: what `petctl forward` opens.

Bytes are copied as they come, in both directions, each connection in threads of its own; it knows nothing of what
they mean. Only this machine can connect to it.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from petctl.errors import PetctlError, UsageError

_Dial = Callable[[], socket.socket]
Tell = Callable[[str], None]


@contextmanager
def forwarded(dial: _Dial, local_port: int = 0, tell: Tell | None = None) -> Iterator[int]:
    """The local port, open for as long as the context lasts; `dial` connects to the other one. `tell` hears why a
    connection came to nothing, in a thread of its own."""
    try:
        listener = socket.create_server(("127.0.0.1", local_port))
    except OSError as error:
        raise UsageError(
            f"cannot open port {local_port} here: {error.strerror}; choose another, or 0 for any"
        ) from None
    connections: set[socket.socket] = set()
    acceptor = threading.Thread(target=_accept, args=(listener, dial, connections, tell or _ignore), daemon=True)
    acceptor.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        _shut(listener)
        listener.close()
        for connection in list(connections):
            _shut(connection)
        acceptor.join()


def _accept(listener: socket.socket, dial: _Dial, connections: set[socket.socket], tell: Tell) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_connect, args=(near, dial, connections, tell), daemon=True).start()


def _connect(near: socket.socket, dial: _Dial, connections: set[socket.socket], tell: Tell) -> None:
    with near:
        try:
            far = dial()
        except (OSError, PetctlError) as error:  # the caller sees its connection closed, and may try again
            tell(str(getattr(error, "strerror", None) or error))
            return
        far.settimeout(None)
        with far:
            connections |= {near, far}
            back = threading.Thread(target=_copy, args=(far, near), daemon=True)
            back.start()
            _copy(near, far)
            back.join()
            connections -= {near, far}
        failure = getattr(far, "failure", None)  # a pod's port: what went wrong there is known only at the end
        if failure is not None:
            tell(str(failure))


def _ignore(why: str) -> None:
    """Where no caller wants to hear it."""


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        _shut(source)
        _shut(target)


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
