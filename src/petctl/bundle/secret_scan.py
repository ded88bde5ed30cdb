"""Files that look like secrets, by their name or by their bytes: they are refused before anything leaves this machine.

A wrong alarm costs the user a pattern, a missed one a leaked key; but an alarm that is often wrong gets switched off.
So bytes count only where the secret itself is there (key material, not a header; a signature, not the name of one), and
the keys that vendors publish as examples do not count. What secrets look like is data (`secret_rules.py`). It must not
open files: it is shown bytes that were read anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from petctl.bundle.secret_rules import (
    EXAMPLE_ENDINGS,
    EXAMPLE_WORDS,
    NAMES,
    PATHS,
    PUBLISHED,
    RULES,
    Rule,
)
from petctl.errors import UsageError

LARGEST = 1 << 20  # bytes; what is bigger is data, and its content is not looked at

_NAME = re.compile("|".join(f"(?:{pattern.replace('.', '[.]').replace('*', '.*')})$" for pattern in NAMES))
_LAST_NAMES = frozenset(path.rpartition("/")[2] for path in PATHS)
_FLAT = bytes(ord("a") if chr(code).isalnum() and code < 128 else ord(" ") for code in range(256))
_RUN = b"a" * 20
_AROUND = 200
_VARIABLE = re.compile(
    "(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|PAT|CREDENTIALS?|SAS)$|_(?:API|ACCESS)KEY$"
)
_SHORTEST_SECRET = 8
_FEWEST_LETTERS = 8  # different ones: what is made of fewer was typed by somebody


def why_private(path: str, data: bytes | None) -> str:
    """What secret this file seems to hold, or an empty string; `data` is None for a file too big to look at."""
    return _by_name(path) or ("" if data is None else _by_content(data, path.rpartition("/")[2]))


def refuse(found: Iterable[tuple[str, str]], allowed: Sequence[str]) -> None:
    """Names all files that look like secrets and that no pattern allows, at once."""
    left = [(path, why) for path, why in found if not any(_matches(path, pattern) for pattern in allowed)]
    if left:
        lines = "".join(f"\n  {path}: {why}" for path, why in left[:20])
        more = f"\n  and {len(left) - 20} more" if len(left) > 20 else ""
        raise UsageError(
            f"{len(left)} file{'s' * (len(left) > 1)} that look{'s' * (len(left) == 1)} like secrets would be in the "
            f"snapshot:{lines}{more}\n"
            "Ignore them in .petctlignore (or .gitignore) and give the job its secrets with "
            "`petctl secret set`; allow false alarms with --allow-secret PATTERN."
        )


def secret_variables(environment: Mapping[str, str]) -> list[str]:
    """The variables that seem to hold a secret, by their name or by their value."""
    return [name for name, value in environment.items() if _is_secret_value(name, value)]


def _is_secret_value(name: str, value: str) -> bool:
    if len(value) < _SHORTEST_SECRET or value.startswith(("/", "./", "~")):  # too short, or the path of a file
        return False
    if _VARIABLE.search(name.upper()) and not any(word in value.lower().encode() for word in EXAMPLE_WORDS):
        return True
    return bool(_by_content(f"{name}={value}\n".encode()))


def _matches(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern) or fnmatchcase(path.rpartition("/")[2], pattern)


def _by_name(path: str) -> str:
    name = path.rpartition("/")[2]
    if _NAME.match(name) and not name.endswith(EXAMPLE_ENDINGS):
        return next(why for pattern, why in NAMES.items() if fnmatchcase(name, pattern))
    if name in _LAST_NAMES:
        return next((why for end, why in PATHS.items() if f"/{path}".endswith(f"/{end}")), "")
    return ""


def _by_content(data: bytes, name: str = "") -> str:
    near = _around_runs(data)
    for rule in RULES:
        if rule.files and not fnmatchcase(name, rule.files):
            continue
        place = data if rule.anywhere else near
        if any(anchor in place for anchor in rule.anchors) and _holds(rule, data):
            return f"holds {rule.what}"
    return ""


def _around_runs(data: bytes) -> bytes:
    """What lies around long runs of letters and digits: a small part of most files, and every token has one."""
    flat = data.translate(_FLAT)
    pieces = []
    place = flat.find(_RUN)
    while place >= 0:
        end = flat.find(b" ", place)
        stop = (len(data) if end < 0 else end) + _AROUND
        pieces.append(data[max(0, place - _AROUND) : stop])
        place = flat.find(_RUN, stop)
    return b"\n".join(pieces)


def _holds(rule: Rule, data: bytes) -> bool:
    if rule.beside and not any(map(_is_real, re.finditer(rule.beside, data))):
        return False
    return any(map(_is_real, re.finditer(rule.shape, data)))


def _is_real(found: re.Match[bytes]) -> bool:
    """Whether it can be a secret, and not what vendors and authors of manuals write in the place of one."""
    if not found.re.groups:
        return True
    secret = found[1]
    low = secret.lower()
    if secret in PUBLISHED or any(word in low for word in EXAMPLE_WORDS):
        return False
    return len(set(secret)) >= _FEWEST_LETTERS
