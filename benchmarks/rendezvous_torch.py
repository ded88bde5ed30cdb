"""One rendezvous of N of torch's own handlers, as threads against one TCPStore: prints the seconds. See rendezvous.py.

python benchmarks/rendezvous_torch.py N
"""

from __future__ import annotations

import os
import sys
import threading
import time
from datetime import timedelta

from torch.distributed import TCPStore
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import DynamicRendezvousHandler, RendezvousTimeout

DEADLINE = 60.0


def main() -> int:
    nodes = int(sys.argv[1])
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    go = threading.Event()
    finished = threading.Semaphore(0)

    def join(number: int) -> None:
        own = TCPStore("127.0.0.1", store.port, is_master=False, timeout=timedelta(seconds=DEADLINE))
        handler = DynamicRendezvousHandler.from_backend(
            run_id="benchmark",
            store=own,
            backend=C10dRendezvousBackend(own, "benchmark"),
            min_nodes=nodes,
            max_nodes=nodes,
            local_addr="127.0.0.1",
            timeout=RendezvousTimeout(join=timedelta(seconds=DEADLINE)),
        )
        finished.release()
        go.wait()
        handler.next_rendezvous()
        finished.release()

    for number in range(nodes):
        threading.Thread(target=join, args=(number,), daemon=True).start()
    for _ in range(nodes):
        finished.acquire()
    began = time.monotonic()
    go.set()
    for _ in range(nodes):
        if not finished.acquire(timeout=max(0.0, began + DEADLINE - time.monotonic())):
            os._exit(1)
    print(time.monotonic() - began, flush=True)
    os._exit(0)  # the handlers' keep-alive threads would go on


if __name__ == "__main__":
    sys.exit(main())
