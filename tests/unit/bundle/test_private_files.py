"""What looks like a secret is refused by name, and what does not is left alone.

The samples are made of pieces, so that this file does not look like one itself.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import petctl
from petctl.bundle import hashing, take
from petctl.bundle.private_files import LARGEST, why_private
from petctl.errors import UsageError
from tests.unit.bundle.conftest import Grow

DASHES = b"-" * 5
KEY_LINES = b"MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n" * 3
PRIVATE_KEY = DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b"\n" + KEY_LINES
ENCRYPTED = DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b"\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,00\n\n" + KEY_LINES
SSH_KEY = DASHES + b"BEGIN OPENSSH PRIVATE KEY" + DASHES + b"\n" + b"b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ\n"
SERVICE_ACCOUNT = b'{"private_key": "' + PRIVATE_KEY.replace(b"\n", b"\\n") + b'"}'
AWS = b"aws_access_key_id = AKIA" + b"J5Q7ZKX2M4N6P8R3\naws_secret_access_key = " + b"a1B2c3D4e5" * 4 + b"\n"
AWS_EXAMPLE = b"id = AKIA" + b"IOSFODNN7EXAMPLE\nsecret_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + b"EXAMPLEKEY\n"
ACCOUNT = b"AccountName=x;AccountKey=" + b"aB3+" * 21 + b"aB==;EndpointSuffix=core"
EMULATOR = b"AccountKey=Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==;"
SAS = b"https://x.blob.core.windows.net/c?sv=2021&se=2030-01-01T00:00:00Z&sr=c&sig=" + b"aB3" * 14 + b"a%3D"

JOIN = (
    b'{\n "job": "mnist-3f9k",\n "token": "'
    + b"a1" * 32
    + b'",\n "pin": "",\n "locator": {"address": "10.0.0.5:4000"}\n}\n'
)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (".env", b""),
        ("app/.env.production", b"x"),
        ("keys/id_ed25519", b""),
        ("cert.pfx", b""),
        ("a/b.p12", b""),
        (".netrc", b""),
        (".pypirc", b""),
        ("home/.aws/credentials", b""),
        (".kube/config", b""),
        ("dev.kubeconfig", b""),
        ("server.pem", PRIVATE_KEY),
        ("server.key", ENCRYPTED),
        ("deploy", SSH_KEY),
        ("account.json", SERVICE_ACCOUNT),
        ("config.py", b'KEY = """' + PRIVATE_KEY + b'"""'),
        ("settings.yaml", AWS),
        ("train.sh", ACCOUNT),
        ("notes.md", SAS),
        ("mnist-3f9k.join.json", JOIN),
        ("big.p12", None),
    ],
)
def test_secrets(path: str, data: bytes | None) -> None:
    """Each with a reason."""
    assert why_private(path, data)


@pytest.mark.parametrize(
    ("path", "data"),
    [
        (".env.example", b"KEY="),
        ("env", b""),
        (".envrc", b""),
        ("id_rsa.pub", b"ssh-rsa AAAA"),
        ("cert.pem", DASHES + b"BEGIN CERTIFICATE" + DASHES + b"\n" + KEY_LINES),
        ("parser.py", b'HEADER = "' + DASHES + b"BEGIN RSA PRIVATE KEY" + DASHES + b'"\nFOOTER = "x"\n'),
        ("docs.md", DASHES + b"BEGIN PRIVATE KEY" + DASHES + b"\n...\n"),
        ("docs.md", AWS_EXAMPLE),
        ("ids.txt", AWS.partition(b"\n")[0]),
        ("test.py", EMULATOR),
        ("client.py", b'params = {"sig": signature, "se": expiry}  # ?sig=...&se=...'),
        ("credentials", b"a module"),
        ("config", b"[core]"),
        ("big.bin", None),
    ],
)
def test_no_secrets(path: str, data: bytes | None) -> None:
    """An alarm that is often wrong gets switched off."""
    assert why_private(path, data) == ""


def test_petctl_itself_raises_no_alarm() -> None:
    """It talks about keys a lot."""
    take(Path(petctl.__file__).parent)


def test_all_are_named_at_once_and_can_be_allowed(grow: Grow) -> None:
    """By a path, a name or a pattern."""
    root = grow({".env": "x", "keys/server.pem": PRIVATE_KEY, "sub/.env.local": "x", "main.py": ""})
    with pytest.raises(UsageError) as caught:
        take(root, allow_secrets=["sub/*"])
    text = str(caught.value)
    assert "2 files that look like secrets" in text and "sub/.env.local" not in text
    assert "\n  .env: environment files" in text and "\n  keys/server.pem: holds a private key" in text
    assert len(take(root, allow_secrets=["*.pem", ".env", "sub/.env.local"]).entries) == 4


def test_the_verdict_is_remembered(grow: Grow, tmp_path: Path, settle: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unchanged file is refused again, without being read again."""
    root, cache = grow({"server.pem": PRIVATE_KEY}), tmp_path / "cache"
    with pytest.raises(UsageError, match=r"1 file that looks like secrets.*\n  server\.pem"):
        take(root, cache=cache)
    monkeypatch.setattr(hashing, "read", None)
    with pytest.raises(UsageError, match=r"server\.pem"):
        take(root, cache=cache)


def test_the_content_of_big_files_is_not_looked_at(grow: Grow) -> None:
    """They are data; looking would cost."""
    assert take(grow({"dump": PRIVATE_KEY + bytes(LARGEST)})).hashed == 1
