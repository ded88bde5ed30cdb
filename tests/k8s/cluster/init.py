"""The first process of a machine: mounts what is the machine's own, starts programs on request, reaps whatever ends.

Run by `unshare` in fresh namespaces; when it is killed, the kernel ends every process of the machine, and with the last
of them go its mounts and links. Standard library only, and nothing of this package: it is started by path.

    init.py SOCKET NAME [--own DIRECTORY=FROM]... [--empty DIRECTORY]...

A request is one JSON line, {"start": NAME, "argv": [...], "log": PATH}; the answer is {"pid": N} or {"error": TEXT}.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
from pathlib import Path


def main() -> None:
    """Until killed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("socket")
    parser.add_argument("name")
    parser.add_argument("--own", action="append", default=[])
    parser.add_argument("--empty", action="append", default=[])
    options = parser.parse_args()
    socket.sethostname(options.name)
    for pair in options.own:
        directory, source = pair.split("=", 1)
        subprocess.run(["mount", "--bind", source, directory], check=True)
    for directory in options.empty:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", directory], check=True)
    signal.signal(signal.SIGCHLD, lambda *_: reap())
    listener = socket.socket(socket.AF_UNIX)
    half = Path(f"{options.socket}.half")  # under its own name only when it listens: whoever sees it can connect
    listener.bind(str(half))
    listener.listen()
    half.rename(options.socket)
    while True:
        connection, _ = listener.accept()
        with connection, connection.makefile("rwb") as stream:
            try:
                answer = start(json.loads(stream.readline()))
            except (OSError, ValueError, KeyError) as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            try:
                stream.write(json.dumps(answer).encode() + b"\n")
                stream.flush()
            except OSError:  # whoever asked has gone
                pass


def start(request: dict[str, object]) -> dict[str, object]:
    """Start one program, its output at the end of its log."""
    argv, log = request["argv"], request["log"]
    if not isinstance(argv, list) or not isinstance(log, str):
        raise ValueError("argv must be a list, log a path")
    with open(log, "ab") as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)
    return {"pid": process.pid}


def reap() -> None:
    """Collect every child that has ended: also those that others left to us."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


if __name__ == "__main__":
    main()
