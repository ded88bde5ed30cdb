"""How fast could a warm start be? Forks the workers of PROGRAM from a process that has imported all they need.

fork.py WORLD PROGRAM ARGUMENT...     prints the moment before each generation's first fork, one per line

A first generation shows what the program imports; the parent imports that too. Then every odd line on standard input
asks for a generation, and the even one after it for its end. Nothing of petctl is in it.
"""

import importlib
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def generation(world: int, program: str, imported: int = -1) -> "list[int]":
    """Fork all ranks; rank 0 writes the modules that it has at the end into `imported`."""
    port = free_port()
    sys.stdout.write(f"{time.monotonic():.6f}\n")
    sys.stdout.flush()
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid:
            pids.append(pid)
            continue
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        sys.argv = sys.argv[2:]
        sys.path[0] = str(Path(program).parent)

        def tell(*_: object) -> None:
            os.write(imported, "\n".join(sys.modules).encode())
            os._exit(0)

        signal.signal(signal.SIGTERM, tell if rank == 0 and imported >= 0 else signal.SIG_DFL)
        runpy.run_path(program, run_name="__main__")
        os._exit(0)
    return pids


def end(pids: "list[int]", number: int) -> None:
    for pid in pids:
        os.kill(pid, number)
    for pid in pids:
        os.waitpid(pid, 0)


world, program = int(sys.argv[1]), sys.argv[2]
modules = os.memfd_create("modules")
workers = generation(world, program, modules)
sys.stdin.readline()
end(workers[:1], signal.SIGTERM)  # first, while its peers are still there: alone it would wait for them, deaf
end(workers[1:], signal.SIGKILL)
os.lseek(modules, 0, os.SEEK_SET)
with os.fdopen(modules) as names:
    own = {path.stem for path in Path(program).parent.iterdir()}
    for name in names.read().split("\n"):
        if name not in own:
            try:
                importlib.import_module(name)
            except ImportError:
                pass
threads = len(list(Path("/proc/self/task").iterdir()))
if threads != 1:
    sys.exit(f"importing started {threads - 1} thread(s)")
while sys.stdin.readline():
    workers = generation(world, program)
    sys.stdin.readline()
    end(workers, signal.SIGKILL)
