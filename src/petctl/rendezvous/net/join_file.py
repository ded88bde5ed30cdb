"""The join file: everything a node or a command line needs to reach one job's coordinator, and to be let in.

It holds the job's token or, for nodes, the one that is derived from it and only lets them take part; so it is written
readable by its owner only. It names the coordinator by a locator (see
`locator.py`), never by a fixed connection. This module reads and writes the file; it connects to nothing.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Union

from petctl import files
from petctl.errors import UsageError
from petctl.rendezvous.net.frames import node_token

_LOCATORS = ("address", "file", "dns", "url")


@dataclass(frozen=True)
class JoinFile:
    """How to reach a job's coordinator. `pin`: SHA-256 of its certificate, empty on loopback.

    `control`: the token is the job's own, with which it can also be steered; else a node's.
    """

    job: str
    token: str = field(repr=False)
    pin: str
    locator: Mapping[str, str]
    revive: Optional[Mapping[str, Any]] = None  # local cluster: how an agent brings the supervisor back
    control: bool = True

    @property
    def node_token(self) -> str:
        """What an agent proves that it knows."""
        return node_token(self.token) if self.control else self.token

    def for_nodes(self) -> JoinFile:
        """The same, as nodes may have it."""
        return replace(self, token=self.node_token, control=False)

    def for_control(self, token: str) -> JoinFile:
        """The same, with the job's own token."""
        return replace(self, token=token, control=True)


def read_join_file(path: Union[str, os.PathLike[str]]) -> JoinFile:
    """The join file at `path`, or a UsageError that says what is wrong with it."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the join file {path}: {error.strerror}. {_REMEDY}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"the join file {path} is not JSON. {_REMEDY}") from None
    try:
        return decode_join(data)
    except ValueError as error:
        raise UsageError(f"the join file {path} {error}. {_REMEDY}") from None


def write_join_file(path: Union[str, os.PathLike[str]], join: JoinFile) -> None:
    """Writes it for its owner's eyes only; whoever reads `path` meanwhile sees the old file or the new one, whole."""
    files.replace(path, json.dumps(encode_join(join), indent=1) + "\n", mode=0o600)


_REMEDY = "`petctl token JOB` writes a new one"


def encode_join(join: JoinFile) -> Dict[str, Any]:
    """What a join file holds."""
    content: Dict[str, Any] = {"job": join.job, "token": join.token, "pin": join.pin, "locator": dict(join.locator)}
    if join.revive is not None:
        content["revive"] = dict(join.revive)
    return content if join.control else {**content, "control": False}


def decode_join(data: object) -> JoinFile:
    """What a join file holds; ValueError says what is wrong with it."""
    if not isinstance(data, dict):
        raise ValueError("is not a JSON object")
    for name in ("job", "token"):
        if not isinstance(data.get(name), str) or not data[name]:
            raise ValueError(f"has no {name!r}")
    pin = data.get("pin", "")
    if not isinstance(pin, str) or (pin and (len(pin) != 64 or set(pin.lower()) - set("0123456789abcdef"))):
        raise ValueError("has a 'pin' that is not the SHA-256 of a certificate in hex")
    locator = data.get("locator")
    if not isinstance(locator, dict) or not any(isinstance(locator.get(kind), str) for kind in _LOCATORS):
        raise ValueError("has no 'locator' with an " + ", ".join(_LOCATORS[:-1]) + f" or {_LOCATORS[-1]}")
    revive = data.get("revive")
    if revive is not None and not isinstance(revive, dict):
        raise ValueError("has a 'revive' that is not an object")
    words = {kind: value for kind, value in locator.items() if isinstance(value, str)}
    return JoinFile(data["job"], data["token"], pin.lower(), words, revive, data.get("control") is not False)
