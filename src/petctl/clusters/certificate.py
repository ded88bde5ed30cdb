"""The certificate of one job's coordinator, made by the submitting side.

It is signed by itself and trusted by its digest alone (the join file's `pin`), so names and addresses in it are for
people. Nothing here listens or connects: that is `rendezvous/tls.py`. Importing this module costs nothing;
cryptography is loaded when a certificate is made.
"""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
from collections.abc import Iterable
from typing import NamedTuple

_YEARS = 10  # peers check the pin, not the date; no job should end because of a calendar


class Certificate(NamedTuple):
    """PEM of certificate and private key, and the digest by which peers know it."""

    certificate: bytes
    key: bytes
    pin: str


def make_certificate(names: Iterable[str], addresses: Iterable[str]) -> Certificate:
    """A fresh key and certificate for a coordinator that is reached under these names and IP addresses."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "petctl coordinator")])
    known_as: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    known_as += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    today = datetime.datetime.now(datetime.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=1))  # clocks differ
        .not_valid_after(today + datetime.timedelta(days=365 * _YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if known_as:
        builder = builder.add_extension(x509.SubjectAlternativeName(known_as), critical=False)
    certificate = builder.sign(key, hashes.SHA256())
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        hashlib.sha256(certificate.public_bytes(serialization.Encoding.DER)).hexdigest(),
    )
