"""Whether petctl may ask the user something while it asks a cluster: for a password, say."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_attended: ContextVar[bool] = ContextVar("attended", default=True)


@contextmanager
def unattended() -> Iterator[None]:
    """Keeps every question from the user: many clusters are asked at once, and the caller may not wait for one."""
    token = _attended.set(False)
    try:
        yield
    finally:
        _attended.reset(token)


def is_attended() -> bool:
    """Whether the user may be asked."""
    return _attended.get()
