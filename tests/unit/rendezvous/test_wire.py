"""Frames and proofs: whatever bytes come in, only messages or ProtocolError come out."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petctl.errors import AuthError, ProtocolError
from petctl.rendezvous.wire import (
    PLAIN,
    UNPROVEN_LIMIT,
    CoordinatorProof,
    FrameReader,
    PeerProof,
    encode_frame,
    proof,
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
    assert peer.welcome({"proof": answer, "welcome": {"task": 1}}) == {"task": 1}
    return role


def test_both_sides_prove_the_token():
    assert introduce(CoordinatorProof("t", PLAIN), PeerProof("t", "agent", PLAIN)) == "agent"
    assert introduce(CoordinatorProof("t", "00ff"), PeerProof("t", "control", "00ff")) == "control"


@pytest.mark.parametrize(("token", "binding"), [("u", PLAIN), ("t", "00ff"), ("", PLAIN)])
def test_another_token_or_certificate_is_refused(token, binding):
    with pytest.raises(AuthError):
        introduce(CoordinatorProof("t", PLAIN), PeerProof(token, "agent", binding))


def test_an_overheard_proof_is_worth_nothing():
    overheard = PeerProof("t", "agent", PLAIN).hello(CoordinatorProof("t", PLAIN).greeting())
    with pytest.raises(AuthError):
        CoordinatorProof("t", PLAIN).check(overheard)


def test_a_coordinator_that_sends_the_peers_own_proof_back_is_refused():
    peer = PeerProof("t", "agent", PLAIN)
    hello = peer.hello(CoordinatorProof("t", PLAIN).greeting())
    with pytest.raises(AuthError, match="does not know the job's token"):
        peer.welcome({"proof": hello["proof"]})


def test_a_coordinator_without_a_proof_is_refused():
    peer = PeerProof("t", "agent", PLAIN)
    with pytest.raises(AuthError):
        peer.welcome({"proof": ""})  # nothing was asked of it yet
    peer.hello(CoordinatorProof("t", PLAIN).greeting())
    for answer in ({}, {"proof": None}, {"proof": 7}, {"proof": "é"}, {"proof": "0" * 64}):
        with pytest.raises(AuthError):
            peer.welcome(answer)


@pytest.mark.parametrize("nonce", [None, 7, "", "short", "a" * 129, "|" * 32, "é" * 32, ["a" * 32]])
def test_a_nonce_that_is_none(nonce):
    with pytest.raises(ProtocolError):
        CoordinatorProof("t", PLAIN).check({"role": "agent", "nonce": nonce, "proof": ""})


@pytest.mark.parametrize("role", [None, "", "root", 1, ["agent"], {}])
def test_a_role_that_is_none(role):
    with pytest.raises(ProtocolError):
        CoordinatorProof("t", PLAIN).check({"role": role, "nonce": "a" * 32, "proof": ""})


def test_a_coordinator_of_another_version_is_named():
    with pytest.raises(ProtocolError, match="another version"):
        PeerProof("t", "agent", PLAIN).hello({"petctl": 2, "nonce": "a" * 32})


def test_the_proof_depends_on_each_of_its_parts():
    parts = ("token", "peer", "first", "second", "binding")
    changed = [[*parts[:k], "other", *parts[k + 1 :]] for k in range(5)]
    proofs = {proof(*parts)} | {proof(*other) for other in changed}
    assert len(proofs) == 6
