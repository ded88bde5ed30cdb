"""A worker that speaks the protocol of the agent's socket in the plainest way. It is run as a script, never imported.

It prints `round RANK of WORLD at PORT, pid PID` into the log of each round, and does to a word from the agent what its
arguments say: `park=ignore` does nothing, `bind=ignore` too, `run=exit` ends with code 3, `park=plain` leaves elastic
training, `park=close` hangs up, `term=ignore` outlives SIGTERM, `child` has a child process that stays, `early=exit`
ends where it was started before it had a place, `park=abort` has collectives that take 3 s to abort.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from typing import Any


def main() -> None:
    habits = dict(word.partition("=")[::2] for word in sys.argv[1:])
    if habits.get("term") == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "child" in habits:
        subprocess.Popen([sys.executable, "-c", "import time; print('child', flush=True); time.sleep(600)"])
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.environ["PETCTL_AGENT_SOCKET"])
    lines = connection.makefile("r")

    def say(word: str, **data: Any) -> None:
        connection.sendall(json.dumps({word: data}).encode() + b"\n")

    say("hello", key=os.environ["PETCTL_WORKER_KEY"], pid=os.getpid())
    say("elastic")
    heard(connection)
    tell()
    if os.environ["PETCTL_ROUND"] == "0":
        if habits.get("early") == "exit":
            os._exit(5)
        say("parked", round=0)
    stores: list[socket.socket] = []
    for line in lines:
        ((word, data),) = json.loads(line).items()
        print(word, json.dumps(data, sort_keys=True), flush=True)
        habit = habits.get(word)
        if habit == "exit":
            os._exit(3)
        elif habit == "plain":
            say("plain")
        elif habit == "close":
            connection.shutdown(socket.SHUT_RDWR)
        elif habit == "ignore":
            pass
        elif habit == "abort":
            say("aborting", round=data["round"])
            time.sleep(3.0)  # longer than a worker may take that has nothing to abort
            say("aborted", round=data["round"])
            say("parked", round=data["round"])
        elif word == "park":
            say("parked", round=data["round"])
        elif word == "bind":
            store = socket.create_server(("", 0))
            stores.append(store)
            say("bound", round=data["round"], port=store.getsockname()[1])
        elif word == "run":
            os.environ.update(data["env"])
            for number, path in ((1, data["out"]), (2, data["err"])):
                os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), number)
            tell()
    time.sleep(600)


def heard(connection: socket.socket) -> None:
    """Returns when the agent has read all: one that it takes for an ordinary worker is ended, not parked."""
    unread = array.array("i", [1])
    while unread[0]:
        time.sleep(0.002)  # the system tells how much is unread, and nothing when that changes
        fcntl.ioctl(connection, termios.TIOCOUTQ, unread)


def tell() -> None:
    facts = [os.environ[name] for name in ("PETCTL_ROUND", "RANK", "WORLD_SIZE", "MASTER_PORT")]
    print("{} {} of {} at {}, pid {}".format(*facts, os.getpid()), flush=True)


if __name__ == "__main__":
    main()
