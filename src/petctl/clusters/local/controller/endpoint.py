"""Opening a job's coordinator port on this machine, and telling everybody where it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Optional, Tuple

from petctl.clusters.local.job_directory import JobDirectory, read_json, write_json
from petctl.clusters.local.processes import boot_id
from petctl.clusters.local.record import LocalRequest
from petctl.rendezvous.net.frames import PLAIN
from petctl.rendezvous.net.listener import allow_many_connections
from petctl.rendezvous.net.locator import join_address
from petctl.rendezvous.net.server import CoordinatorServer

if TYPE_CHECKING:
    import ssl


async def open_port(server: CoordinatorServer, directory: JobDirectory, request: LocalRequest, epoch: int) -> None:
    """Takes the port of the last supervisor if it is still free, so that join files given out keep working."""
    allow_many_connections()
    known = read_json(directory.coordinator) or {}
    last = int(str(known.get("address", ":0")).rpartition(":")[2] or 0)
    try:
        _, port = await server.listen(request.listen, last)
    except OSError:
        _, port = await server.listen(request.listen, 0)
    address = join_address(request.address, port)
    place = {"address": address, "pid": os.getpid(), "epoch": epoch, "boot": boot_id()}
    write_json(directory.coordinator, place, reserved=True)


def encryption(directory: JobDirectory) -> Tuple[Optional[ssl.SSLContext], str]:
    """TLS and what proofs are bound to, for a job that was given a certificate; plain on loopback."""
    if not directory.certificate.exists():
        return None, PLAIN
    from petctl.rendezvous.net.tls import certificate_pin, server_context

    return server_context(directory.certificate, directory.key), certificate_pin(directory.certificate)
