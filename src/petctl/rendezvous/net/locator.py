"""Where the coordinator is now: a locator is resolved before every connect, because a coordinator may be replaced.

    {"address": "host:port"}   fixed
    {"file": path}             a JSON file with an "address", replaced by each new coordinator
    {"dns": "name:port"}       whatever the name resolves to at the moment
    {"url": address}           a JSON document with an "address", over HTTP(S) (`petctl.http_proxy`) or from a file

Beside one of these, {"outcome": path} names the file that says how the job ended, once it has.

It answers with a place or `Unreachable`; connecting, and finding out whether the right one answers, is `client.py`'s.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Mapping, Tuple

from petctl.errors import Unreachable, UsageError
from petctl.http_proxy import url_opener

_DOCUMENT_LIMIT = 64 << 10


def resolve(locator: Mapping[str, str], timeout: float) -> Tuple[str, int]:
    """Host and port to connect to now. May block for up to `timeout` where a URL has to be asked."""
    if "address" in locator:
        return split_address(locator["address"])
    if "dns" in locator:
        return split_address(locator["dns"])  # the name itself is resolved by connecting to it
    if "file" in locator:
        return _from_file(locator["file"])
    if "url" in locator:
        return _from_url(locator["url"], timeout)
    raise UsageError("the join file's locator has no address, file, dns or url")


def blocks(locator: Mapping[str, str]) -> bool:
    """Whether resolving may take long, and belongs in a thread."""
    return "url" in locator


def split_address(address: str) -> Tuple[str, int]:
    """ "host:port" or "[v6 address]:port" in two."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Unreachable(f"the coordinator's address is {address!r}, which is not host:port")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """The inverse of split_address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _from_file(path: str) -> Tuple[str, int]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Unreachable(f"no coordinator at {path}: {error.strerror}") from None
    except ValueError:
        raise Unreachable(f"no coordinator address in {path}") from None
    return _from_document(text, path)


def _from_url(url: str, timeout: float) -> Tuple[str, int]:
    from http.client import HTTPException

    try:
        with url_opener().open(url, timeout=timeout) as answer:
            text = answer.read(_DOCUMENT_LIMIT).decode("utf-8")
    except (OSError, ValueError, HTTPException) as error:
        raise Unreachable(f"no coordinator address at {url}: {error}") from None
    return _from_document(text, url)


def _from_document(text: str, where: str) -> Tuple[str, int]:
    try:
        address = json.loads(text)["address"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Unreachable(f"no coordinator address at {where}") from None
    return split_address(str(address))


def is_loopback(host: str) -> bool:
    """Whether traffic to this address stays on this machine, and may go without TLS."""
    return host == "::1" or host.startswith(("127.", "::ffff:127."))
