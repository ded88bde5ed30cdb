"""A user whose petctl is killed while it submits:  python -m tests.conformance.killed_submitter CLUSTER ID MOMENT

MOMENT: so many of petctl's own functions have been called since the cluster was asked; 0 is never, and tells how many
there were.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

from petctl.clusters.base import find_cluster
from petctl.home import petctl_home
from petctl.job.spec import Job

calls = 0


def count(frame: FrameType, what: str, argument: object) -> None:
    """Dies at the moment that was given."""
    global calls
    if what == "call" and f"{os.sep}petctl{os.sep}" in frame.f_code.co_filename:
        calls += 1
        if calls == int(sys.argv[3]):
            os.kill(os.getpid(), signal.SIGKILL)


cluster = find_cluster(sys.argv[1], petctl_home())
job = Job(script="worker.py", args=["wait"], grace=1, name="killed")
record = cluster.build_record(job, sys.argv[2])
sys.setprofile(count)
cluster.submit(record)
sys.setprofile(None)
print(calls)
