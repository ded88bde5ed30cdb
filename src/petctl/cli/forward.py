"""petctl forward: a port of a node, from here."""

from __future__ import annotations

import time

import click

from petctl.cli.options import examples, job_argument, output_option, print_json
from petctl.errors import UsageError


@click.command(
    "forward",
    epilog=examples(
        "petctl forward mnist-3f9k 6006             the same port here",
        "petctl forward mnist-3f9k 8080:6006        port 8080 here",
        "petctl forward --node 1 mnist-3f9k 6006",
    ),
)
@click.option("--node", metavar="NODE", help="Which node; the one with rank 0 otherwise.")
@job_argument
@click.argument("ports", metavar="[LOCAL:]PORT")
@output_option()
def command(node: str | None, job: str, ports: str, output: str) -> None:
    """Reach a port of a node from here, until Ctrl-C. LOCAL 0 takes any free port."""
    from petctl.jobs import get

    local, port = parse_ports(ports)
    handle = get(job)
    with handle.forward(port, local_port=local, node=node) as forwarded:
        if output == "json":
            print_json({"id": handle.id, "address": f"127.0.0.1:{forwarded}", "port": port})
        else:
            click.echo(f"127.0.0.1:{forwarded} -> port {port} of {handle.id}", err=True)
        try:
            while True:  # not one endless wait: a signal that comes just before it begins would not end it
                time.sleep(0.5)
        except KeyboardInterrupt:
            pass


def parse_ports(text: str) -> tuple[int, int]:
    """[LOCAL:]PORT; the local one is the same unless it is said."""
    local, colon, port = text.rpartition(":")
    try:
        numbers = int(local if colon else port), int(port)
    except ValueError:
        numbers = -1, -1
    if not 0 <= numbers[0] < 65536 or not 0 < numbers[1] < 65536:
        raise UsageError(f"{text!r} is no port; say PORT or LOCAL:PORT, such as 6006 or 8080:6006")
    return numbers
