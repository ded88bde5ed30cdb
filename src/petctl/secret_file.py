"""The values of secrets on this machine: $PETCTL_HOME/secrets.json, readable by its owner only.

Jobs name secrets; only the supervisor reads values, and hands them to the agents over the authenticated connection.
They are never written into a job's directory, put into words of a command, or printed.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Dict, Iterator, List, Mapping

from petctl.errors import NotFound, UsageError
from petctl.files import locked, make_private_directory, replace_json


def secret_values(home: Path, references: Mapping[str, str]) -> Dict[str, str]:
    """Environment name -> value, for a job's references; NotFound names the first that is not there."""
    known = _read(home) if references else {}
    for variable, name in references.items():
        if name not in known:
            raise NotFound(f"there is no secret {name!r} (for {variable}); create it with: petctl secret set {name}")
    return {variable: known[name] for variable, name in references.items()}


def secret_value(home: Path, name: str) -> str:
    """The value of one secret; nothing where there is none of that name."""
    return _read(home).get(name, "")


def set_secret(home: Path, name: str, value: str) -> None:
    """Keeps a value under a name, in place of an older one."""
    with _locked(home):
        replace_json(home / "secrets.json", {**_read(home), name: value}, mode=0o600, durable=True)


def remove_secret(home: Path, name: str) -> None:
    """Forgets a secret."""
    with _locked(home):
        known = _read(home)
        if known.pop(name, None) is None:
            raise NotFound(f"there is no secret {name!r}; `petctl secret ls` lists the secrets")
        replace_json(home / "secrets.json", known, mode=0o600, durable=True)


def list_secrets(home: Path) -> List[str]:
    """The names, never the values."""
    return sorted(_read(home))


class SecretFile:
    """All of them, as the SecretStore of a cluster."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def names(self) -> List[str]:
        """Of all, in order."""
        return list_secrets(self._home)

    def set(self, name: str, value: str) -> None:
        """Keeps one, or another value of it."""
        set_secret(self._home, name, value)

    def remove(self, name: str) -> None:
        """Forgets one that is there."""
        remove_secret(self._home, name)


def _read(home: Path) -> Dict[str, str]:
    path = home / "secrets.json"
    try:
        known = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise UsageError(
            f"{path} is damaged: it is not a JSON object; repair it, or remove it and set the secrets again"
        )
    return {str(name): str(value) for name, value in known.items()}


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    make_private_directory(home)
    with locked(home / "secrets.lock"):
        yield
