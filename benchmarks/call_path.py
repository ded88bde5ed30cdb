"""How far a reader of the code has to go: the modules that `petctl run -n 2 train.py` visits, and how often a call goes
from one package to another, in the command and in the job's supervisor.

Counted are calls of Python functions in the main thread: a module is visited when one of its functions is called, and a
switch is a call in another package than the call before. Bodies of modules and of classes are no calls: they run when a
module is imported, in whatever order. Nor is it a call when a generator or a coroutine goes on after a yield or an
await: the event loop does that, and a reader stays where it was. Peer: another checkout, as --against DIRECTORY (its
.venv is used).
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TRACER = """
import atexit, inspect, json, os, sys

FUNCTION = inspect.CO_OPTIMIZED  # which bodies of modules and classes are not
PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
SOURCE, OUT = os.environ["PETCTL_TRACED"] + os.sep, os.environ["PETCTL_TRACES"]
calls = []

def is_ours(code):
    return code.co_flags & FUNCTION and code.co_filename.startswith(SOURCE)

def goes_on(code, at):  # the argument of RESUME says what comes before: 0 a call, 1 to 3 a yield or an await
    return code.co_flags & PAUSES and code.co_code[at + 1] & 3

def profile(frame, event, argument):
    code = frame.f_code
    if event == "call" and is_ours(code) and not goes_on(code, frame.f_lasti):
        calls.append(code.co_filename[len(SOURCE):])

def write():
    sys.setprofile(None)
    with open(os.path.join(OUT, str(os.getpid())), "w") as file:
        json.dump({"argv": sys.argv, "calls": calls}, file)

atexit.register(write)
sys.setprofile(profile)
"""


class Visited(NamedTuple):
    """What one process has visited."""

    modules: int
    switches: int


def counted(calls: list[str]) -> Visited:
    """Modules, and changes of package between two calls."""
    packages = [call.rpartition("/")[0] for call in calls]
    return Visited(len(set(calls)), sum(a != b for a, b in zip(packages, packages[1:], strict=False)))


def trace(checkout: Path) -> dict[str, Visited]:
    """Runs the job once under the tracer: process -> what it visited."""
    with tempfile.TemporaryDirectory() as made:
        base = Path(made)
        for name in ("site", "project", "traces"):
            (base / name).mkdir()
        (base / "site/sitecustomize.py").write_text(TRACER)
        (base / "project/train.py").write_text("print('hello')\n")
        environment = {
            **os.environ,
            "PYTHONPATH": str(base / "site"),
            "PETCTL_HOME": str(base / "home"),
            "PETCTL_TRACED": str(checkout / "src/petctl"),
            "PETCTL_TRACES": str(base / "traces"),
        }
        argv = [str(checkout / ".venv/bin/petctl"), "run", "-n", "2", "train.py"]
        subprocess.run(argv, cwd=base / "project", env=environment, check=True, capture_output=True, timeout=120)
        (job,) = (base / "home/jobs").iterdir()
        with (job / "supervisor.lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # free once the supervisor has ended, and written its trace
        found: dict[str, Visited] = {}
        for file in (base / "traces").iterdir():
            traced = json.loads(file.read_text())
            words = " ".join(traced["argv"])
            if "run -n 2" in words:
                found["command"] = counted(traced["calls"])
            elif "supervisor.py" in words:
                found["supervisor"] = counted(traced["calls"])
        return found


def main() -> int:
    """Trace and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, metavar="DIRECTORY", help="another checkout, with its .venv")
    chosen = parser.parse_args()
    checkouts = {"this checkout": ROOT, **({str(chosen.against): chosen.against.resolve()} if chosen.against else {})}
    print(f"{'':<24}{'process':<14}{'modules':>8}{'switches':>10}")
    for name, checkout in checkouts.items():
        for process, path in sorted(trace(checkout).items()):
            print(f"{name[-23:]:<24}{process:<14}{path.modules:>8}{path.switches:>10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
