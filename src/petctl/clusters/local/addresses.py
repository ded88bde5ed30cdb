"""Where a job's coordinator listens, and by which address others reach it."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from petctl.errors import UsageError


def is_address(host: str) -> bool:
    """Whether it is an IP address, and not a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return ip_address(host).is_loopback if is_address(host) else host == "localhost"


def check_listen(host: str) -> None:
    """Refuses an address where this machine cannot listen: the job would end before it had begun."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--listen {host}: this machine cannot listen there: {getattr(error, 'strerror', None) or error}; "
            "give one of its own addresses, or 0.0.0.0 for all of them"
        ) from None


def advertised_address(listen: str) -> str:
    """The address by which nodes, also on other machines, reach what listens there."""
    if is_loopback(listen):
        return "127.0.0.1" if listen in ("localhost", "127.0.0.1") else listen
    if listen not in ("0.0.0.0", "::"):
        return listen
    family = socket.AF_INET if listen == "0.0.0.0" else socket.AF_INET6
    probe = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"  # addresses that belong to nobody
    with socket.socket(family, socket.SOCK_DGRAM) as route:
        try:
            route.connect((probe, 9))  # a datagram socket sends nothing: it only looks up the way
        except OSError:
            raise UsageError(
                f"this machine has no route to others, so --listen {listen} is of no use to them; give its address"
            ) from None
        return str(route.getsockname()[0])
