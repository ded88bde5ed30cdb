"""Plain JSON types to dataclasses and back: what files, ConfigMaps and peers say is checked here, field by field.

Types are read from the text of annotations, so classes that are decoded have names of this kind only: str, int, float,
bool, Union[] of these, Any, a dataclass of the same module, and Optional, List, Dict[str, ...] and Tuple of all these.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Callable, Dict, List, Tuple, Type, TypeVar

_T = TypeVar("_T")
_Reader = Callable[[Any], Any]
_SIMPLE: Dict[str, Tuple[Any, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (float, int)}
_known: Dict[type, List[Tuple[str, _Reader, bool]]] = {}


def decode(kind: Type[_T], data: object) -> _T:
    """A dataclass from plain data; ValueError names the field that does not fit, unknown fields are ignored."""
    if not isinstance(data, dict):
        raise ValueError(f"it must be an object, not {type(data).__name__}")
    values = {}
    for name, read, needed in _known.get(kind) or _fields(kind):
        if name in data:
            try:
                values[name] = read(data[name])
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
        elif needed:
            raise ValueError(f"{name} is missing")
    return kind(**values)


def encode(value: Any) -> Any:
    """Plain data from a dataclass, with all of its fields."""
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {name: encode(item) for name, item in value.items()}
    if hasattr(value, "__dataclass_fields__"):
        return {name: encode(item) for name, item in vars(value).items()}
    return value


def _fields(kind: Any) -> List[Tuple[str, _Reader, bool]]:
    scope, nothing = vars(sys.modules[kind.__module__]), dataclasses.MISSING
    _known[kind] = [
        (field.name, _reader(field.type, scope), field.default is nothing and field.default_factory is nothing)
        for field in dataclasses.fields(kind)
    ]
    return _known[kind]


def _reader(annotation: Any, scope: Dict[str, Any]) -> _Reader:
    """What checks, and where it must converts, a value of that type."""
    outer, _, inner = annotation.partition("[")
    if annotation in _SIMPLE:
        return _simple(annotation)
    if annotation == "Any":
        return lambda value: value
    if not inner:
        return _nested(scope[annotation])
    inner = inner[:-1]
    if outer == "Union":
        return _simple(*inner.split(", "))
    if outer == "Optional":
        read = _reader(inner, scope)
        return lambda value: None if value is None else read(value)
    if outer == "Dict":
        return _mapping(_reader(inner[len("str, ") :], scope))
    if outer == "Tuple" and not inner.endswith(", ..."):
        return _places([_reader(part, scope) for part in inner.split(", ")])
    read = _list(_reader(inner[: -len(", ...")] if outer == "Tuple" else inner, scope))
    return read if outer == "List" else lambda value: tuple(read(value))


def _simple(*names: str) -> _Reader:
    kinds = [kind for name in names for kind in _SIMPLE[name]]
    first = kinds[0]

    def read(value: Any) -> Any:
        if type(value) is first or type(value) in kinds:
            return value
        raise ValueError(f"must be {' or '.join(names)}, not {type(value).__name__}")

    return read


def _nested(kind: Any) -> _Reader:
    return lambda value: value if isinstance(value, kind) else decode(kind, value)


def _list(read: _Reader) -> _Reader:
    def read_all(value: Any) -> List[Any]:
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"must be a list, not {type(value).__name__}")
        return [read(item) for item in value]

    return read_all


def _places(reads: List[_Reader]) -> _Reader:
    def read_each(value: Any) -> Tuple[Any, ...]:
        if not isinstance(value, (list, tuple)) or len(value) != len(reads):
            raise ValueError(f"must be a list of {len(reads)}")
        return tuple(read(item) for read, item in zip(reads, value))

    return read_each


def _mapping(read: _Reader) -> _Reader:
    def read_all(value: Any) -> Dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"must be an object, not {type(value).__name__}")
        return {name: read(item) for name, item in value.items()}

    return read_all
