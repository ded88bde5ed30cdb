"""What travels over a connection: frames of JSON, and the mutual proof that both ends know the job's token.

A frame is 4 bytes of length, big endian, then one JSON object. Until a peer has proved itself its frames are short; a
frame beyond the limit is refused by its length alone, before any of it is kept.

The proof is a challenge in both directions, and never shows the token:

    coordinator -> {"petctl": 1, "nonce": N1}
    peer        -> {"role": ..., "nonce": N2, "proof": HMAC(token, "peer"|N1|N2|binding)}
    coordinator -> {"proof": HMAC(token, "coordinator"|N2|N1|binding), "welcome": {...}}

`binding` is the digest of the coordinator's certificate, so that a proof relayed through somebody else's TLS fails.

Bytes in, objects out: no sockets and no clock here. Whatever a peer may send, only `ProtocolError` comes out.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import os
from typing import Any, Dict, Iterator, Mapping, Tuple

from petctl.errors import AuthError, ProtocolError

VERSION = 1
UNPROVEN_LIMIT = 4 << 10  # a frame of somebody who has not proved anything yet
PEER_LIMIT = 1 << 20  # a frame of a peer that has
COORDINATOR_LIMIT = 4 << 20  # a frame of the coordinator: welcomes and statuses grow with the job
PLAIN = "plain"  # the binding where there is no certificate: loopback
AGENT, CONTROL = "agent", "control"
ROLES = (AGENT, CONTROL)

_PREFIX = 4
_DIGITS = 20  # no number of ours is longer; reading longer ones costs quadratic time


# -- frames ----------------------------------------------------------------------------------------------------------


def encode_frame(message: Mapping[str, Any]) -> bytes:
    """A message as it goes over the wire."""
    payload = _encoder.encode(message).encode("ascii")
    return len(payload).to_bytes(_PREFIX, "big") + payload


class FrameReader:
    """Cuts a stream of bytes into messages. `limit` may be changed between two of them."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Dict[str, Any]]:
        """The messages that are complete with `data`, one at a time: what is not asked for is not parsed."""
        self._buffer += data
        return self._messages()

    def _messages(self) -> Iterator[Dict[str, Any]]:
        buffer = self._buffer
        while len(buffer) >= _PREFIX:
            size = int.from_bytes(buffer[:_PREFIX], "big")
            if size > self.limit:
                raise ProtocolError(f"a frame of {size} bytes, where at most {self.limit} are allowed")
            end = _PREFIX + size
            if len(buffer) < end:
                return
            payload = bytes(buffer[_PREFIX:end])
            del buffer[:end]
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
        raise ProtocolError(f"a frame must hold an object, not {type(message).__name__}")
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
    raise ValueError(f"{name} is no JSON")


_encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_decoder = json.JSONDecoder(parse_int=_integer, parse_float=_real, parse_constant=_constant)


# -- the proof -------------------------------------------------------------------------------------------------------


def new_nonce() -> str:
    """A challenge nobody has seen before."""
    return os.urandom(16).hex()


def proof(token: str, who: str, first: str, second: str, binding: str) -> str:
    """What only somebody who knows `token` can say about this pair of challenges and this certificate."""
    return hmac.new(token.encode(), "|".join((who, first, second, binding)).encode(), hashlib.sha256).hexdigest()


class CoordinatorProof:
    """The coordinator's half of the introduction of one connection."""

    def __init__(self, token: str, binding: str) -> None:
        self._token, self._binding, self._nonce = token, binding, new_nonce()

    def greeting(self) -> Dict[str, Any]:
        return {"petctl": VERSION, "nonce": self._nonce}

    def check(self, hello: Mapping[str, Any]) -> Tuple[str, str]:
        """The peer's role and the proof to answer with; AuthError when the peer does not know the token."""
        role, nonce = hello.get("role"), _nonce_of(hello)
        if role not in ROLES:
            raise ProtocolError("a peer of unknown role")
        expected = proof(self._token, "peer", self._nonce, nonce, self._binding)
        if not _same(expected, hello.get("proof")):
            raise AuthError("a peer that does not know the job's token")
        return str(role), proof(self._token, "coordinator", nonce, self._nonce, self._binding)


class PeerProof:
    """The peer's half: an agent's, or the command line's."""

    def __init__(self, token: str, role: str, binding: str) -> None:
        self._token, self._role, self._binding, self._nonce = token, role, binding, new_nonce()
        self._expected = ""

    def hello(self, greeting: Mapping[str, Any]) -> Dict[str, Any]:
        """The answer to the coordinator's first frame."""
        if greeting.get("petctl") != VERSION:
            raise ProtocolError("the coordinator is of another version of petctl: use the one that started the job")
        theirs = _nonce_of(greeting)
        self._expected = proof(self._token, "coordinator", self._nonce, theirs, self._binding)
        mine = proof(self._token, "peer", theirs, self._nonce, self._binding)
        return {"role": self._role, "nonce": self._nonce, "proof": mine}

    def welcome(self, answer: Mapping[str, Any]) -> Dict[str, Any]:
        """What the coordinator gives to a new agent; AuthError when either side could not prove itself."""
        if "error" in answer:
            raise AuthError("the coordinator refused this join file's token: get a new one with `petctl token JOB`")
        if not self._expected or not _same(self._expected, answer.get("proof")):
            raise AuthError("the coordinator does not know the job's token: it is not the one this join file is for")
        welcome = answer.get("welcome")
        return welcome if isinstance(welcome, dict) else {}


def _nonce_of(message: Mapping[str, Any]) -> str:
    nonce = message.get("nonce")
    if not isinstance(nonce, str) or not 32 <= len(nonce) <= 128 or not (nonce.isascii() and nonce.isalnum()):
        raise ProtocolError("an introduction without a proper nonce")
    return nonce


def _same(expected: str, claimed: object) -> bool:
    return isinstance(claimed, str) and claimed.isascii() and hmac.compare_digest(expected, claimed)
