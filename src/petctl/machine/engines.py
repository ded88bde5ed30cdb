"""The container engine of this machine: podman or docker, which of the two a program is, and whether it works.

    clusters:
      local: {container: podman, container_options: ["--memory=16g"]}

It asks an engine about itself and runs nothing in it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from petctl.config.settings import config_files
from petctl.errors import UsageError

PODMAN, DOCKER = "podman", "docker"
PATIENCE = 30.0  # seconds for an engine to say who it is
_QUESTIONS = {PODMAN: "{{.Host.Security.Rootless}}", DOCKER: "{{json .SecurityOptions}}"}


class Engine(NamedTuple):
    """One that answers."""

    program: str
    kind: str
    rootless: bool  # its containers' root is the user who asks


def find_engine(settings: Mapping[str, Any], image: str) -> Engine:
    """The engine that the configuration names, else the first that works; or what to do about it."""
    wanted = settings.get("container")
    if wanted is not None and (not isinstance(wanted, str) or not wanted):
        raise UsageError(f"{_setting(settings, 'container')} must be podman, docker or a path, not {wanted!r}")
    hindrances = []
    for name in [wanted] if wanted else [PODMAN, DOCKER]:
        program = shutil.which(os.path.expanduser(name))  # noqa: PTH111  a name stays a name
        if program is None:
            hindrances.append(f"{name} is not installed")
            continue
        try:
            return _asked(os.path.abspath(program))  # noqa: PTH100  not resolved: a wrapper may look at its own name
        except _NoAnswer as error:
            hindrances.append(f"{name} does not work here ({error})")
    said = f"{_setting(settings, 'container')} is {wanted!r}; " if wanted else ""
    raise UsageError(
        f"the job needs a container of {image}, but {said}{' and '.join(hindrances)}; install podman "
        "(apt install podman, dnf install podman) or start docker, or run it without a container: --no-container"
    )


def engine_options(settings: Mapping[str, Any]) -> list[str]:
    """Further words for the engine's `run`, from the configuration."""
    words = settings.get("container_options", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"{_setting(settings, 'container_options')} must be a list of words, not {words!r}")
    return list(words)


class _NoAnswer(Exception):
    pass


def _asked(program: str) -> Engine:
    kind = PODMAN if PODMAN in _ask([program, "--version"]).lower() else DOCKER  # docker may be podman's own
    answer = _ask([program, "info", "--format", _QUESTIONS[kind]])
    return Engine(program, kind, answer == "true" if kind == PODMAN else "name=rootless" in answer)


def _ask(argv: Sequence[str]) -> str:
    try:
        asked = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise _NoAnswer(f"no answer within {PATIENCE:g} s") from None
    except OSError as error:
        raise _NoAnswer(error.strerror or str(error)) from None
    if asked.returncode != 0:
        raise _NoAnswer(last_words(asked.stderr) or f"exit code {asked.returncode}")
    return asked.stdout.decode(errors="replace").strip()


def last_words(text: bytes) -> str:
    """What an engine said in the end, in one line: what went before is how far it had come."""
    lines = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    first = next((n for n, line in enumerate(lines) if line.lower().startswith(("error", "docker: "))), len(lines) - 1)
    return " ".join(lines[max(0, first) :])[-1000:]


def _setting(settings: Mapping[str, Any], name: str) -> str:
    files = " or ".join(str(path) for path in config_files())
    return f"clusters.{settings.get('name') or 'local'}.{name} (in {files})"
