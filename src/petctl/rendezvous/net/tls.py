"""TLS with a pinned certificate: what a coordinator off loopback speaks, and how a peer knows it by its pin.

No certificate authority and no host names: the join file carries the SHA-256 of the one certificate that is right, and
the proof of the token is bound to it. Imported only where TLS is spoken, because importing ssl takes a while.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path
from typing import Optional, Union

from petctl.errors import AuthError, UsageError


def server_context(certificate: Union[str, Path], key: Union[str, Path]) -> ssl.SSLContext:
    """What a coordinator speaks off loopback."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(str(certificate), str(key))
    except OSError as error:
        raise UsageError(f"cannot use the certificate {certificate} with the key {key}: {error}") from None
    return context


def use_small_buffers() -> None:
    """Has asyncio keep one TLS record's worth of bytes to read into for each connection, instead of 256 KiB."""
    from asyncio import sslproto

    if hasattr(sslproto.SSLProtocol, "max_size"):
        sslproto.SSLProtocol.max_size = 16 << 10


def client_context() -> ssl.SSLContext:
    """Encrypts, and trusts nobody yet: `check_pin` does, before anything is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def certificate_pin(certificate: Union[str, Path]) -> str:
    """The pin of a PEM file: SHA-256 of the certificate, in hex. It is also the `binding` of its coordinator."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(Path(certificate).read_text(encoding="ascii"))).hexdigest()


def check_pin(presented: Optional[bytes], pin: str) -> None:
    """AuthError unless the certificate that the other side has presented is the one that is pinned."""
    if not presented or hashlib.sha256(presented).hexdigest() != pin:
        raise AuthError(
            "the coordinator's certificate is not the one pinned in the join file: another server answers there"
        )
