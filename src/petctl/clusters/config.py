"""What the user's configuration says about clusters and stores: ./petctl.yaml over ~/.config/petctl/config.yaml.

    clusters:
      local: {slots: 8}
    stores:
      s3://: {endpoint: "http://127.0.0.1:8333"}

Only looked at when a cluster or store is used. It knows nobody's settings; each checks its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from petctl.errors import UsageError


def config_files() -> list[Path]:
    """Where configuration may be, the weaker one first."""
    base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return [base / "petctl" / "config.yaml", Path("petctl.yaml").absolute()]


def cluster_settings(name: str) -> dict[str, Any]:
    """The settings of one cluster, those of the directory's own file winning."""
    settings: dict[str, Any] = {}
    for path in config_files():
        clusters = _section(path, _read(path), "clusters")
        settings.update(_section(path, clusters, name))
    return settings


def store_settings() -> dict[str, Any]:
    """The settings of object stores by location, those of the directory's own file winning."""
    settings: dict[str, Any] = {}
    for path in config_files():
        settings.update(_section(path, _read(path), "stores"))
    return settings


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
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the configuration {path}: {error}") from None
    import yaml

    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UsageError(f"the configuration {path} is not YAML: {error}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"the configuration {path} must be a mapping, not {type(value).__name__}")
    return value
