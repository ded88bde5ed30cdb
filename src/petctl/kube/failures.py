"""What the API server's refusals mean for people: its Status objects as sentences. Pure.

    KubernetesError           something about Kubernetes went wrong, and the sentence says what to do (exit code 1)
    |-- NoSuchObject          the object, its namespace or its kind does not exist (4)
    |-- ObjectExists          there is an object of that name already
    |-- Conflict              somebody else has changed the object meanwhile: read it again, then change that
    |-- Gone                  a version is too old to go on from: list anew
    |-- Invalid               the server does not accept the object; every field that is wrong is named
    |-- NotRunning            the container does not run, not yet or no more
    |   `-- NotStarted        ... not yet: this may work in a moment
    |-- Forbidden             these credentials, or the namespace's policy, do not permit it (5)
    |   `-- QuotaExceeded     ... the namespace's quota does not
    |-- Unauthorised          the credentials are wrong or have expired (5)
    |-- ServerUnreachable     nobody answers, or the server says that it cannot now (6)
    `-- CommandFailed         a command in a pod could not be run, or its outcome is not known

Of an answer only the Status is shown; nothing of a request is, since it may hold secrets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from petctl.errors import PetctlError

_CANNOT = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>\S+) resource "(?P<resource>[^"]*)"(?: in API group "(?P<group>[^"]*)")?'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_NOT_STARTED = re.compile(r"is waiting to start|does not have a host assigned")
_BUSY = frozenset({429, 502, 503, 504})


class KubernetesError(PetctlError):
    """Something about Kubernetes went wrong. `status` is what the server said, where it said something."""

    def __init__(self, sentence: str, status: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.status: Mapping[str, Any] = status or {}


class NoSuchObject(KubernetesError):
    """The object, its namespace or its kind does not exist."""

    code = 4


class ObjectExists(KubernetesError):
    """There is an object of that name already."""


class Conflict(KubernetesError):
    """Somebody else has changed the object meanwhile."""


class Gone(KubernetesError):
    """A version, or the rest of a list, is too old to go on from: list anew."""


class Invalid(KubernetesError):
    """The server does not accept the object or the request."""


class NotRunning(KubernetesError):
    """The container does not run, not yet or no more."""


class NotStarted(NotRunning):
    """The container has not begun yet; this may work in a moment."""


class Forbidden(KubernetesError):
    """These credentials, or the namespace's policy, do not permit it."""

    code = 5


class QuotaExceeded(Forbidden):
    """The namespace's quota does not permit it."""


class Unauthorised(KubernetesError):
    """The server does not accept the credentials."""

    code = 5


class ServerUnreachable(KubernetesError):
    """Nobody answers, or the server says that it cannot now."""

    code = 6


class CommandFailed(KubernetesError):
    """A command in a pod could not be run, or its outcome is not known."""


def refusal(code: int, body: bytes, where: str, asked: str) -> KubernetesError:
    """The error that an HTTP answer stands for. `where`: server and context; `asked`: method and path."""
    status = _status(body)
    if status is None:
        if code == 401:
            return _unauthorised(where, {})
        if code in _BUSY:
            return unreachable(where, f"it answers {code}", {})
        text = body[:200].decode("utf-8", "replace").strip()
        if text.startswith("container not found"):  # in the kubelet's own words
            return NotRunning(f"{text}: it has not begun, or has ended ({where})")
        shown = f": {text}" if text and "<" not in text else ""
        doubt = "" if code >= 500 else "; is that a Kubernetes API server?"
        unknown = code == 404 and text == "404 page not found"  # what API servers say of a kind that they do not know
        return (NoSuchObject if unknown else KubernetesError)(f"{where} answered {asked} with {code}{shown}{doubt}")
    return from_status({"code": code, **status}, where, asked)


def from_status(status: Mapping[str, Any], where: str, asked: str = "") -> KubernetesError:
    """The error that a Status object stands for."""
    code, reason = status.get("code") or 0, str(status.get("reason") or "")
    message = str(status.get("message") or reason or f"it answers {code}").strip().rstrip(".")
    if code == 401:
        return _unauthorised(where, status)
    if code == 403:
        return _forbidden(message, where, status)
    if code == 404:
        return NoSuchObject(f"{message} ({where})", status)
    if code == 409:
        if reason == "AlreadyExists":
            return ObjectExists(f"{message} ({where}); choose another name, or remove it first", status)
        return Conflict(f"{message} ({where}); try again", status)
    if code == 410 or reason in ("Expired", "Gone"):
        return Gone(f"{message} ({where}); list the objects again", status)
    if _NOT_STARTED.search(message):
        return NotStarted(f"{message} ({where}); try again in a moment", status)
    if code in (400, 413, 422):
        return Invalid(f"{where} does not accept this: {_fields(status) or message}", status)
    if code in _BUSY or reason in ("ServerTimeout", "Timeout", "ServiceUnavailable"):
        return unreachable(where, message, status)
    return KubernetesError(f"{where} answered{f' {asked}' if asked else ''} with {code} {reason}: {message}", status)


def unreachable(where: str, reason: str, status: Mapping[str, Any] | None = None) -> ServerUnreachable:
    """Nobody answers, or not now."""
    return ServerUnreachable(f"cannot reach {where}: {reason}; check the address and the network", status)


def cut_off(where: str, what: str, reason: str = "", advice: str = "try again") -> ServerUnreachable:
    """The connection ended in the middle of something."""
    shown = f" ({reason})" if reason else ""
    return ServerUnreachable(f"{where}: the connection ended in the middle of {what}{shown}; {advice}")


def reason_of(error: BaseException) -> str:
    """Why a connection failed, in a few words."""
    verify = getattr(error, "verify_message", "")
    if verify:
        return f"its certificate is not trusted ({verify}); see certificate-authority of the kubeconfig's cluster"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _unauthorised(where: str, status: Mapping[str, Any]) -> Unauthorised:
    return Unauthorised(
        f"{where} does not accept the credentials: they are wrong or have expired; log in again, "
        "or see the user of this context in the kubeconfig",
        status,
    )


def _forbidden(message: str, where: str, status: Mapping[str, Any]) -> Forbidden:
    if "exceeded quota" in message or "failed quota" in message:
        return QuotaExceeded(f"{message} ({where}); request less, or stop something else first", status)
    found = _CANNOT.search(message)
    if found is None:
        return Forbidden(f"{message} ({where})", status)
    resource = found["resource"] + (f".{found['group']}" if found["group"] else "")
    space = f" in the namespace {found['namespace']!r}" if found["namespace"] else ""
    return Forbidden(
        f"the user {found['user']!r} may not {found['verb']} {resource}{space} of {where}; "
        "ask the cluster's administrator for the role in petctl's documentation",
        status,
    )


def _fields(status: Mapping[str, Any]) -> str:
    """Every field that the server complains about."""
    details = status.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    told = []
    for cause in causes if isinstance(causes, list) else []:
        field, message = str(cause.get("field") or ""), str(cause.get("message") or cause.get("reason") or "")
        told.append(f"{field}: {message}" if field else message)
    return "; ".join(dict.fromkeys(text for text in told if text))


def _status(body: bytes) -> dict[str, Any] | None:
    try:
        status = json.loads(body)
    except ValueError:
        return None
    return status if isinstance(status, dict) and status.get("kind") == "Status" else None
