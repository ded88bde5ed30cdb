"""A door between somebody and the API server, which a test opens and shuts."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import yaml


class Gate:
    """The way to the API server. Shut: all are cut off, and nobody gets through. Silent: nothing comes or goes."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._shut = False
        self._carries = threading.Event()
        self._carries.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.accepted = self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if self._shut:
                    self.refused += 1
                    near.close()
                    continue
                far = socket.create_connection(self._target)
                self._open |= {near, far}
                self.accepted += 1
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self._carries.wait()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def shut(self) -> None:
        with self._lock:
            self._shut = True
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        self._carries.clear()

    def open(self) -> None:
        with self._lock:
            self._shut = False
        self._carries.set()

    def close(self) -> None:
        self.shut()
        self._carries.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for end in (self._listener, *self._open):
            end.close()


@contextlib.contextmanager
def gate_of(kubeconfig: Path) -> Iterator[Gate]:
    """One before the cluster of this file, which leads through it from now on."""
    found = yaml.safe_load(kubeconfig.read_text())
    (there,) = found["clusters"]
    server = urlsplit(there["cluster"]["server"])
    gate = Gate(server.hostname or "", server.port or 443)
    there["cluster"] |= {"server": f"https://127.0.0.1:{gate.port}", "tls-server-name": server.hostname}
    kubeconfig.write_text(yaml.safe_dump(found))
    try:
        yield gate
    finally:
        gate.close()
