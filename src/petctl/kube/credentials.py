"""How a cluster is reached, and who one is there: headers and a client certificate, fresh for every connection and
request.

Files are read again when they change, because tokens in pods are replaced every hour. What a program makes
(`credential_plugin.py`) is kept until it runs out. Nothing here is ever shown or written.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path
from typing import Protocol

from petctl.errors import UsageError

Header = tuple[str, str]


class Identity(Protocol):
    """A source of tokens or certificates whose results run out."""

    def token(self) -> str:
        """The bearer token that is right now; empty where there is none."""

    def certificate(self) -> tuple[str, str] | None:
        """PEM of certificate and key, or None."""

    def renew(self) -> bool:
        """The server did not accept it: forget it. Whether another one can be had."""


class Nobody:
    """Neither token nor certificate."""

    def token(self) -> str:
        """None."""
        return ""

    def certificate(self) -> tuple[str, str] | None:
        """None."""
        return None

    def renew(self) -> bool:
        """There is nothing else."""
        return False


class TokenFile(Nobody):
    """A token in a file that somebody else replaces; `otherwise` while it cannot be read."""

    def __init__(self, path: Path, origin: str, otherwise: str = "") -> None:
        self._path = path
        self._origin = origin
        self._otherwise = otherwise
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._token = ""

    def token(self) -> str:
        """What the file holds now."""
        with self._lock:
            try:
                found = os.stat(self._path)  # noqa: PTH116 - the target of links: pods replace those
                seen = (found.st_ino, found.st_size, found.st_mtime_ns)
                if seen != self._seen:
                    self._token = self._path.read_text(encoding="utf-8").strip()
                    self._seen = seen
            except (OSError, UnicodeDecodeError) as error:
                if self._token or self._otherwise:
                    return self._token or self._otherwise
                raise UsageError(f"{self._origin}: cannot read the token in {self._path}: {error}") from None
            return self._token or self._otherwise

    def renew(self) -> bool:
        """Whether the file holds another token by now."""
        with self._lock:
            before, self._seen = self._token, None
        return self.token() != before


@dataclasses.dataclass(frozen=True)
class Credentials:
    """All that proves who one is. `certificate` and `token` are the fixed ones; `identity` makes others."""

    token: str = ""
    certificate: tuple[str, str] | None = None
    basic: tuple[str, str] | None = None
    identity: Identity = dataclasses.field(default_factory=Nobody)
    others: tuple[Header, ...] = ()
    """Whom to act as (impersonation)."""

    @property
    def any(self) -> bool:
        """Whether there is anything to prove it with."""
        return bool(self.token or self.certificate or self.basic) or type(self.identity) is not Nobody

    def headers(self) -> list[Header]:
        """What each request carries."""
        token = self.identity.token() or self.token
        if token:
            return [("Authorization", f"Bearer {token}"), *self.others]
        if self.basic is not None:
            import base64

            joined = base64.b64encode(":".join(self.basic).encode()).decode()
            return [("Authorization", f"Basic {joined}"), *self.others]
        return list(self.others)

    def client_certificate(self) -> tuple[str, str] | None:
        """PEM of certificate and key for the next connection, if any."""
        return self.identity.certificate() or self.certificate

    def renew(self) -> bool:
        """The server did not accept them: whether others can be had."""
        return self.identity.renew()


@dataclasses.dataclass(frozen=True)
class Access:
    """A server, a namespace in it, whom to trust, and who one is."""

    server: str
    """URL, maybe with a path: some clusters are behind a gateway."""

    namespace: str
    credentials: Credentials = dataclasses.field(repr=False)
    context: str = ""
    source: str = ""
    """Where all this was found, for error messages."""

    authority: str = dataclasses.field(default="", repr=False)
    """PEM of the certificate authorities; empty: those of this machine."""

    verify: bool = True
    server_name: str = ""
    """The name in the server's certificate, where it is not that of the URL."""

    proxy: str = ""
    answer_within: float = 60.0
    """Seconds without a byte of an answer."""

    @property
    def where(self) -> str:
        """The cluster, as error messages call it."""
        return f"the Kubernetes API server {self.server}" + (f" (context {self.context})" if self.context else "")
