"""Frames and proofs: whatever bytes come in, only messages or ProtocolError come out."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.errors import AuthError, ProtocolError
from petctl.rendezvous.net.frames import (
    PLAIN,
    UNPROVEN_LIMIT,
    CoordinatorProof,
    FrameReader,
    PeerProof,
    Seal,
    encode_frame,
    node_token,
    plain_binding,
    proof,
    tokens_of,
)

MESSAGES = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.text(max_size=20),
        lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=4), parts, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


def framed(payload: bytes) -> bytes:
    return struct.pack(">I", len(payload)) + payload


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_messages_survive_however_the_stream_is_cut(messages, cuts):
    stream = b"".join(encode_frame(message) for message in messages)
    seen: list[object] = []
    reader, turn = FrameReader(1 << 20), 0
    while stream:
        cut = cuts[turn % len(cuts)]
        seen += reader.feed(stream[:cut])
        stream, turn = stream[cut:], turn + 1
    assert seen == messages


@given(st.binary(max_size=300))
def test_random_bytes_make_messages_or_a_protocol_error(data):
    try:
        for message in FrameReader(UNPROVEN_LIMIT).feed(data):
            assert isinstance(message, dict)
    except ProtocolError:
        pass


@given(st.binary(max_size=60))
def test_random_payloads_make_messages_or_a_protocol_error(payload):
    try:
        for message in FrameReader(UNPROVEN_LIMIT).feed(framed(payload)):
            assert message == json.loads(payload)
    except ProtocolError:
        pass


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"a":1}x',
        b'{"a":NaN}',
        b'{"a":1e999}',
        b'{"a":-Infinity}',
        b'{"a":' + b"9" * 21 + b"}",
        b'{"a":"\\ud800"}',
        b'{"a":"\\uDC00x"}',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_payloads_that_are_refused(payload):
    with pytest.raises(ProtocolError):
        list(FrameReader(1 << 20).feed(framed(payload)))


def test_a_whole_pair_of_surrogates_is_a_character():
    assert list(FrameReader(100).feed(framed(b'{"a":"\\ud83d\\ude00"}'))) == [{"a": "\U0001f600"}]


def test_a_frame_is_refused_by_its_length_alone():
    with pytest.raises(ProtocolError, match="at most 4096"):
        list(FrameReader(UNPROVEN_LIMIT).feed(struct.pack(">I", 4097)))


def test_the_limit_may_change_between_two_messages():
    reader, long = FrameReader(20), {"a": "x" * 100}
    stream = reader.feed(encode_frame({"a": 1}) + encode_frame(long))
    assert next(stream) == {"a": 1}
    reader.limit = 200
    assert list(stream) == [long]


def introduce(coordinator: CoordinatorProof, peer: PeerProof) -> str:
    role, answer = coordinator.check(peer.hello(coordinator.greeting()))
    mine, theirs = peer.check({"proof": answer})
    coordinators, peers = coordinator.seals()
    assert [coordinators.next(b"x"), peers.next(b"x")] == [theirs.next(b"x"), mine.next(b"x")]
    return role


def test_both_sides_prove_the_token():
    assert introduce(CoordinatorProof(tokens_of("t"), PLAIN), PeerProof(node_token("t"), "agent", PLAIN)) == "agent"
    assert introduce(CoordinatorProof(tokens_of("t"), "00ff"), PeerProof("t", "control", "00ff")) == "control"


@pytest.mark.parametrize("role", ["agent", "node"])
def test_a_nodes_token_is_for_nodes_and_the_jobs_own_for_control(role):
    assert introduce(CoordinatorProof(tokens_of("t"), PLAIN), PeerProof(node_token("t"), role, PLAIN)) == role
    with pytest.raises(AuthError):
        introduce(CoordinatorProof(tokens_of("t"), PLAIN), PeerProof("t", role, PLAIN))
    with pytest.raises(AuthError):
        introduce(CoordinatorProof(tokens_of("t"), PLAIN), PeerProof(node_token("t"), "control", PLAIN))


@pytest.mark.parametrize(("token", "binding"), [("u", PLAIN), (node_token("t"), "00ff"), ("", PLAIN)])
def test_another_token_or_certificate_is_refused(token, binding):
    with pytest.raises(AuthError):
        introduce(CoordinatorProof(tokens_of("t"), PLAIN), PeerProof(token, "agent", binding))


def test_an_overheard_proof_is_worth_nothing():
    overheard = PeerProof(node_token("t"), "agent", PLAIN).hello(CoordinatorProof(tokens_of("t"), PLAIN).greeting())
    with pytest.raises(AuthError):
        CoordinatorProof(tokens_of("t"), PLAIN).check(overheard)


def test_a_coordinator_that_sends_the_peers_own_proof_back_is_refused():
    peer = PeerProof(node_token("t"), "agent", PLAIN)
    hello = peer.hello(CoordinatorProof(tokens_of("t"), PLAIN).greeting())
    with pytest.raises(AuthError, match="does not know the job's token"):
        peer.check({"proof": hello["proof"]})


def test_a_coordinator_without_a_proof_is_refused():
    peer = PeerProof(node_token("t"), "agent", PLAIN)
    with pytest.raises(AuthError):
        peer.check({"proof": ""})  # nothing was asked of it yet
    peer.hello(CoordinatorProof(tokens_of("t"), PLAIN).greeting())
    for answer in ({}, {"proof": None}, {"proof": 7}, {"proof": "é"}, {"proof": "0" * 64}):
        with pytest.raises(AuthError):
            peer.check(answer)


@pytest.mark.parametrize("nonce", [None, 7, "", "short", "a" * 129, "|" * 32, "é" * 32, ["a" * 32]])
def test_a_nonce_that_is_none(nonce):
    with pytest.raises(ProtocolError):
        CoordinatorProof(tokens_of("t"), PLAIN).check({"role": "agent", "nonce": nonce, "proof": ""})


@pytest.mark.parametrize("role", [None, "", "root", 1, ["agent"], {}])
def test_a_role_that_is_none(role):
    with pytest.raises(ProtocolError):
        CoordinatorProof(tokens_of("t"), PLAIN).check({"role": role, "nonce": "a" * 32, "proof": ""})


def test_a_coordinator_of_another_version_is_named():
    with pytest.raises(ProtocolError, match="another version"):
        PeerProof(node_token("t"), "agent", PLAIN).hello({"petctl": 1, "nonce": "a" * 32})


def test_the_proof_depends_on_each_of_its_parts():
    parts = ("token", "peer", "role", "first", "second", "binding")
    changed = [[*parts[:k], "other", *parts[k + 1 :]] for k in range(6)]
    proofs = {proof(*parts)} | {proof(*other) for other in changed}
    assert len(proofs) == 7


def test_a_proof_for_one_role_is_worth_nothing_for_another():
    coordinator = CoordinatorProof(tokens_of("t"), PLAIN)
    hello = PeerProof(node_token("t"), "agent", PLAIN).hello(coordinator.greeting())
    with pytest.raises(AuthError):
        coordinator.check({**hello, "role": "control"})


def sealed_pair() -> tuple[Seal, FrameReader]:
    reader = FrameReader(1 << 20)
    reader.seal = Seal(b"key")
    return Seal(b"key"), reader


def test_sealed_frames_are_read_in_their_order_only():
    seal, reader = sealed_pair()
    frames = [encode_frame({"n": n}, seal) for n in range(3)]
    assert list(reader.feed(frames[0])) == [{"n": 0}]
    with pytest.raises(AuthError, match="not sealed"):
        list(reader.feed(frames[2]))


def test_a_sealed_frame_is_read_once():
    seal, reader = sealed_pair()
    once = encode_frame({"n": 0}, seal)
    with pytest.raises(AuthError, match="not sealed"):
        list(reader.feed(once + once))


@given(st.binary(max_size=60))
def test_nothing_that_is_not_sealed_is_parsed(payload):
    _, reader = sealed_pair()
    with pytest.raises(ProtocolError):
        list(reader.feed(framed(bytes(16) + payload)))


@pytest.mark.parametrize("size", range(17))
def test_a_frame_too_short_for_its_seal_is_refused(size):
    _, reader = sealed_pair()
    with pytest.raises(ProtocolError):
        list(reader.feed(framed(bytes(size))))


def test_both_ends_of_a_plain_connection_are_part_of_its_binding():
    binding = plain_binding(("127.0.0.1", 4000), ("127.0.0.1", 5000))
    assert binding != plain_binding(("127.0.0.1", 4001), ("127.0.0.1", 5000))
    assert binding != plain_binding(("127.0.0.1", 4000), ("127.0.0.1", 5001))
    assert binding == plain_binding(("::ffff:127.0.0.1", 4000, 0, 0), ("::ffff:127.0.0.1", 5000, 0, 0))
