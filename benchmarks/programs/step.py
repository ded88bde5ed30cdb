"""A training loop in miniature. Each rank appends one line per step to MARKS: time, rank, step, world size, pid.

step.py MARKS [--pace SECONDS] [--alone]     ends when MARKS.stop exists

A step is an all-reduce (PyTorch, gloo), so nobody steps unless all do; with --alone a step is only a pause, and nothing
is imported. Step 0 says that the process has started. The clock is the machine's monotonic one, the same for all.
"""

import os
import sys
import time

path = sys.argv[1]
pace = float(sys.argv[sys.argv.index("--pace") + 1]) if "--pace" in sys.argv else 0.05
alone = "--alone" in sys.argv
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
marks = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def mark(step: int) -> None:
    """One write of one short line: with O_APPEND lines of several processes do not mix."""
    os.write(marks, f"{time.monotonic():.6f} {rank} {step} {world} {os.getpid()}\n".encode())


mark(0)
if not alone:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo")

step, stop = 0, False
while not stop:
    stop = os.access(path + ".stop", os.F_OK)
    if not alone:
        wish = torch.tensor([float(stop)])
        dist.all_reduce(wish)
        stop = wish.item() > 0  # all see the same, so all end at the same step
    step += 1
    mark(step)
    time.sleep(pace)
