"""Who descends from whom, what a node's workers left running, and how to end it: the one place that reads /proc.

Used by the guardian (at the very end of a node) and by the workers' supervision (between rounds). Where there is no
/proc the table is empty, and process groups are all there is.
"""

from __future__ import annotations

import os
import select
import signal
import time
from typing import Callable, Collection, Dict, Iterable, List, NamedTuple, Set

NODE_KEY = "PETCTL_NODE_KEY"  # environment name by which all processes of one node's life are found
STEP = "PETCTL_STEP"  # tells what the node's preparation left running (it stays) from what a worker did
PREPARE_STEP = "prepare"


class Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int


def table() -> Dict[int, Process]:
    """All living processes of this machine; zombies are dead."""
    found: Dict[int, Process] = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                data = file.read(1024)
        except OSError:
            continue
        # The command's name comes second, in parentheses, and may itself hold spaces and parentheses.
        fields = data[data.rfind(b")") + 2 :].split(None, 4)
        if len(fields) == 5 and fields[0] not in (b"Z", b"X"):
            pid = int(name)
            found[pid] = Process(pid, int(fields[1]), int(fields[2]), int(fields[3]))
    return found


def can_be_listed() -> bool:
    """Whether `table` shows anything on this system."""
    return os.path.exists("/proc/self/stat")


def descendants(root: int, processes: Dict[int, Process]) -> Set[int]:
    """Everything below `root`, without it."""
    children: Dict[int, List[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: Set[int] = set()
    todo = [root]
    while todo:
        below = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(below)
        todo += below
    return found


def carrying(entry: str, pids: Iterable[int], tail: bool = False) -> Set[int]:
    """Those that were started with `NAME=value` in their environment; `tail`: the value only has to end so."""
    name, _, value = entry.partition("=")
    start, end = os.fsencode(name + "="), os.fsencode(value)
    found: Set[int] = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
                data = file.readall()
        except OSError:
            continue  # gone, or another user's
        for item in data.split(b"\0"):
            if item.startswith(start) and (item.endswith(end) if tail else item == start + end):
                found.add(pid)
    return found


def of_workers(
    key: str, guardian: int, workers: Collection[int], main: Set[int], resting: Set[int], zygotes: Set[int]
) -> Set[int]:
    """Processes below this agent, in the session of one of its `workers`, or adopted by the guardian (0: by init).

    Without the `main` processes themselves, what belongs to a `resting` worker, and the sessions of `zygotes`. An
    orphan in a session of its own is counted also then: nobody can tell whose it was.
    """
    living = table()
    if not living:
        return set()
    me = os.getpid()
    found = descendants(me, living)
    found |= {p.pid for p in living.values() if p.session in workers or p.group in workers}
    orphans = descendants(guardian, living) if guardian else set(living)
    found |= carrying(f"{NODE_KEY}={key}", orphans - found - {me, guardian})
    found -= main | {p.pid for p in living.values() if p.session in resting | zygotes}
    for pid in resting:
        found -= descendants(pid, living)
    return found - carrying(f"{STEP}={PREPARE_STEP}", found)


def of_node(key: str) -> Set[int]:
    """Every process of this node's life but this one."""
    me = os.getpid()
    living = table()
    below = descendants(me, living)
    return below | carrying(f"{NODE_KEY}={key}", set(living) - below - {me})


def exists(pid: int) -> bool:
    """Whether there is such a process, be it a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def signal_group(group: int, number: int) -> None:
    """Signals a process group that may be gone already, or (0) not be there yet: 0 itself would mean our own."""
    try:
        if group > 0:
            os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def signal_each(pids: Iterable[int], number: int) -> None:
    """Signals processes that may be gone already."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def extinguish(find: Callable[[], Set[int]], seconds: float) -> Set[int]:
    """Kills what `find` finds until it finds nothing; what is still there after `seconds` is returned."""
    deadline = time.monotonic() + seconds
    while True:
        left = find()
        if not left or time.monotonic() >= deadline:
            return left
        signal_each(left, signal.SIGKILL)
        _wait_for_one_to_end(left, min(1.0, deadline - time.monotonic()))


def _wait_for_one_to_end(pids: Set[int], seconds: float) -> None:
    if not hasattr(os, "pidfd_open"):
        select.select([], [], [], 0.01)
        return
    watched = []
    try:
        for pid in pids:
            try:
                watched.append(os.pidfd_open(pid))
            except ProcessLookupError:
                return
            except OSError:  # an old kernel
                seconds = 0.01
        poll = select.poll()
        for fd in watched:
            poll.register(fd, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
    finally:
        for fd in watched:
            os.close(fd)
