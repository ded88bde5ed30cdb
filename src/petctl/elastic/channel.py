"""This worker's connection to its node's agent: one JSON object per line, both ways, over a Unix socket.

`connect()` gives the process's only Channel, or None where no agent listens (plain python, torchrun). One daemon thread
reads; it calls what was registered with `on`, in that thread. What a message means is its receiver's business, but for
`stacks`, which must be answered whatever the main thread does.

A forked child (a data loader's worker) has no channel: its parent's is not its own.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import threading
import traceback
from typing import Any, Callable, Dict, Optional

AGENT_SOCKET = "PETCTL_AGENT_SOCKET"
WORKER_KEY = "PETCTL_WORKER_KEY"

_lock = threading.Lock()
_current: Optional[Channel] = None


def connect() -> Optional[Channel]:
    """The channel to the agent that started this process, or None; connects on first use."""
    global _current
    with _lock:
        if _current is not None and _current.pid == os.getpid():
            return _current
        path = os.environ.get(AGENT_SOCKET)
        if not path or _current is not None:
            return None
        try:
            _current = Channel(path, os.environ.get(WORKER_KEY, ""))
        except OSError:
            return None  # the agent is gone, and this process is about to be
        return _current


class Channel:
    """One connection, said hello."""

    def __init__(self, path: str, key: str) -> None:
        self.pid = os.getpid()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._receivers: Dict[str, Callable[[Dict[str, Any]], None]] = {"stacks": self._write_stacks}
        self._sending = threading.Lock()
        try:
            self._socket.connect(path)
        except OSError:
            self._socket.close()
            raise
        self.send("hello", key=key, pid=self.pid)
        threading.Thread(target=self._read, name="petctl-control", daemon=True).start()

    def on(self, kind: str, receiver: Callable[[Dict[str, Any]], None]) -> None:
        """From now on messages of this kind go to `receiver`, in the reading thread."""
        self._receivers[kind] = receiver

    def send(self, kind: str, **body: Any) -> None:
        """Sends one message; says nothing when the agent is gone: its end is this process's end."""
        line = json.dumps({kind: body}, separators=(",", ":")).encode() + b"\n"
        with self._sending:
            try:
                self._socket.sendall(line)
            except OSError:
                pass

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as lines:
                for line in lines:
                    self._receive(line)
        except OSError:
            pass

    def _receive(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except ValueError:
            return  # the last line of an agent that was killed while it wrote
        for kind, body in message.items():
            receiver = self._receivers.get(kind)
            if receiver is not None:
                try:
                    receiver(body)
                except Exception:  # the orders that follow matter as much: without them nobody could end a round here
                    traceback.print_exc()

    def _write_stacks(self, body: Dict[str, Any]) -> None:
        """Every thread's stack, for whoever wants to know where this process hangs."""
        try:
            with open(body["file"], "w") as file:
                faulthandler.dump_traceback(file, all_threads=True)
        except OSError:
            pass
        self.send("dumped", file=body["file"])
