"""The certificate of one job's coordinator, made by whoever submits the job or looks after it.

It is signed by itself and trusted by its digest alone (the join file's `pin`), so names and addresses in it are for
people. Nothing here listens or connects: that is `rendezvous/net/tls.py`.

Python's own library has TLS but makes no keys, and the operator has to run in any image that has Python: so this is
P-256 and as much of X.509 as one certificate takes, in the standard library. It must not become more than that. Why it
is good enough: key and nonce are fresh from `secrets` for the one signature that the key ever makes here; whoever could
time that, which takes milliseconds, is on the submitter's machine; TLS itself, with the same key, is OpenSSL's; and the
tests have OpenSSL and another library check every part of what is made.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import secrets
from typing import Iterable, NamedTuple, Tuple

_YEARS = 10  # peers check the pin, not the date; no job should end because of a calendar
_NAME = "petctl coordinator"

# P-256 (FIPS 186): y**2 = x**3 - 3x + b modulo _FIELD, and a point that gives all of its _ORDER points.
_FIELD = 2**256 - 2**224 + 2**192 + 2**96 - 1
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_BASE_X = 0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296
_BASE_Y = 0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5

_INTEGER, _BITS, _BYTES, _SEQUENCE, _SET = 0x02, 0x03, 0x04, 0x30, 0x31
_TRUE = b"\x01\x01\xff"
_PUBLIC_KEY = bytes.fromhex("06072a8648ce3d0201")  # OIDs, as they are encoded
_P256 = bytes.fromhex("06082a8648ce3d030107")
_ECDSA_SHA256 = bytes.fromhex("06082a8648ce3d040302")
_COMMON_NAME = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS = bytes.fromhex("0603551d13")
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")


class Certificate(NamedTuple):
    """PEM of certificate and private key, and the digest by which peers know it."""

    certificate: bytes
    key: bytes
    pin: str


def make_certificate(names: Iterable[str], addresses: Iterable[str]) -> Certificate:
    """A fresh key and certificate for a coordinator that is reached under these names and IP addresses."""
    private = 1 + secrets.randbelow(_ORDER - 1)
    x, y = _times_base(private)
    public = _bits(b"\x04" + _32_bytes(x) + _32_bytes(y))  # 4: both coordinates follow
    algorithm = _der(_SEQUENCE, _PUBLIC_KEY, _P256)
    body = _body(_der(_SEQUENCE, algorithm, public), names, addresses)
    certificate = _der(_SEQUENCE, body, _der(_SEQUENCE, _ECDSA_SHA256), _bits(_signature(private, body)))
    secret = _der(_SEQUENCE, _integer(1), _der(_BYTES, _32_bytes(private)), _der(0xA1, public))
    key = _der(_SEQUENCE, _integer(0), algorithm, _der(_BYTES, secret))
    pin = hashlib.sha256(certificate).hexdigest()
    return Certificate(_pem("CERTIFICATE", certificate), _pem("PRIVATE KEY", key), pin)


def _body(public_key: bytes, names: Iterable[str], addresses: Iterable[str]) -> bytes:
    """What is signed."""
    today = datetime.datetime.now(datetime.timezone.utc)
    from_until = today - datetime.timedelta(days=1), today + datetime.timedelta(days=365 * _YEARS)  # clocks differ
    subject = _der(_SEQUENCE, _der(_SET, _der(_SEQUENCE, _COMMON_NAME, _der(0x0C, _NAME.encode()))))
    extensions = [_der(_SEQUENCE, _BASIC_CONSTRAINTS, _TRUE, _der(_BYTES, _der(_SEQUENCE)))]  # empty: not for signing
    known_as = [_der(0x82, name.encode("idna")) for name in names]
    known_as += [_der(0x87, ipaddress.ip_address(address).packed) for address in addresses]
    if known_as:
        extensions.append(_der(_SEQUENCE, _ALTERNATIVE_NAMES, _der(_BYTES, _der(_SEQUENCE, *known_as))))
    return _der(
        _SEQUENCE,
        _der(0xA0, _integer(2)),  # version 3
        _integer(1 + secrets.randbits(158)),  # the serial number
        _der(_SEQUENCE, _ECDSA_SHA256),
        subject,  # who signed it
        _der(_SEQUENCE, *map(_time, from_until)),
        subject,
        public_key,
        _der(0xA3, _der(_SEQUENCE, *extensions)),
    )


def _signature(private: int, body: bytes) -> bytes:
    """ECDSA. Neither number can be 0 but by a chance of one in 2**256."""
    nonce = 1 + secrets.randbelow(_ORDER - 1)
    r = _times_base(nonce)[0] % _ORDER
    digest = int.from_bytes(hashlib.sha256(body).digest(), "big")
    s = pow(nonce, -1, _ORDER) * (digest + r * private) % _ORDER
    return _der(_SEQUENCE, _integer(r), _integer(s))


def _times_base(factor: int) -> Tuple[int, int]:
    """The base point, so many times; 0 < factor < _ORDER.

    Points are (x / z**2, y / z**3), so that there is only one division, at the end. The base point is never added to
    itself or to its opposite, which would take other formulas: the sum so far is an even multiple of it, and less than
    the factor."""
    x, y, z = _BASE_X, _BASE_Y, 1
    for bit in bin(factor)[3:]:
        # doubled
        square, slope = y * y % _FIELD, 3 * (x - z * z) * (x + z * z) % _FIELD
        four = 4 * x * square % _FIELD
        z = 2 * y * z % _FIELD
        x = (slope * slope - 2 * four) % _FIELD
        y = (slope * (four - x) - 8 * square * square) % _FIELD
        if bit == "1":  # and the base point added
            across, up = (_BASE_X * z * z - x) % _FIELD, (_BASE_Y * z * z * z - y) % _FIELD
            square = across * across % _FIELD
            cube, middle = across * square % _FIELD, x * square % _FIELD
            z = z * across % _FIELD
            x = (up * up - cube - 2 * middle) % _FIELD
            y = (up * (middle - x) - y * cube) % _FIELD
    shrink = pow(z, -1, _FIELD)
    return x * shrink**2 % _FIELD, y * shrink**3 % _FIELD


def _der(tag: int, *parts: bytes) -> bytes:
    """One value: what it is, how long, and its content."""
    content = b"".join(parts)
    size = len(content)
    if size < 128:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 128 + len(length)]) + length + content


def _integer(number: int) -> bytes:
    return _der(_INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))  # the first bit is a sign


def _bits(content: bytes) -> bytes:
    return _der(_BITS, b"\0", content)  # none of the last byte's bits is left over


def _time(moment: datetime.datetime) -> bytes:
    """Two digits for the year mean one before 2050."""
    if moment.year < 2050:
        return _der(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())
    return _der(0x18, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _32_bytes(number: int) -> bytes:
    return number.to_bytes(32, "big")


def _pem(kind: str, der: bytes) -> bytes:
    text = base64.b64encode(der).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""]).encode()
