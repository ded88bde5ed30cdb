"""What travels over a connection: frames of JSON, and the mutual proof that both ends know the job's token.

A frame is 4 bytes of length, big endian, then one JSON object. Until a peer has proved itself its frames are short; a
frame beyond the limit is refused by its length alone, before any of it is kept.

The proof is a challenge in both directions, and never shows the token:

    coordinator -> {"petctl": 2, "nonce": N1}
    peer        -> {"role": ..., "nonce": N2, "proof": HMAC(token, "peer"|role|N1|N2|binding)}
    coordinator -> {"proof": HMAC(token, "coordinator"|role|N2|N1|binding)}
    coordinator -> {"welcome": {...}}                                              the first sealed frame

There are two tokens. The job's own is for whoever may steer it (role control); a node's is derived from it, cannot be
turned back, and is for taking part (agent) and for a node's own questions (node).

`binding` is what a relay in the middle cannot share: the digest of the coordinator's certificate, or on loopback both
ends' addresses, since the kernel gives one pair of addresses and ports to one connection at a time.

Every frame after the proof is sealed: its length is followed by 16 bytes of HMAC over its place in the stream and its
content, under a key that only this connection and this direction have. A frame that anybody else made, or that comes
a second time, is refused.

Bytes in, objects out: no sockets and no clock here. Whatever a peer may send, only `ProtocolError` comes out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from petctl.errors import AuthError, ProtocolError

VERSION = 2
UNPROVEN_LIMIT = 4 << 10  # a frame of somebody who has not proved anything yet
PEER_LIMIT = 1 << 20  # a frame of a peer that has
COORDINATOR_LIMIT = 4 << 20  # a frame of the coordinator: welcomes and statuses grow with the job
PLAIN = "plain"  # how a binding begins where there is no certificate: loopback
AGENT, NODE, CONTROL = "agent", "node", "control"
ROLES = (AGENT, NODE, CONTROL)

_PREFIX = 4
_SEAL = 16  # bytes
_DIGITS = 20  # no number of ours is longer; reading longer ones costs quadratic time


# -- frames ----------------------------------------------------------------------------------------------------------


class Seal:
    """Marks the frames of one direction of one connection, each for its place in the stream."""

    def __init__(self, key: bytes) -> None:
        self._key, self._count = key, 0

    def next(self, payload: bytes) -> bytes:
        """The mark of the next frame."""
        place, self._count = self._count.to_bytes(8, "big"), self._count + 1
        return hmac.digest(self._key, place + payload, "sha256")[:_SEAL]


def encode_payload(message: Mapping[str, Any]) -> bytes:
    """A message as the content of a frame; one that many peers get is encoded once."""
    return _encoder.encode(message).encode("ascii")


def frame(payload: bytes, seal: Optional[Seal] = None) -> bytes:
    """A payload as it goes over the wire."""
    mark = seal.next(payload) if seal is not None else b""
    return (len(mark) + len(payload)).to_bytes(_PREFIX, "big") + mark + payload


def encode_frame(message: Mapping[str, Any], seal: Optional[Seal] = None) -> bytes:
    """A message as it goes over the wire."""
    return frame(encode_payload(message), seal)


class FrameReader:
    """Cuts a stream of bytes into messages. `limit` and `seal` may be changed between two of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.seal: Optional[Seal] = None  # the sender's; without one, frames bear no mark
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        """The messages that are complete with `data`, one at a time: what is not asked for is not parsed."""
        self._buffer += data
        return self._messages()

    def next(self) -> Optional[Dict[str, Any]]:
        """The next message, if it is complete."""
        return next(self._messages(), None)

    def _messages(self) -> Iterator[Dict[str, Any]]:
        buffer = self._buffer
        while len(buffer) >= _PREFIX:
            size = int.from_bytes(buffer[:_PREFIX], "big")
            begin = _PREFIX + (_SEAL if self.seal is not None else 0)
            end = _PREFIX + size
            if end - begin > self.limit:
                raise ProtocolError(f"a frame of {size} bytes, where at most {self.limit} are allowed")
            if len(buffer) < end:
                return
            mark, payload = bytes(buffer[_PREFIX:begin]), bytes(buffer[begin:end])
            del buffer[:end]
            if self.seal is not None and not hmac.compare_digest(self.seal.next(payload), mark):
                raise AuthError("a frame that was not sealed by the other end, or came a second time")
            yield _parse(payload)


def _parse(payload: bytes) -> Dict[str, Any]:
    try:
        message = _decoder.decode(payload.decode("utf-8"))
        if b"\\ud" in payload or b"\\uD" in payload:
            json.dumps(message, ensure_ascii=False).encode("utf-8")  # half a character would break whoever prints it
    except RecursionError:
        raise ProtocolError("a frame that is nested too deeply") from None
    except ValueError as error:
        raise ProtocolError(f"a frame that is not JSON: {str(error)[:80]}") from None
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame must be an object, not {type(message).__name__}")
    return message


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number that is too long")
    return int(digits)


def _real(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("a number that is too large")
    return value


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


# -- the proof -------------------------------------------------------------------------------------------------------


def new_nonce() -> str:
    """A challenge nobody has seen before."""
    return os.urandom(16).hex()


def node_token(token: str) -> str:
    """What a job's nodes have instead of its token: it lets them take part, and not steer."""
    return hmac.new(token.encode(), b"petctl node", hashlib.sha256).hexdigest()


def plain_binding(peer: Tuple[Any, ...], coordinator: Tuple[Any, ...]) -> str:
    """The binding of a connection without TLS: the addresses of its ends, which no other open connection has."""
    ends = (f"{str(host).rpartition('::ffff:')[2]} {port}" for host, port, *_ in (peer, coordinator))
    return " ".join((PLAIN, *ends))


def proof(token: str, who: str, role: str, first: str, second: str, binding: str) -> str:
    """What only a holder of `token` can say about these challenges, this role and this connection."""
    return hmac.digest(token.encode(), "|".join((who, role, first, second, binding)).encode(), "sha256").hex()


def _seals(token: str, role: str, first: str, second: str, binding: str) -> Tuple[Seal, Seal]:
    """The coordinator's seal and the peer's, for a connection that both have proved themselves on."""
    coordinator, peer = (
        bytes.fromhex(proof(token, who, role, first, second, binding)) for who in ("coordinator's seal", "peer's seal")
    )
    return Seal(coordinator), Seal(peer)


def tokens_of(token: str) -> Dict[str, str]:
    """What a peer of each role has to know, from the job's own token."""
    return {AGENT: node_token(token), NODE: node_token(token), CONTROL: token}


class CoordinatorProof:
    """The coordinator's half of the introduction of one connection."""

    def __init__(self, tokens: Mapping[str, str], binding: str) -> None:
        """`tokens`: what a peer of each role has to know."""
        self._tokens, self._binding, self._nonce = tokens, binding, new_nonce()
        self._seals: Tuple[Seal, Seal]

    def greeting(self) -> Dict[str, Any]:
        return {"petctl": VERSION, "nonce": self._nonce}

    def check(self, hello: Mapping[str, Any]) -> Tuple[str, str]:
        """The peer's role and the proof to answer with; AuthError when the peer does not know the token."""
        role, nonce = hello.get("role"), _nonce_of(hello)
        if role not in ROLES:
            raise ProtocolError("a peer of unknown role")
        token = self._tokens[role]
        expected = proof(token, "peer", role, self._nonce, nonce, self._binding)
        if not _same(expected, hello.get("proof")):
            raise AuthError("a peer that does not know the job's token, or a relay")
        self._seals = _seals(token, role, self._nonce, nonce, self._binding)
        return str(role), proof(token, "coordinator", role, nonce, self._nonce, self._binding)

    def seals(self) -> Tuple[Seal, Seal]:
        """This side's and the peer's, once `check` has passed."""
        return self._seals


class PeerProof:
    """The peer's half: an agent's, or the command line's."""

    def __init__(self, token: str, role: str, binding: str) -> None:
        self._token, self._role, self._binding, self._nonce = token, role, binding, new_nonce()
        self._expected = ""
        self._seals: Tuple[Seal, Seal]

    def hello(self, greeting: Mapping[str, Any]) -> Dict[str, Any]:
        """The answer to the coordinator's first frame."""
        if greeting.get("petctl") != VERSION:
            raise ProtocolError("the coordinator has another version of petctl: use the version that started the job")
        theirs = _nonce_of(greeting)
        self._expected = proof(self._token, "coordinator", self._role, self._nonce, theirs, self._binding)
        self._seals = _seals(self._token, self._role, theirs, self._nonce, self._binding)
        mine = proof(self._token, "peer", self._role, theirs, self._nonce, self._binding)
        return {"role": self._role, "nonce": self._nonce, "proof": mine}

    def check(self, answer: Mapping[str, Any]) -> Tuple[Seal, Seal]:
        """This side's seal and the coordinator's; AuthError when either side could not prove itself."""
        if "error" in answer:
            raise AuthError("the coordinator refused this join file's token: get a new one with `petctl token JOB`")
        if not self._expected or not _same(self._expected, answer.get("proof")):
            raise AuthError("the coordinator does not know the job's token: it is not the one this join file is for")
        theirs, mine = self._seals
        return mine, theirs


def welcome_of(message: Mapping[str, Any]) -> Dict[str, Any]:
    """What the coordinator gives to a new peer with its first sealed frame."""
    welcome = message.get("welcome")
    return welcome if isinstance(welcome, dict) else {}


def _nonce_of(message: Mapping[str, Any]) -> str:
    nonce = message.get("nonce")
    if not isinstance(nonce, str) or not 32 <= len(nonce) <= 128 or not (nonce.isascii() and nonce.isalnum()):
        raise ProtocolError("an introduction without a valid nonce")
    return nonce


def _same(expected: str, claimed: object) -> bool:
    return isinstance(claimed, str) and claimed.isascii() and hmac.compare_digest(expected, claimed)
