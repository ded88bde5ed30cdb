"""The first process of a machine: mounts what is the machine's own, starts programs on request, reaps whatever ends.

Run by `unshare` in fresh namespaces. Requests are the lines of its input: {"argv": [...], "log": PATH, "environment":
{...}, "cwd": PATH}; the answer is {"pid": N} or {"error": TEXT}. That a program has ended is told, too: {"ended": N,
"code": C}. When its input ends, or it is killed, the kernel ends every process of the machine.

    init.py NAME [--own DIRECTORY=FROM]... [--empty DIRECTORY[:SIZE]]... [--keep DIRECTORY]

What is kept is there also where it lies in one of the others, which hide what was below them. Standard library only,
and started by path.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

ASIDE = "/opt"  # where nothing is hidden


def main() -> None:
    """Until its input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--own", action="append", default=[])
    parser.add_argument("--empty", action="append", default=[])
    parser.add_argument("--keep")
    options = parser.parse_args()
    socket.sethostname(options.name)
    if options.keep:
        subprocess.run(["mount", "--bind", options.keep, ASIDE], check=True)
    for pair in options.own:
        place, source = pair.split("=", 1)
        subprocess.run(["mount", "--bind", source, place], check=True)
    for word in options.empty:
        directory, _, size = word.partition(":")
        limits = "mode=1777" + (f",size={size}" if size else "")
        subprocess.run(["mount", "-t", "tmpfs", "-o", limits, "tmpfs", directory], check=True)
    if options.keep:
        Path(options.keep).mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "--move", ASIDE, options.keep], check=True)
    wake, wake_end = os.pipe()
    os.set_blocking(wake_end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_end)
    tell({"up": True})
    rest = b""
    while True:
        for ready in select.select([0, wake], [], [])[0]:
            if ready == wake:
                os.read(wake, 4096)
                reap()
                continue
            data = os.read(0, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                tell(start(json.loads(line)))


def start(request: dict[str, Any]) -> dict[str, object]:
    """Starts one program, its output at the end of its log."""
    try:
        with open(request["log"], "ab") as output:
            process = subprocess.Popen(
                request["argv"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=request["environment"],
                cwd=request["cwd"],
                start_new_session=True,
            )
    except OSError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    process.returncode = 0  # it is `reap` that collects it
    return {"pid": process.pid}


def reap() -> None:
    """Collects every child that has ended: also those that others left to us."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        tell({"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def tell(answer: dict[str, object]) -> None:
    """One line; whoever reads it may have gone."""
    try:
        os.write(1, json.dumps(answer).encode() + b"\n")
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
