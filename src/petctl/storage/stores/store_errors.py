"""What stores say when they refuse, as sentences: obstore's errors, and answers to petctl's own calls.

The table of the stores' codes is `storage/core/store_errors.py`, since nodes say the same. Nothing else of an answer is
shown: it may hold signatures.
"""

from __future__ import annotations

import re

from petctl.errors import Damaged, NoSuchPlace, PetctlError, Refused, StoreUnreachable
from petctl.storage.core import store_errors
from petctl.storage.core.store_errors import KEYS, NoSuchBucket
from petctl.storage.stores.location import Location

_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
_CODE_OF_MANY = re.compile(r"\(code: ([A-Za-z]+)\)")  # one of the objects that a single call was to delete
_STATUS = re.compile(r"status code: (\d{3})")


def explain(error: BaseException, location: Location) -> PetctlError:
    """The error for people that an error of obstore stands for."""
    if isinstance(error, PetctlError):
        return error
    text = str(error)
    code, status = _CODE.search(text), _STATUS.search(text)
    if code or status:
        return refusal(int(status[1]) if status else 0, text, location)
    one = _CODE_OF_MANY.search(text)
    if one:
        return refusal(0, f"<Code>{one[1]}</Code>", location)
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError):
        return NoSuchPlace(f"{location} does not exist")
    if kind == "PreconditionError":
        return Damaged(f"{location} changed while it was read; run the same command again")
    if kind in ("PermissionDeniedError", "UnauthenticatedError"):
        return refusal(403, text, location)
    if "redential" in text or "IMDS" in text or "metadata" in text.lower():
        return Refused(f"{location.root}: found no credentials; {KEYS.get(location.kind, '')}")
    return unreachable(location, _innermost(text))


def refusal(status: int, body: str, location: Location) -> PetctlError:
    """The error for people that a store's answer stands for."""
    return store_errors.refusal(status, body, location.kind, location.root, str(location))


def unreachable(location: Location, reason: str, endpoint: str = "") -> StoreUnreachable:
    """Nobody answers."""
    return store_errors.unreachable(location.root, reason, endpoint)


def _innermost(text: str) -> str:
    """The end of a chain of causes, without URLs: those may be signed."""
    first = text.splitlines()[0] if text else "unknown error"
    last = first.rpartition(": ")[2]
    return re.sub(r"https?://\S+", "the store", last)[:200]


__all__ = ["NoSuchBucket", "explain", "refusal", "unreachable"]
