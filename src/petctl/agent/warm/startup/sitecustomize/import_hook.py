"""Sees every import that Python has to look for, leaving nothing behind that a script could notice.

A finder in sys.meta_path would be seen there, and a wrapper of `__import__` in every stack. importlib's own function
that asks the finders is neither: it has returned before the module is executed.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself is not loaded by every Python
if TYPE_CHECKING:
    from typing import Any, Callable, Tuple

    See = Callable[
        [str, Any], Any
    ]  # the name, and the frame that imports it; the answer: a spec, or None for the usual

_BOOTSTRAP = "<frozen importlib._bootstrap>"


class Hook:
    """Asks `see` for every module that is imported and not loaded yet, until it is taken off."""

    def __init__(self, see: See) -> None:
        module: Any = sys.modules["_frozen_importlib"]
        self._module = module
        self._usual = usual = module._find_spec

        def _find_spec(name: str, path: Any, target: Any = None) -> Any:
            caller = sys._getframe(1)
            if caller.f_code.co_name == "_find_and_load_unlocked":  # many look for modules that they never import
                spec = see(name, caller)
                if spec is not None:
                    return spec
            return usual(name, path, target)

        _find_spec.__code__ = _find_spec.__code__.replace(co_filename=_BOOTSTRAP)  # tracebacks leave that out
        self._own: Any = _find_spec
        module._find_spec = _find_spec

    def take_off(self) -> None:
        """Only if nobody has come after it."""
        if self._module._find_spec is self._own:
            self._module._find_spec = self._usual


def installed_places() -> Tuple[str, ...]:
    """Directories of the standard library and of installed packages, as prefixes of paths."""
    given = {os.path.realpath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part}
    found = {os.path.dirname(os.__file__), os.path.dirname(os.path.realpath(os.__file__))}
    for part in sys.path:
        named = os.path.basename(part) in ("site-packages", "dist-packages", "lib-dynload")
        if named and os.path.realpath(part) not in given:
            found.update((part, os.path.realpath(part)))
    return tuple(part + os.sep for part in found)


def importing_module(frame: Any, places: Tuple[str, ...]) -> bool:
    """Is an installed module being executed, and this import a part of that?"""
    while frame is not None:
        if frame.f_code.co_name == "<module>" and is_installed(frame.f_code.co_filename, places):
            return True
        frame = frame.f_back
    return False


def is_installed(file: str, places: Tuple[str, ...]) -> bool:
    """Is this the file of an installed module, or of one that is frozen in?"""
    return file.startswith(("<frozen ", *places))


def by_the_script(frame: Any, places: Tuple[str, ...]) -> bool:
    """Is it the user's own code that imports this, and no function of an installed module involved?"""
    while frame is not None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if name != "<module>" and not file.startswith("<frozen ") and file.startswith(places) and not _of_import(file):
            return False
        frame = frame.f_back
    return True


def _of_import(file: str) -> bool:
    return os.path.basename(os.path.dirname(file)) == "importlib" or os.path.basename(file) in ("runpy.py", "site.py")
