"""Credentials that a program of the user's makes (`exec` in a kubeconfig), as all clouds' log-ins work.

The program is told in KUBERNETES_EXEC_INFO what is asked of it and prints an ExecCredential. It may ask the user
something where there is a terminal. Its answer is kept in memory until it runs out, never on disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from petctl.errors import PetctlError, UsageError
from petctl.unattended import is_attended

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
WITHIN = 120.0  # seconds for a program that asks nobody
EARLY = 5.0  # seconds before the end at which credentials are taken for expired: a request takes its time
MODES = ("Never", "IfAvailable", "Always")


class LoginFailed(PetctlError):
    """The program that makes credentials made none."""

    code = 5


@dataclasses.dataclass(frozen=True)
class Program:
    """What to run, as the kubeconfig says it. `origin` names the place there."""

    origin: str
    version: str
    command: str
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    mode: str = "IfAvailable"
    cluster: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class _Made:
    token: str
    certificate: tuple[str, str] | None
    until: float | None

    @property
    def fresh(self) -> bool:
        return self.until is None or time.time() < self.until - EARLY


class Plugin:
    """An identity made by a program; any number of threads wait for one run of it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._made: _Made | None = None

    def token(self) -> str:
        """The token that it made; empty where it makes certificates."""
        return self._current().token

    def certificate(self) -> tuple[str, str] | None:
        """Certificate and key that it made, if any."""
        return self._current().certificate

    def renew(self) -> bool:
        """Forgets what it made, so that it is run again."""
        with self._lock:
            self._made = None
        return True

    def _current(self) -> _Made:
        with self._lock:
            if self._made is None or not self._made.fresh:
                self._made = _read(self._program, _run(self._program))
            return self._made


def _run(program: Program) -> bytes:
    """What it printed."""
    terminal = sys.stdin is not None and sys.stdin.isatty()
    interactive = program.mode != "Never" and terminal and is_attended()
    if program.mode == "Always" and not interactive:
        why = "there is no terminal; log in at a terminal first, or use credentials that need none"
        if terminal:
            why = "it cannot ask while several clusters are queried; select this one with -c"
        asks = f"{program.command} needs a terminal to ask the user (interactiveMode: Always)"
        raise LoginFailed(f"{program.origin}: {asks}, and {why}")
    asked: dict[str, Any] = {"interactive": interactive}
    if program.cluster is not None:
        asked["cluster"] = program.cluster
    information = {"kind": "ExecCredential", "apiVersion": program.version, "spec": asked}
    environment = {**os.environ, **dict(program.environment), "KUBERNETES_EXEC_INFO": json.dumps(information)}
    try:
        done = subprocess.run(
            [program.command, *program.arguments],
            env=environment,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,  # questions must be seen; complaints are quoted below
            timeout=None if interactive else WITHIN,
        )
    except FileNotFoundError:
        hint = f"; {program.hint.strip()}" if program.hint else "; install it, or correct `command`"
        raise LoginFailed(f"{program.origin}: {program.command} was not found{hint}") from None
    except subprocess.TimeoutExpired:
        raise LoginFailed(
            f"{program.origin}: {program.command} gave no credentials within {WITHIN:.0f} s; run it by hand to see why"
        ) from None
    except OSError as error:
        raise LoginFailed(f"{program.origin}: {program.command} cannot be run: {error.strerror or error}") from None
    if done.returncode != 0:
        said = (done.stderr or b"").decode("utf-8", "replace").strip()[-500:]
        raise LoginFailed(
            f"{program.origin}: {program.command} failed with exit code {done.returncode}"
            + (f": {said}" if said else "")
            + f"; log in again{f'. {program.hint.strip()}' if program.hint else ''}"
        )
    return done.stdout


def _read(program: Program, printed: bytes) -> _Made:
    """What an ExecCredential says."""
    wrong = f"{program.origin}: what {program.command} printed is not an ExecCredential of {program.version}"
    try:
        answer = json.loads(printed)
    except ValueError:
        raise LoginFailed(f"{wrong}: it is not JSON; run it by hand to see why") from None
    if not isinstance(answer, dict) or answer.get("apiVersion") != program.version:
        found = answer.get("apiVersion") if isinstance(answer, dict) else None
        raise LoginFailed(f"{wrong}: its apiVersion is {found!r}; set apiVersion in the kubeconfig to what it speaks")
    status = answer.get("status")
    if not isinstance(status, dict):
        raise LoginFailed(f"{wrong}: it has no status; run it by hand to see why")
    token = str(status.get("token") or "")
    certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
    if bool(certificate) != bool(key):
        raise LoginFailed(f"{wrong}: clientCertificateData and clientKeyData must come together")
    if not token and not certificate:
        raise LoginFailed(f"{wrong}: it has neither a token nor a certificate")
    until = status.get("expirationTimestamp")
    return _Made(token, (str(certificate), str(key)) if certificate else None, _seconds(wrong, until))


def _seconds(wrong: str, text: Any) -> float | None:
    if not text:
        return None
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        raise LoginFailed(f"{wrong}: its expirationTimestamp is {text!r}, not a time") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.timezone.utc)
    return moment.timestamp()


def check(program: Program) -> Program:
    """The same program; UsageError where the kubeconfig asks for something that petctl does not speak."""
    if program.version not in VERSIONS:
        raise UsageError(f"{program.origin}.apiVersion is {program.version!r}; petctl speaks {' and '.join(VERSIONS)}")
    if program.mode not in MODES:
        raise UsageError(f"{program.origin}.interactiveMode is {program.mode!r}; it must be one of {', '.join(MODES)}")
    return program
