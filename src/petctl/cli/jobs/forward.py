"""petctl forward: a port of a node, from here."""

from __future__ import annotations

import threading
import time

import click

from petctl.cli.options import job_argument
from petctl.console.commands import examples, output_option, print_json
from petctl.errors import UsageError

STEP = 2.0  # seconds between two looks at the job
PAUSE = 5.0  # ... before the same is said again


@click.command(
    "forward",
    epilog=examples(
        "petctl forward mnist-3f9k 6006             the same port here",
        "petctl forward mnist-3f9k 8080:6006        port 8080 here",
        "petctl forward --node 1 mnist-3f9k 6006",
    ),
)
@click.option("--node", metavar="NODE", help="Node; default: the one with rank 0.")
@job_argument
@click.argument("ports", metavar="[LOCAL:]PORT")
@output_option()
def command(node: str | None, job: str, ports: str, output: str) -> None:
    """Forward a local port to a node, until the job ends or Ctrl-C. LOCAL 0 takes any free port."""
    from petctl.jobs import get

    local, port = parse_ports(ports)
    handle = get(job)
    where = f"port {port} of {handle.id}" if node is None else f"port {port} of node {node} of {handle.id}"
    with handle.forward(port, local_port=local, node=node, tell=_Complaints(where)) as forwarded:
        if output == "json":
            print_json({"id": handle.id, "address": f"127.0.0.1:{forwarded}", "port": port})
        else:
            click.echo(f"127.0.0.1:{forwarded} -> {where}", err=True)
        try:
            status = handle.status()
            while not status.final:  # not one endless wait: a signal that comes just before it begins would not end it
                status = handle.watch(status, timeout=STEP)
        except KeyboardInterrupt:
            return
    click.echo(f"petctl: job {handle.id} {status.state}: forwarding stopped", err=True)


class _Complaints:
    """Says why connections come to nothing; the same only once in a while, because browsers try many at once."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._last = ("", 0.0)
        self._lock = threading.Lock()

    def __call__(self, why: str) -> None:
        with self._lock:
            said, when = self._last
            if said == why and time.monotonic() < when + PAUSE:
                return
            self._last = (why, time.monotonic())
        nobody = "refused" in why.lower()
        what = f"nothing listens on {self._where}" if nobody else f"{self._where} cannot be reached"
        click.echo(f"petctl: {what}: {why}", err=True)


def parse_ports(text: str) -> tuple[int, int]:
    """[LOCAL:]PORT; the local one is the same unless it is said."""
    local, colon, port = text.rpartition(":")
    try:
        numbers = int(local if colon else port), int(port)
    except ValueError:
        numbers = -1, -1
    if not 0 <= numbers[0] < 65536 or not 0 < numbers[1] < 65536:
        raise UsageError(f"{text!r} is not a port; use PORT or LOCAL:PORT, such as 6006 or 8080:6006")
    return numbers
