"""python -m petctl.sweeps NAME LOCK: drives a sweep without a terminal until it is over. What `petctl sweep -d` starts.

LOCK is the descriptor of the sweep's lock, which its starter holds and hands on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from petctl.errors import PetctlError
from petctl.sweeps.drive import Driver
from petctl.sweeps.record import find


def _say(sentence: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), sentence, flush=True)


def main(name: str, lock: int) -> int:
    """The exit code: 0 when the sweep is over, however its points ended."""
    os.set_inheritable(lock, False)  # it is not for the jobs
    leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    try:
        return 0 if Driver(find(name), _say).run(leave=leave, lock=lock) else 1
    except PetctlError as error:
        _say(str(error))
        return error.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
