"""Gives a worker the threads that numeric libraries would have started with, had they been loaded by itself.

OpenBLAS and numexpr start their threads when they are loaded, so the zygote loads them with one (preloading.QUIET).
OpenMP and MKL start theirs at the first use and are loaded with the worker's own settings: nothing to make up for.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Optional, Set

# The same function under the names that the builds of OpenBLAS give it.
_PREFIXES, _SUFFIXES = ("", "scipy_"), ("", "64_")


def count() -> int:
    """How many threads this process has, also those that Python knows nothing of."""
    return len(os.listdir("/proc/self/task"))


def libraries() -> Set[str]:
    """Those that are loaded and would have started threads."""
    return _openblas_libraries() | {name for name in ("numexpr.utils",) if name in sys.modules}


def restore(numexpr: Any) -> None:
    """Called in a worker, in the environment in which it imports them. `numexpr`: numexpr.utils, if there is one."""
    for path in _openblas_libraries():
        library = ctypes.CDLL(path)
        processors, set_threads = (_function(library, name) for name in ("get_num_procs", "set_num_threads"))
        if processors is not None and set_threads is not None:
            most = processors()
            set_threads(min(_wanted() or most, most))
    if numexpr is not None and hasattr(numexpr, "_init_num_threads"):
        numexpr._init_num_threads()


def _openblas_libraries() -> Set[str]:
    with open("/proc/self/maps") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if "openblas" in line}
    return {path for path in paths if path.startswith("/") and "openblas" in os.path.basename(path)}


def _function(library: Any, name: str) -> Optional[Any]:
    names = [f"{prefix}openblas_{name}{suffix}" for prefix in _PREFIXES for suffix in _SUFFIXES]
    return next((getattr(library, name) for name in names if hasattr(library, name)), None)


def _wanted() -> int:
    """How many threads the environment asks for, in OpenBLAS's own order; 0: it does not say."""
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "").strip()
        if value.isdigit() and int(value) > 0:
            return int(value)
    return 0
