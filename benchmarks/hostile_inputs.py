"""What a hostile peer might send to a coordinator's port, from a seed. Bytes only: nothing here connects.

`strangers` does not know the token, but knows the protocol and may have overheard it. `insider` knows the token too,
and makes reports and calls that are well framed and wrong inside.
"""

from __future__ import annotations

import json
import random
from typing import Any, Dict, List

from petctl.rendezvous.net.frames import PLAIN, encode_frame, encode_payload, new_nonce, proof

_ODD_TEXT = ("", "\x00", "honest\n", "../../etc/passwd", "a" * 20_000, "\U0001f600", "𝔸", "null", "%s%n", "-1")
_ODD_NUMBERS = (0, -1, 1, 2**31, 2**53, 2**53 + 1, 10**19, 1e308, -1e308, 0.1, True)
_FRAGMENTS = (
    b"[" * 4000,
    b'{"a":' * 700,
    b'{"nonce":' + b"9" * 4000 + b"}",
    b'{"nonce":NaN}',
    b'{"nonce":1e999}',
    b'{"nonce":"\\ud800"}',
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b"null",
    b"[]",
    b"",
    b"{}",
    b'"petctl"',
    b'{"role":"agent","nonce":[],"proof":{}}',
    b'{"role":["agent"],"nonce":"' + b"a" * 32 + b'"}',
    b'{"role":"agent","role":"control","nonce":"' + b"a" * 32 + b'","proof":null}',
)


def strangers(chance: random.Random) -> bytes:
    """One input of somebody who does not know the token."""
    kind = chance.randrange(8)
    if kind == 0:
        return chance.randbytes(chance.randrange(2000))
    if kind == 1:
        return mangled(encode_frame(_hello(chance)), chance)
    if kind == 2:  # a length that promises much
        return chance.randrange(4097, 2**32).to_bytes(4, "big") + chance.randbytes(chance.randrange(64))
    if kind == 3:
        whole = encode_frame(_hello(chance))
        return whole[: chance.randrange(len(whole))]
    if kind == 4:
        return encode_frame(_hello(chance))
    if kind == 5:
        fragment = chance.choice(_FRAGMENTS)
        return len(fragment).to_bytes(4, "big") + fragment
    if kind == 6:  # what only a proven peer may say, said without a proof
        return encode_frame({"report": report(chance)}) + encode_frame({"id": 1, "call": "status"})
    return b"GET / HTTP/1.1\r\nHost: coordinator\r\n\r\n" if chance.random() < 0.5 else b""


def insider(chance: random.Random, role: str) -> bytes:
    """The content of one frame of somebody who has proved that it knows the token."""
    message: Dict[str, Any] = {"report": report(chance)} if role == "agent" else _call(chance)
    kind = chance.randrange(4)
    if kind == 0:
        return encode_payload(message)
    if kind == 1:
        return mangled(encode_payload(message), chance)
    if kind == 2:
        return chance.choice(_FRAGMENTS)
    return encode_payload(_twisted(message, chance))


def report(chance: random.Random) -> Dict[str, Any]:
    """A report that is right, but of a node that nobody wants."""
    return {
        "node": f"hostile-{chance.randrange(50)}",
        "incarnation": f"{chance.randrange(4)}",
        "number": chance.randrange(1, 1000),
        "procs": chance.randrange(1, 9),
        "address": "127.0.0.1",
        "header": {"epoch": chance.randrange(3), "seq": chance.randrange(9), "round": chance.randrange(9)},
        "state": chance.choice(("idle", "stopping", "prepared", "running", "done", "failed", "fenced")),
        "epoch": chance.randrange(3),
        "round": chance.randrange(4),
        "port": chance.randrange(65536),
        "place": {
            "rank": 0,
            "nodes": chance.randrange(1, 5),
            "first_rank": 0,
            "world_size": 1,
            "master_addr": "127.0.0.1",
            "master_port": 1,
        },
        "beat": chance.random() < 0.5,
    }


def mangled(frame: bytes, chance: random.Random) -> bytes:
    """The frame with a few bytes flipped, lost, doubled or put in."""
    data = bytearray(frame)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(data) + 1)
        kind = chance.randrange(4)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            del data[at : at + chance.randrange(1, 9)]
        elif kind == 2:
            data[at:at] = data[at : at + chance.randrange(1, 33)]
        else:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
    return bytes(data)


def _hello(chance: random.Random) -> Dict[str, Any]:
    """Right in every respect but one: the token, the challenge, or the certificate."""
    nonce = new_nonce()
    role = chance.choice(("agent", "control"))
    wrong = proof(f"{chance.random()}", "peer", role, new_nonce(), nonce, chance.choice((PLAIN, "0" * 64)))
    return {"role": role, "nonce": nonce, "proof": wrong}


def _call(chance: random.Random) -> Dict[str, Any]:
    words: List[Any] = ["status", "memory", "nothing", "__class__", "", 7, None]
    return {"id": chance.choice((1, 2**53, "1", None)), "call": chance.choice(words), "self": 1, "wanted": "many"}


def _twisted(value: Any, chance: random.Random) -> Any:
    """The same shape with one part replaced by something of another kind, or left out."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        name = chance.choice(list(value))
        if chance.random() < 0.1:
            return {key: part for key, part in value.items() if key != name}
        return {**value, name: _twisted(value[name], chance)}
    odd: List[Any] = [None, [], {}, [value], {"a": value}, *_ODD_TEXT, *_ODD_NUMBERS]
    result = chance.choice(odd)
    return result if isinstance(result, (dict, list)) or json.dumps(result) else None
