"""Certificates that petctl makes by itself: OpenSSL and the library that others use agree with every part of them."""

from __future__ import annotations

import hashlib
import ipaddress
import ssl
from datetime import datetime, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from petctl.clusters import certificate as making
from petctl.clusters.certificate import Certificate, make_certificate

NAMES = ["localhost", "train-3f9k.research.svc"]
ADDRESSES = ["127.0.0.1", "fd00::1"]


def parsed(made: Certificate) -> x509.Certificate:
    return x509.load_pem_x509_certificate(made.certificate)


def alternatives(made: Certificate) -> x509.SubjectAlternativeName:
    return parsed(made).extensions.get_extension_for_class(x509.SubjectAlternativeName).value


def test_two_hundred_of_them_are_right() -> None:
    serials = set()
    for _ in range(200):
        made = make_certificate(NAMES, ADDRESSES)
        found = parsed(made)
        key = serialization.load_pem_private_key(made.key, None)
        assert isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1)
        assert key.public_key() == found.public_key()
        assert isinstance(found.signature_hash_algorithm, hashes.SHA256)
        found.verify_directly_issued_by(found)
        assert hashlib.sha256(found.public_bytes(serialization.Encoding.DER)).hexdigest() == made.pin
        serials.add(found.serial_number)
    assert len(serials) == 200 and all(0 < serial < 1 << 159 for serial in serials)


def test_what_it_says() -> None:
    made = make_certificate(NAMES, ADDRESSES)
    found = parsed(made)
    assert found.version is x509.Version.v3
    assert found.subject == found.issuer and found.subject.rfc4514_string() == "CN=petctl coordinator"
    assert found.not_valid_before_utc < datetime.now(timezone.utc) < found.not_valid_after_utc
    assert (found.not_valid_after_utc - found.not_valid_before_utc).days == 3651
    constraints = found.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical and not constraints.value.ca
    assert alternatives(made).get_values_for_type(x509.DNSName) == NAMES
    assert alternatives(made).get_values_for_type(x509.IPAddress) == [ipaddress.ip_address(one) for one in ADDRESSES]


def test_without_a_name_it_says_none() -> None:
    assert [extension.oid._name for extension in parsed(make_certificate([], [])).extensions] == ["basicConstraints"]


def test_many_names_and_those_of_other_languages() -> None:
    many = [f"host-{number}.example.org" for number in range(3000)]
    assert alternatives(make_certificate(many, [])).get_values_for_type(x509.DNSName) == many
    foreign = make_certificate(["münchen.example"], [])
    assert alternatives(foreign).get_values_for_type(x509.DNSName) == ["xn--mnchen-3ya.example"]


def test_years_from_2050_on_are_written_in_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making, "_YEARS", 60)
    found = parsed(make_certificate([], []))
    assert (found.not_valid_after_utc - found.not_valid_before_utc).days == 365 * 60 + 1
    assert found.not_valid_after_utc.year >= 2080


@pytest.mark.parametrize(
    "factor", [1, 2, 3, 4, 5, 1 << 255, (1 << 256) // 3, making._ORDER - 3, making._ORDER - 2, making._ORDER - 1]
)
def test_points_of_the_curve_at_its_edges(factor: int) -> None:
    expected = ec.derive_private_key(factor, ec.SECP256R1()).public_key().public_numbers()
    assert making._times_base(factor) == (expected.x, expected.y)


def shake_hands(server: ssl.SSLObject, client: ssl.SSLObject, wires: tuple[ssl.MemoryBIO, ...]) -> None:
    """Both sides of one, in this thread; what a side refuses is raised."""
    to_server, from_server, to_client, from_client = wires
    waiting = [client, server]
    while waiting:
        for side in list(waiting):
            try:
                side.do_handshake()
                waiting.remove(side)
            except ssl.SSLWantReadError:
                pass
            to_server.write(from_client.read())
            to_client.write(from_server.read())


def connect(made: Certificate, directory: Path, trusted: Certificate, host: str) -> ssl.SSLObject:
    (directory / "cert.pem").write_bytes(made.certificate)
    (directory / "key.pem").write_bytes(made.key)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(directory / "cert.pem", directory / "key.pem")
    asking = ssl.create_default_context(cadata=trusted.certificate.decode())
    wires = tuple(ssl.MemoryBIO() for _ in range(4))
    server = serving.wrap_bio(wires[0], wires[1], server_side=True)
    client = asking.wrap_bio(wires[2], wires[3], server_hostname=host)
    shake_hands(server, client, wires)
    client.write(b"hello")
    wires[0].write(wires[3].read())
    assert server.read() == b"hello"
    return client


@pytest.mark.parametrize("host", [*NAMES, *ADDRESSES])
def test_openssl_talks_to_whoever_has_one_and_knows_it_by_name_and_pin(host: str, tmp_path: Path) -> None:
    made = make_certificate(NAMES, ADDRESSES)
    shown = connect(made, tmp_path, made, host).getpeercert(binary_form=True)
    assert shown is not None and hashlib.sha256(shown).hexdigest() == made.pin


def test_openssl_refuses_another_name_and_another_certificate(tmp_path: Path) -> None:
    made = make_certificate(NAMES, ADDRESSES)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        connect(made, tmp_path, made, "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(made, tmp_path, make_certificate(NAMES, ADDRESSES), "localhost")


def test_a_changed_certificate_is_not_signed_any_more() -> None:
    """That the checks above can fail: they look at the signature."""
    made = make_certificate(["one.example"], [])
    der = parsed(made).public_bytes(serialization.Encoding.DER).replace(b"one.example", b"two.example")
    with pytest.raises(InvalidSignature):
        x509.load_der_x509_certificate(der).verify_directly_issued_by(parsed(made))
