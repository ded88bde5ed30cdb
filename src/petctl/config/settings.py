"""What the user's configuration says about clusters and stores: the project's petctl.yaml over
~/.config/petctl/config.yaml.

    clusters:
      local: {slots: 8}
    stores:
      s3://: {endpoint: "http://127.0.0.1:8333"}

The project's is that of the directory, or the nearest above it. Only looked at when a cluster or store is used. It
knows which settings there are (`keys.py`); who uses one checks its value. A file that another user owns or may
change is refused (`trust.py`), unless the user's own configuration names its directory, or one above it:

    trusted: [/shared/project]
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from petctl.config.keys import check_keys
from petctl.errors import UsageError

PROJECT_FILE = "petctl.yaml"

_more_stores: ContextVar[Mapping[str, Any] | None] = ContextVar("more_stores", default=None)


def config_files() -> list[Path]:
    """Where configuration may be, the weaker one first."""
    return [user_file(), project_root() / PROJECT_FILE]


def user_file() -> Path:
    """The user's own configuration."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "petctl" / "config.yaml"


def trusted_text(path: Path) -> str:
    """Reads a file whose content petctl obeys: UsageError where another user owns it or may change it."""
    with os.fdopen(open_obeyed(path), encoding="utf-8") as file:
        return file.read()


def open_obeyed(path: Path) -> int:
    """Opens a file whose content petctl obeys, for reading; the same errors, before anything is read."""
    from petctl.config.trust import open_trusted

    try:
        return open_trusted(path)
    except UsageError as error:
        if path == user_file() or not _is_trusted(path):
            raise UsageError(f"{error}. {_remedy(path)}") from None
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _is_trusted(path: Path) -> bool:
    """Whether the user's own configuration names the file's directory, or one above it."""
    own = user_file()
    places = _read(own).get("trusted") or []
    if isinstance(places, str):
        places = [places]
    if not isinstance(places, list) or not all(isinstance(one, str) and one[:1] in ("/", "~") for one in places):
        raise UsageError(f"{own}: 'trusted' must be a list of directories that begin with / or ~, not {places!r}")
    real = path.resolve()
    return any(real.is_relative_to(Path(one).expanduser().resolve()) for one in places)


def _remedy(path: Path) -> str:
    own = user_file()
    mine = path.lstat().st_uid == os.geteuid()
    repair = f"To close it: chmod go-w {path}" if mine else f"If it is yours: chown {_user()} {path}"
    if path == own:
        return repair
    return f"{repair}\nIf you trust who wrote it, say so in {own}:\n  trusted: [{path.parent}]"


def _user() -> str:
    from petctl.config.trust import user_name

    return user_name(os.geteuid())


def project_root(start: str = "") -> Path:
    """The directory with the project's own configuration; this one, or `start`, where there is none."""
    return nearest(Path(start).expanduser().absolute(), [PROJECT_FILE])


def nearest(here: Path, marks: Sequence[str]) -> Path:
    """The nearest directory, this one or above it, in which one of these lies; this one where there is none."""
    # os.path, because some directory above may be closed to this user
    places = (here, *here.parents)
    return next((place for place in places if any(os.path.exists(place / mark) for mark in marks)), here)  # noqa: PTH110


def sections(*names: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """One section of each file, the weaker file first: sections("clusters", "local")."""
    for path in config_files():
        section = _read(path)
        for name in names:
            section = _section(path, section, name)
        yield path, section


def top_setting(name: str) -> tuple[Path, Any] | None:
    """A setting at the top of the files, with the file that says it."""
    found = [(path, values[name]) for path, values in sections() if values.get(name) is not None]
    return found[-1] if found else None


def cluster_settings(name: str) -> dict[str, Any]:
    """The settings of one cluster, those of the directory's own file winning."""
    settings: dict[str, Any] = {}
    for _, section in sections("clusters", name):
        settings.update(section)
    return settings


def resource_settings(home: Path, name: str) -> dict[str, Any]:
    """The settings of a cluster that was made on this machine (`petctl cluster create`); none where it was not."""
    import json

    try:
        found = json.loads((home / "clusters" / name / "cluster.json").read_bytes()) if Path(name).name == name else {}
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    if found.get("deleting"):
        raise UsageError(f"the cluster {name!r} is being deleted; to finish that: petctl cluster delete {name} --force")
    if "kind" not in found:
        return {}
    # What is said of this machine holds for each of its clusters; how many nodes there are is their own.
    machine = {key: value for key, value in cluster_settings("local").items() if key != "slots"}
    return {**machine, "kind": found["kind"], "resource": True}


def cluster_names() -> list[str]:
    """Those that any of the files has settings for."""
    return sorted({str(name) for _, section in sections("clusters") for name in section})


def store_settings() -> dict[str, Any]:
    """The settings of object stores by location, those of the directory's own file winning."""
    settings: dict[str, Any] = {}
    for _, section in sections("stores"):
        settings.update(section)
    return {**settings, **(_more_stores.get() or {})}


@contextmanager
def more_stores(settings: Mapping[str, Any]) -> Iterator[None]:
    """Within it, stores have these settings too: what a front end read in files of its own."""
    token = _more_stores.set({**(_more_stores.get() or {}), **settings})
    try:
        yield
    finally:
        _more_stores.reset(token)


def positive_setting(settings: dict[str, Any], cluster: str, name: str, default: int) -> int:
    """A whole number above zero from a cluster's settings."""
    value = settings.get(name, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        files = " or ".join(str(path) for path in config_files())
        raise UsageError(f"clusters.{cluster}.{name} must be a whole number above zero, not {value!r}; see {files}")
    return value


def _section(path: Path, mapping: dict[str, Any], name: str) -> dict[str, Any]:
    value = mapping.get(name) or {}
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name!r} must be a mapping, not {type(value).__name__}")
    return value


def _read(path: Path) -> dict[str, Any]:
    try:
        text = trusted_text(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the configuration {path}: {error}") from None
    import yaml

    try:
        value = deepcopy(_parsed(text))
    except yaml.YAMLError as error:
        raise UsageError(f"the configuration {path} is not valid YAML: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"the configuration {path} must be a mapping, not {type(value).__name__}")
    check_keys(path, value, users_own=path == user_file())
    return value


@lru_cache(maxsize=8)
def _parsed(text: str) -> Any:
    """What a file says; a submission asks for it many times, and a program may submit hundreds of jobs."""
    import yaml

    return yaml.safe_load(text)
