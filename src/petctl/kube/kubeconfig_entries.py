"""What kubeconfig files hold, entry by entry and field by field; several files as one, as kubectl merges them.

Files that an entry names are relative to the kubeconfig. It knows how fields are read, not what they mean; everything
wrong is told with file, context and field, and nothing of a file is quoted, since it holds secrets. A file that another
user owns or may change is refused before anything in it counts.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from petctl.errors import UsageError


class ConfigEntry(NamedTuple):
    """One cluster, context or user of one file, or something in it."""

    file: str
    where: str
    directory: Path
    values: Mapping[str, Any]

    def place(self, field: str) -> str:
        """How an error message calls a field."""
        return f"{self.file}: {self._inside(field)}"

    def _inside(self, field: str) -> str:
        return f"{self.where}.{field}" if self.where else field

    def text(self, field: str, needed: bool = False) -> str:
        """A field that holds text; empty where it is not there."""
        value = self.values.get(field)
        if value is None or value == "":
            if needed:
                raise UsageError(f"{self.place(field)} is missing; add it, or choose another context")
            return ""
        if not isinstance(value, str):
            raise UsageError(f"{self.place(field)} must be text, not {type(value).__name__}; put it in quotes")
        return value

    def flag(self, field: str) -> bool:
        """A field that is true or false."""
        value = self.values.get(field) or False
        if not isinstance(value, bool):
            raise UsageError(f"{self.place(field)} must be true or false, not {value!r}")
        return value

    def section(self, field: str) -> ConfigEntry | None:
        """A mapping inside this one."""
        value = self.values.get(field)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise UsageError(f"{self.place(field)} must be a mapping, not {type(value).__name__}")
        return self._replace(where=self._inside(field), values=value)

    def many(self, field: str) -> list[Any]:
        """A list; empty where it is not there."""
        value = self.values.get(field) or []
        if not isinstance(value, list):
            raise UsageError(f"{self.place(field)} must be a list, not {type(value).__name__}")
        return value

    def path(self, field: str) -> Path | None:
        """A file, relative to the kubeconfig."""
        text = self.text(field)
        return self.directory / text if text else None

    def content(self, field: str) -> str:
        """What `FIELD-data` holds, else what the file named by `FIELD` does; empty where there is neither."""
        data = self.text(f"{field}-data")
        if data:
            import base64

            try:
                content = base64.b64decode("".join(data.split()), validate=True)
            except ValueError:
                raise UsageError(f"{self.place(f'{field}-data')} is not the base64 of a PEM file") from None
        else:
            path = self.path(field)
            if path is None:
                return ""
            try:
                content = path.read_bytes()
            except OSError as error:
                raise UsageError(f"{self.place(field)}: cannot read {path}: {_reason(error)}") from None
        if b"-----BEGIN " not in content:  # an empty authority would mean: trust those of this machine
            raise UsageError(f"{self.place(field)} (or {field}-data) is not a PEM file; get a new kubeconfig")
        return content.decode("ascii", "ignore")  # only comments between the certificates may be anything else


class Merged:
    """Several kubeconfig files as one: the first that names something decides about it."""

    def __init__(self, files: list[Path]) -> None:
        self.names = ", ".join(map(str, files))
        self.current = ""
        self._entries: dict[tuple[str, str], ConfigEntry] = {}
        for path in files:
            whole = ConfigEntry(str(path), "", path.absolute().parent, _read(path))
            self.current = self.current or whole.text("current-context")
            for section, inner in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
                for item in whole.many(section):
                    name = item.get("name") if isinstance(item, Mapping) else None
                    if not isinstance(name, str) or not name:
                        raise UsageError(f"{whole.place(section)}: every entry needs a name, as text in quotes")
                    named = whole._replace(where=f"{section}[{name}]", values=item)
                    self._entries.setdefault((section, name), named.section(inner) or named._replace(values={}))

    def entry(self, section: str, inner: str, name: str, context: str, asker: str) -> ConfigEntry:
        """The one of this name, for a context; the error says who asked for it and which there are."""
        found = self._entries.get((section, name))
        if found is None:
            raise UsageError(f"{self.names}: there is no {inner} {name!r} ({asker}){self.known(section)}")
        return found._replace(file=f"{found.file} (context {context})")

    def known(self, section: str) -> str:
        """Which there are, for the end of an error message."""
        names = sorted(name for kind, name in self._entries if kind == section)
        return f"; there are: {', '.join(names)}" if names else f"; it has no {section} at all"


def _read(path: Path) -> Mapping[str, Any]:
    from petctl.config.settings import trusted_text

    try:
        text = trusted_text(path.absolute())  # a kubeconfig runs programs (`exec`), whoever has named it
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the kubeconfig {path}: {_reason(error)}") from None
    try:
        import yaml
    except ModuleNotFoundError:  # the operator's archive runs without it, as long as it runs in a pod
        raise UsageError(
            f"reading the kubeconfig {path} needs PyYAML, which {sys.executable} does not have; install it there: "
            "pip install pyyaml"
        ) from None
    try:
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise UsageError(f"the kubeconfig {path} is not YAML: {_place_of(error)}") from None
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise UsageError(f"the kubeconfig {path} must be a mapping, not {type(value).__name__}")
    return value


def _place_of(error: Any) -> str:
    """Where the syntax is wrong, without quoting the file: it holds secrets."""
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}" if mark else "it cannot be parsed"


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
