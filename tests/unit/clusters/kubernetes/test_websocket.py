"""Frames, as bytes on a real connection."""

from __future__ import annotations

import os
import select
import socket
import time
from urllib.parse import urlsplit

import pytest

from petctl.errors import ProtocolError
from petctl.kube.websocket import Frames, NotUpgraded, WebSocket, masked, upgrade
from tests.unit.clusters.kubernetes.servers import WITHIN, Peer, packed, status, websockets

PROTOCOL = "v5.channel.k8s.io"


def connected(url: str, *protocols: str) -> WebSocket:
    """The client's side."""
    parts = urlsplit(url)
    sock = socket.create_connection((parts.hostname or "", parts.port or 0), WITHIN)
    try:
        return upgrade(sock, parts.netloc, "/there?x=1", [("Authorization", "Bearer sesame")], protocols or (PROTOCOL,))
    except BaseException:
        sock.close()
        raise


def received(link: WebSocket, count: int) -> list[bytes]:
    """So many messages, or all until the end."""
    found: list[bytes] = []
    poll, deadline = select.poll(), time.monotonic() + WITHIN
    while len(found) < count and not link.ended:
        link.flush()
        poll.register(link.fileno(), link.events())
        assert poll.poll(max(0, deadline - time.monotonic()) * 1000), f"only {found} came"
        found += link.receive()
    return found


def test_masking_is_what_the_standard_says() -> None:
    payload, key = os.urandom(1001), bytes([1, 2, 3, 4])
    assert masked(payload, key) == bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))
    assert masked(b"", key) == b""
    assert masked(b"\0\0\0", b"\0\0\0\0") == b"\0\0\0"


def test_a_message_that_comes_byte_by_byte_right_behind_the_headers() -> None:
    def script(peer: Peer) -> None:
        assert peer.target == "/there?x=1"
        assert peer.headers["authorization"] == "Bearer sesame"
        assert peer.headers["sec-websocket-protocol"] == f"{PROTOCOL}, v4.channel.k8s.io"
        peer.accept("v4.channel.k8s.io")
        peer.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in packed(b"\x01hello") + packed(b"a" * 300):
            peer.socket.sendall(bytes([byte]))
        assert peer.frame()[0] == 0x88

    with websockets(script) as url:
        link = connected(url, PROTOCOL, "v4.channel.k8s.io")
        assert link.protocol == "v4.channel.k8s.io"
        assert received(link, 2) == [b"\x01hello", b"a" * 300]
        link.close(within=0)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 300_000])
def test_every_length_both_ways(size: int) -> None:
    payload = os.urandom(size)

    def script(peer: Peer) -> None:
        peer.accept(PROTOCOL)
        assert peer.frame() == (0x82, payload)
        peer.send(payload)
        peer.goodbye()

    with websockets(script) as url:
        link = connected(url)
        link.send(payload)
        assert received(link, 1) == [payload]
        link.close()


def test_pings_are_answered_between_the_pieces_of_a_message() -> None:
    def script(peer: Peer) -> None:
        peer.accept(PROTOCOL)
        peer.send(b"one ", 0x02)
        peer.send(b"are you there", 0x89)
        assert peer.frame() == (0x8A, b"are you there")
        peer.send(b"", 0x00)
        peer.send(b"unasked", 0x8A)
        peer.send(b"message", 0x80)
        peer.goodbye()

    with websockets(script) as url:
        link = connected(url)
        assert received(link, 1) == [b"one message"]
        link.close()


def test_the_servers_goodbye_is_answered_and_told() -> None:
    answered: list[tuple[int, bytes]] = []

    def script(peer: Peer) -> None:
        peer.accept(PROTOCOL)
        peer.send((1011).to_bytes(2, "big") + b"it broke", 0x88)
        answered.append(peer.frame())

    with websockets(script) as url:
        link = connected(url)
        assert received(link, 1) == []
        assert link.closing == (1011, "it broke")
        link.close()
    assert answered == [(0x88, (1000).to_bytes(2, "big"))]


def test_our_goodbye_waits_for_theirs_and_sends_what_was_queued() -> None:
    arrived: list[bytes] = []

    def script(peer: Peer) -> None:
        peer.accept(PROTOCOL)
        arrived.append(peer.frame()[1])
        peer.send(b"late")
        peer.goodbye()

    with websockets(script) as url:
        link = connected(url)
        link.send(b"x" * 2_000_000)
        link.close(within=WITHIN)
        assert link.closing == (1000, "")
    assert [len(data) for data in arrived] == [2_000_000]


def test_a_connection_that_is_cut_ends_without_a_goodbye() -> None:
    with websockets(lambda peer: peer.accept(PROTOCOL)) as url:
        link = connected(url)
        assert received(link, 1) == []
        assert link.ended and link.closing is None
        link.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xc2\x00", "extension"),
        (b"\x82\x81\0\0\0\0x", "masked"),
        (b"\x09\x00", "control frame is fragmented"),
        (b"\x89\x7e\x00\x80", "control frame is too long"),
        (b"\x80\x00", "a continuation frame without a message"),
        (b"\x02\x00\x82\x00", "inside another"),
        (b"\x83\x00", "frame type 3"),
        (b"\x8b\x00", "frame type 11"),
        (b"\x88\x01\x03", "an incomplete code"),
        (b"\x82\x7f" + (101).to_bytes(8, "big"), "longer than 100"),
        (b"\x02\x3c" + b"x" * 60 + b"\x80\x3c", "longer than 100"),
    ],
)
def test_who_breaks_the_rules_is_told_so_and_left(data: bytes, words: str) -> None:
    frames = Frames(largest=100)
    with pytest.raises(ProtocolError, match=words):
        frames.receive(data)
    assert frames.unsent[0] == 0x88, "the server hears why"
    before = bytes(frames.unsent)
    frames.send(b"more")
    assert bytes(frames.unsent) == before, "nothing is sent after a goodbye"


def test_a_refusal_comes_with_its_body() -> None:
    body = status(403, "Forbidden", "no")
    with websockets(lambda peer: peer.refuse(403, body)) as url, pytest.raises(NotUpgraded) as told:
        connected(url)
    assert told.value.status == 403
    assert b'"Forbidden"' in told.value.body


def test_a_protocol_that_nobody_offered_is_refused() -> None:
    with websockets(lambda peer: peer.accept("other")) as url, pytest.raises(ProtocolError, match="'other'"):
        connected(url)


def test_an_answer_to_another_request_is_refused() -> None:
    def script(peer: Peer) -> None:
        peer.headers["sec-websocket-key"] = "another"
        peer.accept(PROTOCOL)

    with websockets(script) as url, pytest.raises(ProtocolError, match="another request"):
        connected(url)
