"""Pickles that may be read without trusting whoever wrote them: plain values, and nothing that runs code.

A checkpoint lies where others may write. Reading a pickle calls whatever it names, so only names from a short list are
followed: containers, numbers, dates and paths of the standard library, and numpy's numbers and arrays. Tensors are
read by torch with `weights_only`, which has a list of its own.
"""

from __future__ import annotations

import io
import pickle
from typing import IO, Any

_SAFE = {
    "_codecs": ("encode",),
    "builtins": ("bytearray", "complex", "frozenset", "range", "set", "slice"),
    "collections": ("Counter", "OrderedDict", "defaultdict", "deque"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "fractions": ("Fraction",),
    "numpy": ("dtype", "ndarray"),
    "numpy._core.multiarray": ("_reconstruct", "scalar"),
    "numpy.core.multiarray": ("_reconstruct", "scalar"),
    "pathlib": ("PosixPath", "PurePosixPath"),
    "pathlib._local": ("PosixPath", "PurePosixPath"),
    "uuid": ("UUID",),
}


class Untrusted(pickle.UnpicklingError):
    """A pickle that names something which could run code."""


def load(file: IO[bytes]) -> Any:
    """Reads one pickle; Untrusted where it holds more than plain values."""
    return SafeUnpickler(file).load()


def check(skeleton: bytes) -> None:
    """Raises Untrusted where the copy of a part could not be read back; what torch reads is torch's own business."""
    _Probe(io.BytesIO(skeleton)).load()


class SafeUnpickler(pickle.Unpickler):
    """Follows only names from the list."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _SAFE.get(module, ()):
            raise Untrusted(f"it contains a {module}.{name}")
        return super().find_class(module, name)


class _Probe(SafeUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        own = module.partition(".")[0] == "torch"
        return pickle.Unpickler.find_class(self, module, name) if own else super().find_class(module, name)

    def persistent_load(self, index: int) -> Any:
        return None  # a tensor
