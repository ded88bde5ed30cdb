"""A command in a pod, with this process's terminal or files: what travels on the channels of an exec websocket.

    0 stdin   1 stdout   2 stderr   3 how it ended, as a Status   4 the size of the terminal   255 N: channel N ends

With a terminal (`tty`) every key goes there, Ctrl-C too, and what the program prints comes on channel 1 alone. The end
of stdin can only be told in version 5 of the protocol; where a server speaks only 4 (before Kubernetes 1.30), a program
that reads to the end of its input does not see one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
from collections.abc import Iterator
from typing import Any

from petctl.errors import ProtocolError
from petctl.kube.failures import CommandFailed
from petctl.kube.websocket import BEAT, BLOCK, HIGH_WATER, WebSocket

WITH_END = "v5.channel.k8s.io"
PROTOCOLS = (WITH_END, "v4.channel.k8s.io")
_STDIN, _STDOUT, _STDERR, _ENDED, _SIZE, _END_OF = 0, 1, 2, 3, 4, 255
_LINGER = 10.0  # seconds for the rest, once it is known how the command ended


def converse(link: WebSocket, tty: bool, stdin: int | None, stdout: int | None, stderr: int | None) -> int:
    """Carries everything until the command has ended; its exit code. CommandFailed: it was not run, or was lost."""
    status = bytearray()
    outputs = {_STDOUT: stdout, _STDERR: stderr}
    with contextlib.ExitStack() as stack:
        stack.callback(link.close)
        resized = stack.enter_context(_terminal(stdin, stdout)) if tty else None
        if resized is not None:
            _tell_size(link, stdin, stdout)
        while True:
            ready = _wait(link, stdin, resized, _LINGER if status else BEAT)
            if not ready:
                if status:
                    break
                link.ping()
            if resized is not None and resized in ready:
                os.read(resized, BLOCK)
                _tell_size(link, stdin, stdout)
            if stdin is not None and stdin in ready and not _feed(link, stdin):
                stdin = None
            try:
                link.flush()
                messages = link.receive() if link.fileno() in ready else []
            except (OSError, ProtocolError) as error:
                if status:
                    break
                raise CommandFailed(_lost(str(error))) from None
            for message in messages:
                channel, data = message[0] if message else _END_OF, message[1:]
                if channel == _ENDED:
                    status += data
                elif outputs.get(channel) is not None:
                    _write(outputs[channel], data)
            if link.ended:
                break
    return _exit_code(bytes(status), link.closing)


def _wait(link: WebSocket, stdin: int | None, resized: int | None, seconds: float) -> set[int]:
    """The descriptors on which something can be done; none after so many seconds."""
    poll = select.poll()
    poll.register(link.fileno(), link.events())
    if stdin is not None and link.unsent < HIGH_WATER:
        poll.register(stdin, select.POLLIN)
    if resized is not None:
        poll.register(resized, select.POLLIN)
    waiting = link.waiting()
    found = {descriptor for descriptor, _ in poll.poll(0 if waiting else seconds * 1000)}
    return found | {link.fileno()} if waiting else found


def _feed(link: WebSocket, stdin: int) -> bool:
    """Passes on what was typed or piped; whether there may be more."""
    try:
        data = os.read(stdin, BLOCK >> 1)
    except BlockingIOError:
        return True
    except OSError:  # a terminal that has gone
        data = b""
    if data:
        link.send(bytes([_STDIN]) + data)
    elif link.protocol == WITH_END:
        link.send(bytes([_END_OF, _STDIN]))
    return bool(data)


def _write(descriptor: int | None, data: bytes) -> None:
    assert descriptor is not None
    while data:
        try:
            data = data[os.write(descriptor, data) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


@contextlib.contextmanager
def _terminal(stdin: int | None, stdout: int | None) -> Iterator[int]:
    """Every key goes to the program while this lasts; gives a descriptor that is readable after a change of size."""
    import fcntl
    import termios
    import tty

    reading, writing = os.pipe()
    for end in (reading, writing):
        fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, reading)
        stack.callback(os.close, writing)

        def changed(*_: object) -> None:
            with contextlib.suppress(BlockingIOError):  # full: told already
                os.write(writing, b"s")

        if threading.current_thread() is threading.main_thread():
            stack.callback(signal.signal, signal.SIGWINCH, signal.signal(signal.SIGWINCH, changed) or signal.SIG_DFL)
        if stdin is not None and os.isatty(stdin):
            before = termios.tcgetattr(stdin)
            stack.callback(termios.tcsetattr, stdin, termios.TCSADRAIN, before)
            tty.setraw(stdin, termios.TCSADRAIN)
        yield reading


def _tell_size(link: WebSocket, stdin: int | None, stdout: int | None) -> None:
    for descriptor in (stdout, stdin):
        if descriptor is not None and os.isatty(descriptor):
            columns, lines = os.get_terminal_size(descriptor)
            link.send(bytes([_SIZE]) + json.dumps({"Width": columns, "Height": lines}).encode())
            return


def _exit_code(text: bytes, closing: tuple[int, str] | None) -> int:
    """What the Status on the last channel says."""
    if not text:
        raise CommandFailed(_lost(closing[1] if closing else ""))
    try:
        status: Any = json.loads(text)
    except ValueError:
        raise CommandFailed(f"the command could not be run: {text.decode('utf-8', 'replace').strip()}") from None
    if status.get("status") == "Success":
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "ExitCode" and str(cause.get("message", "")).isdigit():
            return int(cause["message"])
    raise CommandFailed(f"the command could not be run: {str(status.get('message') or status).strip()}", status)


def _lost(reason: str) -> str:
    shown = f" ({reason})" if reason else ""
    return f"the connection to the command was lost before it ended{shown}; it may still be running there"
