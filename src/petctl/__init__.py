"""petctl: portable elastic training, controlled.

This file runs on workers too, so it stays within the standard library and Python 3.9, and imports nothing until asked:
`petctl.submit`, `petctl.Job` and the rest are looked up in `petctl.jobs` on first use, `petctl.elastic` likewise.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing would cost every worker time
if TYPE_CHECKING:
    from typing import Any

_LAZY = {
    "Job": "petctl.job.spec",
    "submit": "petctl.jobs",
    "resubmit": "petctl.jobs",
    "get": "petctl.jobs",
    "list_jobs": "petctl.jobs",
    "JobHandle": "petctl.jobs",
}

__all__ = ["__version__", "elastic", *_LAZY]


def __getattr__(name: str) -> Any:
    import importlib

    if name == "elastic":
        return importlib.import_module("petctl.elastic")
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'petctl' has no attribute {name!r}")
