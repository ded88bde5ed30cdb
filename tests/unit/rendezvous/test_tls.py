"""What TLS costs per connection; the rest is in tests/integration/rendezvous/test_tls.py."""

from __future__ import annotations

import asyncio
from asyncio import sslproto

import pytest

from petctl.rendezvous.net.tls import client_context, use_small_buffers

RECORD = 16 << 10  # bytes of the longest TLS record


def buffers() -> list[int]:
    """The sizes of what a new TLS connection reads into."""

    async def made() -> list[int]:
        loop = asyncio.get_running_loop()
        protocol = sslproto.SSLProtocol(loop, asyncio.Protocol(), client_context(), loop.create_future())
        return [len(value) for value in vars(protocol).values() if isinstance(value, (bytearray, memoryview))]

    return asyncio.run(made())


def test_a_tls_connection_reads_into_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasattr(sslproto.SSLProtocol, "max_size"), "this Python keeps the size elsewhere: see use_small_buffers"
    monkeypatch.setattr(sslproto.SSLProtocol, "max_size", 256 << 10)  # and as it was afterwards
    assert max(buffers()) == 256 << 10
    use_small_buffers()
    assert 0 < max(buffers()) <= RECORD
