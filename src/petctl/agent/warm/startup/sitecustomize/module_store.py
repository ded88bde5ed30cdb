"""Hands the modules that a zygote has imported over to a worker: each when the worker imports it, and only if it fits.

    Group              what one import brought: modules, what it changed in the process, what it printed
    Store.hide()       takes the modules out of sys.modules; a fork knows of none of them ...
    Store.open(...)    ... until it imports one. It must then be in the state in which the zygote was

A worker that is in another state when it imports something would have got something else. If it has done little but
import so far, it begins again, as a process that nothing was imported for; if not, it takes what there is. Either way
it is noted, and the next one will fit.
"""

from __future__ import annotations

import os
import sys
import time
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from . import AT_START, threads
from .import_hook import Hook, by_the_script, importing_module, installed_places
from .learning import Notes
from .process_settings import Parts
from .process_state import Start, State, differences, put

_SECONDS = 20.0  # a worker that has run for longer than this does not begin again
_OWN = ("__spec__", "__loader__", "__package__", "__path__", "__file__", "__cached__")


class Group(NamedTuple):
    """What came of one import."""

    names: List[str]
    before: Optional[State]  # in which state of the process it was made; None: in whichever
    env: Dict[str, Optional[str]]  # what it has changed in the environment
    parts: Tuple[Dict[str, Any], Dict[str, Any]]  # and elsewhere: before and after
    said: Tuple[bytes, bytes]  # what it has printed, to stdout and stderr
    numeric: bool  # it has loaded libraries whose threads have to be made


class Store:
    """The modules of one zygote."""

    def __init__(self) -> None:
        self.groups: List[Group] = []
        self._hidden: Dict[str, Any] = {}
        self._links: Dict[str, Any] = {}  # modules that are attributes of modules of other groups
        self._group_of: Dict[str, int] = {}

    def add(self, group: Group) -> None:
        """One more, whose modules are in sys.modules."""
        self._group_of.update(dict.fromkeys(group.names, len(self.groups)))
        self.groups.append(group)

    def get(self, name: str) -> Any:
        """The module, hidden or not; None: there is none."""
        return sys.modules.get(name) or self._hidden.get(name)

    def hide(self) -> None:
        """They are all still there, but nobody sees them."""
        self.add(loaded_beside(self))
        for group in self.groups:
            for name in group.names:
                if name in sys.modules:
                    self._hidden[name] = sys.modules.pop(name)
        for name, module in self._hidden.items():
            parent, _, child = name.rpartition(".")
            if parent and self._group_of.get(parent) != self._group_of[name]:
                package = self.get(parent)
                if getattr(package, "__dict__", {}).get(child) is module:
                    delattr(package, child)
                    self._links[name] = module

    def show(self, names: Optional[List[str]] = None) -> None:
        """They are there again: all, or these."""
        for name in list(self._hidden) if names is None else names:
            if name in self._hidden:
                sys.modules[name] = self._hidden.pop(name)
        for name in [name for name in self._links if name in sys.modules]:
            parent, _, child = name.rpartition(".")
            setattr(self.get(parent), child, self._links.pop(name))

    def open(self, start: Start, notes: Optional[Notes], begin_again: Callable[[], None]) -> None:
        """From now on this process is a worker."""
        _Opened(self, start, notes, begin_again)

    def places(self) -> Dict[str, int]:
        """The group of each hidden module."""
        return {name: self._group_of[name] for name in self._hidden}


class _Opened:
    """The store as its worker uses it."""

    def __init__(self, store: Store, start: Start, notes: Optional[Notes], begin_again: Callable[[], None]) -> None:
        self._store, self._start, self._notes, self._begin_again = store, start, notes, begin_again
        self._left = store.places()
        self._pending = set(self._left.values())
        self._installed = installed_places()
        self._process, self._began = os.getpid(), time.monotonic()
        self._hook = Hook(self._see)

    def _see(self, name: str, frame: Any) -> Optional[ModuleSpec]:
        number = self._left.get(name)
        if number is None:
            if self._notes is not None:
                self._notes.see(name, frame)
            return None
        self._check(name, self._store.groups[number], frame)
        return ModuleSpec(name, _Loader(lambda: self._take(name, number)))

    def _check(self, name: str, group: Group, frame: Any) -> None:
        if group.before is None or os.getpid() != self._process:
            return
        within = importing_module(frame, self._installed)
        now, before = self._start.now(with_settings=not within), dict(group.before)
        if within:
            before.pop("settings", None)
        if now == before:
            return
        why = ", ".join(differences(before, now))
        if self._notes is not None:
            self._notes.remark(now, name, f"{name}: {why}")
        if time.monotonic() - self._began < _SECONDS and by_the_script(frame, self._installed) and not _is_connected():
            self._begin_again()

    def _take(self, name: str, number: int) -> Any:
        """With those before it that were imported in the same state: it may have used them."""
        chosen = self._store.groups[number]
        for each in sorted(each for each in self._pending if each <= number):
            if each == number or self._store.groups[each].before == chosen.before:
                self._pending.remove(each)
                self._take_group(self._store.groups[each])
        if not self._left and self._notes is None:
            self._hook.take_off()
        return sys.modules[name]

    def _take_group(self, group: Group) -> None:
        for name in group.names:
            self._left.pop(name, None)
        self._store.show(group.names)
        for variable, value in group.env.items():
            put(os.environ, variable, value)
        Parts.write(*group.parts)
        for stream, text in zip((sys.stdout, sys.stderr), group.said):
            if text and stream is not None:
                stream.flush()
                os.write(stream.fileno(), text)
        if group.numeric:
            threads.restore(self._store.get("numexpr.utils"))


class _Loader(Loader):
    """Gives importlib a module that is there already, and leaves it as it was."""

    def __init__(self, take: Callable[[], Any]) -> None:
        self._take = take

    def create_module(self, spec: ModuleSpec) -> Any:
        module = self._take()
        self._own = {name: vars(module)[name] for name in _OWN if name in getattr(module, "__dict__", {})}
        return module

    def exec_module(self, module: Any) -> None:
        if hasattr(module, "__dict__"):
            for name in _OWN:
                put(vars(module), name, self._own.get(name))
            vars(module).update(self._own)  # some of these may be None


def _is_connected() -> bool:
    """Has this process begun to work with others?"""
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + descriptor).startswith("socket:"):
                return True
        except OSError:
            pass  # the one that listed them
    return False


def loaded_beside(store: Store) -> Group:
    """What the zygote has loaded for itself."""
    known = {*AT_START, *(name for group in store.groups for name in group.names)}
    own = __name__.partition(".")[0]
    names = [name for name in sys.modules if name not in known and name.partition(".")[0] != own]
    nothing = Parts.read()
    return Group(names, None, {}, (nothing, nothing), (b"", b""), False)
