"""Files that look like secrets, by their name or by their bytes: they are refused before anything leaves this machine.

A wrong alarm costs the user a pattern, a missed one a leaked key; but an alarm that is often wrong gets switched off.
So bytes count only where the secret itself is there (key material, not a header; a signature, not the name of one), and
the keys that vendors publish as examples do not count. It must not open files: it is shown bytes that were read anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from petctl.errors import UsageError

LARGEST = 1 << 20  # bytes; what is bigger is data, and its content is not looked at
RULES = 2  # to be raised when a rule changes: remembered verdicts are then void

_EXAMPLES = (".example", ".sample", ".template", ".dist", ".defaults")
_NAMES = {
    ".env": "environment files usually hold keys",
    ".env.*": "environment files usually hold keys",
    "id_rsa": "an SSH key",
    "id_dsa": "an SSH key",
    "id_ecdsa": "an SSH key",
    "id_ed25519": "an SSH key",
    "*.pfx": "a certificate with its private key",
    "*.p12": "a certificate with its private key",
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".pypirc": "passwords",
    ".git-credentials": "passwords",
    "kubeconfig": "access to a Kubernetes cluster",
    "*.kubeconfig": "access to a Kubernetes cluster",
}
_PATHS = {
    ".aws/credentials": "AWS keys",
    ".kube/config": "access to a Kubernetes cluster",
    ".docker/config.json": "passwords of image registries",
}
_NAME = re.compile("|".join(f"(?:{pattern.replace('.', '[.]').replace('*', '.*')})$" for pattern in _NAMES))
_EMULATOR_KEY = b"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

# A header, then lines of at least 40 characters of key; in JSON and in string literals line breaks are spelt \n.
_BREAK = rb"(?:\\[rn]|[\s\"'+\\])+"
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
    + _BREAK
    + rb"(?:[A-Za-z-]+: [^\n\\]*"
    + _BREAK
    + rb")*[A-Za-z0-9+/]{40}"
)
_AWS_ID = re.compile(rb"(?<![A-Z0-9])AKIA(?![0-9A-Z]{9}EXAMPLE)[0-9A-Z]{16}(?![A-Z0-9])")
_AWS_SECRET = re.compile(rb"(?i:secret).{0,40}[^A-Za-z0-9/+][A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_ACCOUNT_KEY = re.compile(rb"AccountKey=([A-Za-z0-9+/]{86}==)")
_SIGNATURE = re.compile(rb"[?&;\"']sig=(?:[A-Za-z0-9+/]|%2[bBfF]){43}(?:=|%3[dD])")
_EXPIRY = re.compile(rb"[?&;\"']se=\d{4}-\d\d-\d\d")
_JOB_TOKEN = re.compile(rb"\"token\": \"[0-9a-f]{64}\"")
_CLIENT_KEY = re.compile(rb"(?m)^\s*client-key-data: *[A-Za-z0-9+/]{40}")


def why_private(path: str, data: bytes | None) -> str:
    """What secret this file seems to hold, or an empty string; `data` is None for a file too big to look at."""
    return _by_name(path) or ("" if data is None else _by_content(data))


def refuse(found: Iterable[tuple[str, str]], allowed: Sequence[str]) -> None:
    """Names all files that look like secrets and that no pattern allows, at once."""
    left = [(path, why) for path, why in found if not any(_matches(path, pattern) for pattern in allowed)]
    if left:
        lines = "".join(f"\n  {path}: {why}" for path, why in left[:20])
        more = f"\n  and {len(left) - 20} more" if len(left) > 20 else ""
        raise UsageError(
            f"{len(left)} file{'s' * (len(left) > 1)} that look{'s' * (len(left) == 1)} like secrets would be in the "
            f"snapshot:{lines}{more}\n"
            "Ignore them in .petctlignore (or .gitignore) and give the job its secrets with `petctl secret set`; "
            "what is none after all, allow with --allow-secret PATTERN."
        )


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition("/")[2], pattern)


def _by_name(path: str) -> str:
    name = path.rpartition("/")[2]
    if _NAME.match(name) and not name.endswith(_EXAMPLES):
        return next(why for pattern, why in _NAMES.items() if fnmatchcase(name, pattern))
    if name in ("credentials", "config", "config.json"):
        return next((why for end, why in _PATHS.items() if f"/{path}".endswith(f"/{end}")), "")
    return ""


def _by_content(data: bytes) -> str:
    """The cheap questions first: most files hold none of these words."""
    if b"PRIVATE KEY" in data and _PRIVATE_KEY.search(data):
        return "holds a private key"
    if b"AKIA" in data and _AWS_ID.search(data) and _AWS_SECRET.search(data):
        return "holds an AWS key with its secret"
    if b"AccountKey=" in data and any(key != _EMULATOR_KEY for key in _ACCOUNT_KEY.findall(data)):
        return "holds the key of an Azure storage account"
    if b"sig=" in data and any(_SIGNATURE.search(line) and _EXPIRY.search(line) for line in data.splitlines()):
        return "holds a signed URL (SAS) of Azure"
    if b"client-key-data:" in data and _CLIENT_KEY.search(data):
        return "holds the key of a Kubernetes user"
    if b'"locator"' in data and _JOB_TOKEN.search(data):
        return "holds the token of a job (petctl token)"
    return ""
