"""Rank 0 waits for rank 1 in every way that gloo has; rank 1 never comes. Argument: the store's file, the rank."""

import signal
import sys
import threading
import time

import torch
import torch.distributed as distributed

from petctl.elastic.groups.gloo import Waits

path, rank = sys.argv[1], int(sys.argv[2])
distributed.init_process_group("gloo", store=distributed.FileStore(path, 2), rank=rank, world_size=2)
if rank:
    signal.pause()

WAYS = {
    "receive": lambda: distributed.recv(torch.zeros(8), src=1),
    "send": lambda: distributed.send(torch.zeros(1 << 22), dst=1),
    "reduce": lambda: distributed.all_reduce(torch.zeros(8)),
    "reduce much": lambda: distributed.all_reduce(torch.zeros(1 << 22)),
    "barrier": distributed.barrier,
}


def attempt(way):
    try:
        WAYS[way]()
    except RuntimeError:
        pass  # how it comes back is nobody's business: the group is lost


waits = Waits()
for way in WAYS:
    thread = threading.Thread(target=attempt, args=(way,), daemon=True)
    thread.start()
    released, end = 0, time.monotonic() + 30
    while thread.is_alive() and time.monotonic() < end:
        thread.join(0.05)
        released += waits.release()
    print(way, "came back" if released and not thread.is_alive() else f"waits, {released} released", flush=True)
