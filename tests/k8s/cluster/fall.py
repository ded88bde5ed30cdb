"""Going down: everything that the ledger names is ended and removed, whatever state it is in, and then looked for."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.k8s.cluster import cgroups, network
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.ledger import Ledger, Record
from tests.k8s.cluster.waiting import until


def take_down(state: Path) -> bool:
    """Remove the cluster whose state is there, also one that is half up or half down; whether there was one."""
    if not state.exists():
        return False
    book = Ledger.read(state)
    if book is None:  # killed before the first thing was started
        _remove_files(state)
        return True
    _end_processes(book)
    for group in book.record.cgroups:
        cgroups.remove(group)
    for link in reversed(book.record.links):
        network.remove(link)
    _remove_files(state)
    left = remains(book)
    if left:
        raise ClusterError("the cluster went down and left behind:\n  " + "\n  ".join(left))
    return True


def remains(book: Ledger) -> list[str]:
    """What is still there of all that a ledger names; empty when the machine is as it was before."""
    record = book.record
    left = [f"process {process.pid} ({process.name})" for process in book.living()]
    left += [f"namespace {name}" for name in sorted(_namespaces_in_use() & _own_namespaces(record))]
    left += [f"link {name}" for name in record.links if Path(f"/sys/class/net/{name}").exists()]
    left += [f"control group {path}" for name in record.cgroups for path in cgroups.remaining(name)]
    left += [f"mount {path}" for path in _mounts_below(book.directory)]
    if book.directory.exists():
        left.append(f"directory {book.directory}")
    return left


def _end_processes(book: Ledger) -> None:
    """The first process of a machine takes all others of it along; what else is marked goes too."""

    def none_left() -> bool:
        living = book.living()
        for process in living:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return not living

    until(none_left, f"ending the processes of the cluster in {book.directory}", 60)


def _remove_files(state: Path) -> None:
    mounted = _mounts_below(state)
    if mounted:  # removing would reach into whatever is mounted there
        raise ClusterError(
            f"something is mounted below {state}: {', '.join(mounted)}; unmount it, then `make k8s-down` again"
        )
    subprocess.run(["rm", "-rf", "--one-file-system", str(state)], check=True)


def _mounts_below(directory: Path) -> list[str]:
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in points if Path(point).is_relative_to(directory)]


def _own_namespaces(record: Record) -> set[str]:
    return {name for kinds in record.namespaces.values() for name in kinds.values()}


def _namespaces_in_use() -> set[str]:
    found: set[str] = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                found.update(str(entry.readlink()) for entry in (process / "ns").iterdir())
            except OSError:  # it has ended in between
                continue
    return found
