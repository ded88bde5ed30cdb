"""The command line of the development cluster: `python -m tests.k8s.cluster up|down|run|prepare|enter|status`."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from typing import Iterator

from tests.k8s.cluster import cache, ledger, programs
from tests.k8s.cluster.cache import say
from tests.k8s.cluster.cluster import kubeconfig_of, state_directory
from tests.k8s.cluster.failure import ClusterError
from tests.k8s.cluster.fall import take_down
from tests.k8s.cluster.ledger import Ledger
from tests.k8s.cluster.machine import Machine
from tests.k8s.cluster.rise import bring_up, prepare


def main() -> int:
    """The exit code: that of a command that was run, or 1 with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.k8s.cluster", description="A Kubernetes cluster on this machine."
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare", help="build and download all that a cluster needs, and start nothing")
    verbs.add_parser("up", help="start the cluster; prints how to use it")
    verbs.add_parser("down", help="stop it and remove all of it")
    verbs.add_parser("status", help="what it has put on this machine")
    run = verbs.add_parser("run", help="run a command with a cluster that goes down after it, or with KUBECONFIG's")
    run.add_argument("command", nargs=argparse.REMAINDER)
    enter = verbs.add_parser("enter", help="run a command inside one of its machines")
    enter.add_argument("machine", choices=["control", "node1", "node2"])
    enter.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what must be taken down is
    try:
        return act(options)
    except ClusterError as error:
        print(f"k8s: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def act(options: argparse.Namespace) -> int:
    """One verb."""
    if options.verb == "prepare":
        prepare()
    elif options.verb == "up":
        up()
        print(f"export KUBECONFIG={kubeconfig_of(state_directory())}")
        print(f"export PATH={programs.directory()}:$PATH    # kubectl, helm")
    elif options.verb == "down":
        with locked():
            was = take_down(state_directory())
        say("the cluster is down" if was else "there is no cluster")
    elif options.verb == "status":
        book = Ledger.read(state_directory())
        print("there is no cluster" if book is None else ledger.as_text(book.record))
    elif options.verb == "enter":
        book = Ledger.read(state_directory())
        if book is None:
            raise ClusterError("there is no cluster; `make k8s-up` starts one")
        return subprocess.run(Machine(options.machine, book).command(options.command or ["bash"])).returncode
    elif options.verb == "run":
        return run_with_cluster(options.command)
    return 0


def up() -> None:
    """Start it, or say why not; what is left of an earlier one is removed first."""
    state = state_directory()
    with locked():
        book = Ledger.read(state)
        if book is not None and book.record.ready and book.living():
            raise ClusterError(
                "a cluster is up already, and there can be only one; "
                f"use it (export KUBECONFIG={kubeconfig_of(state)}) or end it (make k8s-down)"
            )
        if take_down(state):
            say("removed what was left of an earlier cluster")
        try:
            bring_up(state)
        except BaseException:
            _keep_logs()
            take_down(state)
            raise


def run_with_cluster(command: list[str]) -> int:
    """The command's exit code; the cluster that was started for it is gone afterwards, in any case."""
    if os.environ.get("KUBECONFIG"):
        say(f"using the cluster of KUBECONFIG={os.environ['KUBECONFIG']}")
        return subprocess.run(command).returncode
    up()
    try:
        code = subprocess.run(
            command, env=os.environ | {"KUBECONFIG": str(kubeconfig_of(state_directory()))}
        ).returncode
        if code != 0:
            _keep_logs()
        return code
    finally:
        with locked():
            take_down(state_directory())
        say("the cluster is down")


def _keep_logs() -> None:
    """What the programs wrote, where it outlives the cluster."""
    kept = cache.home() / "last-logs"
    shutil.rmtree(kept, ignore_errors=True)
    for logs in sorted(state_directory().glob("*/logs")):
        shutil.copytree(logs, kept / logs.parent.name)
    if kept.exists():
        say(f"the logs of its programs are in {kept}")


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """One at a time goes up or down."""
    with (cache.home() / ".cluster.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ClusterError("another `up` or `down` is under way on this machine; wait for it") from None
        yield


if __name__ == "__main__":
    sys.exit(main())
