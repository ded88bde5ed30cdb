"""Imports modules into the zygote, and judges what each import did: may all workers begin with its consequences?

Only installed packages are imported, never the user's own code. A module is kept out, with those that import it, when
it does something that workers must do for themselves: ask for its rank, start a thread or a process, open a
connection, touch CUDA. What was imported cannot be undone, so the first such finding spoils the whole zygote.

It decides nothing about what to do then, and forks nothing.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module  # by name: modules of packages are hidden while the zygote waits
from importlib.machinery import ModuleSpec, all_suffixes
from importlib.util import find_spec
from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from . import AT_START, threads
from .import_hook import Hook, installed_places
from .module_store import Group, Store
from .process_settings import Parts
from .process_state import Start, State, changes, put, script_directory
from .snapshot import in_snapshot

# Libraries that start threads, or touch CUDA, when they are loaded unless they are told not to. See threads.py.
QUIET = {"OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Findings(NamedTuple):
    """What came of a list of names."""

    loaded: List[str]
    foreign: List[str]  # not of an installed package, or not there
    failed: Dict[str, str]  # name -> error
    left: List[str]  # the process cannot be made what it has to be for them, or for one that they import
    trouble: Optional[Tuple[List[str], str]]  # modules to be kept out, and why: the zygote is spoilt


class _KeptOut(BaseException):
    """Ends an import at once. No Exception: modules may not take it for a missing optional package."""


class Preloading:
    """The preloading of one zygote. `start.own`: environment names that each worker has its own value of."""

    def __init__(self, start: Start, store: Store) -> None:
        self._start, self._store = start, store
        self._without: FrozenSet[str] = frozenset()
        self._left: Set[str] = set()
        self._hidden: Set[str] = set()  # modules that the user has something else under the name of
        self._trouble: Optional[Tuple[List[str], str]] = None
        self._places = installed_places()

    def load(self, groups: List[Tuple[State, List[str]]], without: List[str]) -> Findings:
        """Imports those that can be, each in its state, until one of them makes trouble."""
        self._without = frozenset(without)
        done = Findings([], [], {}, [], None)
        main = sys.modules["__main__"]
        script = "" if sys.argv[0] in ("", "-c", "-m") else os.path.abspath(sys.argv[0])
        if script:
            main.__file__ = script  # a program without one looks interactive to some libraries
        watching = _Watching(self)
        try:
            for state, name in [(state, name) for state, names in groups for name in names]:
                self._load_one(name, state, done)
                if self._trouble is not None:
                    break
        finally:
            watching.end()
            if script:
                vars(main).pop("__file__", None)
            self._start.leave()
        return done._replace(left=sorted(self._left), trouble=self._trouble)

    def _load_one(self, name: str, state: State, done: Findings) -> None:
        if name in sys.modules:
            done.loaded.append(name)
            return
        if self._is_excluded(name):
            return
        if state is None or not self._start.enter(state):
            self._left.add(name)
            return
        self._hidden = modules_in(self._own_directories())
        if not self._is_installed(name):
            done.foreign.append(name)
            return
        before, belongings, drawn = set(sys.modules), _belongings(), _drawn()
        try:
            self._import(name)
            done.loaded.append(name)
        except _KeptOut:
            pass
        except BaseException as error:
            done.failed[name] = f"{type(error).__name__}: {error}"
        if self._trouble is None:
            why = _consequence(belongings, drawn) or self._user_code(set(sys.modules) - before)
            if why:
                self._trouble = ([name], why)

    def _import(self, name: str) -> None:
        """As one group, whatever comes of it."""
        modules, numeric = set(sys.modules), threads.libraries()
        state, parts, env = self._start.now(), Parts.read(), dict(os.environ)
        said = _said()
        quiet = {variable: os.environ.get(variable) for variable in QUIET}
        os.environ.update(QUIET)
        try:
            import_module(name)
        finally:
            for variable, value in quiet.items():
                if os.environ.get(variable) == QUIET[variable]:
                    put(os.environ, variable, value)
            self._start.imported = Parts.read()
            names = [each for each in sys.modules if each not in modules]
            changed = changes(env, dict(os.environ))
            out, err = (after[len(before) :] for before, after in zip(said, _said()))
            loads = threads.libraries() != numeric
            self._store.add(Group(names, state, changed, (parts, self._start.imported), (out, err), loads))

    def _own_directories(self) -> List[str]:
        """Where on the path the user's own modules are."""
        parts = [in_snapshot(part or os.curdir) or part or os.curdir for part in sys.path]
        return [part for part in parts if not (os.path.realpath(part) + os.sep).startswith(self._places)]

    def _is_excluded(self, name: str) -> bool:
        return any(package in self._without for package in _packages(name))

    def _is_installed(self, name: str) -> bool:
        """Looked up without importing anything: so in the outermost package of it that is not loaded yet."""
        first = next(package for package in _packages(name) if package not in sys.modules)
        if first.partition(".")[0] in self._hidden:
            return False
        try:
            spec = find_spec(first)
        except (ImportError, ValueError, AttributeError):
            return False
        return spec is not None and self._places_allow(spec)

    def _places_allow(self, spec: ModuleSpec) -> bool:
        if spec.origin in ("built-in", "frozen"):
            return True
        files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        return all(os.path.realpath(file).startswith(self._places) for file in files)

    def _user_code(self, names: Set[str]) -> str:
        for name in sorted(names):
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if isinstance(spec, ModuleSpec) and spec.has_location and not self._places_allow(spec):
                return f"imports {name}, which is not an installed package"
        return ""

    def asked_for(self, variable: object) -> None:
        """Somebody reads the environment."""
        name = os.fsdecode(variable) if isinstance(variable, (str, bytes)) else ""
        if name in self._start.own:
            self._blame(f"reads {name} while it is imported")

    def about_to_import(self, name: str) -> None:
        """A module is about to be loaded, asked for by whatever is on the stack."""
        if name in self._hidden:
            self._blame(f"imports {name}, which would be the user's own")
        elif name in self._without and _is_there(name):
            self._blame(f"imports {name}, which is left for each worker to import")
        elif name in self._left and _is_there(name):
            self._left.update(_modules_on_stack())
            self._blame(f"imports {name}, which workers import in another state")

    def _blame(self, why: str) -> None:
        """Everything that is being imported at this moment, from the innermost outwards."""
        modules = _modules_on_stack()
        if modules:
            self._trouble = (modules, why)
            raise _KeptOut


class _Watching:
    """While it lasts, what imported modules look up in the environment, and which others they import, is seen."""

    def __init__(self, preloading: Preloading) -> None:
        kind: Any = type(os.environ)
        self._kind, self._get, self._contains = kind, kind.__getitem__, kind.__contains__
        self._own = {name for name in ("__getitem__", "__contains__") if name in vars(kind)}

        def get(environ: Any, variable: object) -> Any:
            preloading.asked_for(variable)
            return self._get(environ, variable)

        def contains(environ: Any, variable: object) -> Any:
            preloading.asked_for(variable)
            return self._contains(environ, variable)

        kind.__getitem__, kind.__contains__ = get, contains
        self._hook = Hook(lambda name, frame: preloading.about_to_import(name))

    def end(self) -> None:
        for name, function in (("__getitem__", self._get), ("__contains__", self._contains)):
            if name in self._own:
                setattr(self._kind, name, function)
            else:
                delattr(self._kind, name)
        self._hook.take_off()


def modules_in(directories: List[str]) -> Set[str]:
    """Names of top-level modules that would be found in these directories."""
    found: Set[str] = set()
    suffixes = tuple(all_suffixes())
    for directory in directories:
        try:
            entries = os.listdir(directory)
        except OSError:
            continue
        for entry in entries:
            if entry.endswith(suffixes):
                found.add(entry.partition(".")[0])
            elif os.path.exists(os.path.join(directory, entry, "__init__.py")):
                found.add(entry)
    return found


def hidden_modules(store: Store) -> Set[str]:
    """Modules of which a freshly started worker would find others in its script's directory."""
    directory = script_directory()
    loaded = {name for group in store.groups for name in group.names if "." not in name}
    return loaded & modules_in([directory] if directory else [])


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _packages(name: str) -> List[str]:
    """a, a.b and a.b.c for a.b.c."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _modules_on_stack() -> List[str]:
    names: List[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if frame.f_code.co_name == "<module>" and isinstance(name, str) and name in sys.modules:
            names.append(name)
        frame = frame.f_back  # type: ignore[assignment]
    own = __name__.partition(".")[0]
    return [name for name in names if name not in AT_START and name.partition(".")[0] != own]


def _belongings() -> Set[str]:
    """Child processes, and descriptors by what they lead to."""
    found: Set[str] = set()
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            found.update("process " + number for number in file.read().split())
    except OSError:
        pass  # a kernel without it
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink("/proc/self/fd/" + descriptor))
        except OSError:
            pass  # the one that listed them
    return found


def _drawn() -> Dict[str, Any]:
    """Where the generators of random numbers stand."""
    found: Dict[str, Any] = {}
    for name, read in _GENERATORS.items():
        if name in sys.modules:
            found[name] = read(sys.modules[name])
    return found


_GENERATORS: Dict[str, Callable[[Any], Any]] = {
    "random": lambda module: module.getstate(),
    "numpy.random": lambda module: str(module.get_state()),
    "torch.random": lambda module: module.default_generator.get_state().tolist(),
}


def _said() -> Tuple[bytes, bytes]:
    """All that was printed so far: the files that it goes to are in memory."""
    sys.stdout.flush()
    sys.stderr.flush()
    return os.pread(1, os.fstat(1).st_size, 0), os.pread(2, os.fstat(2).st_size, 0)


def _consequence(before: Set[str], drawn: Dict[str, Any]) -> str:
    """What an import has done that must not be done ahead for all workers; empty: nothing."""
    if threads.count() > 1:
        return "starts a thread while it is imported"
    now = _drawn()
    if any(now[name] != state for name, state in drawn.items()):
        return "draws random numbers while it is imported"
    cuda = sys.modules.get("torch.cuda")
    if cuda is not None and cuda.is_initialized():
        return "initialises CUDA while it is imported"
    for thing in _belongings() - before:
        if thing.startswith("process "):
            return "starts a process while it is imported"
        if thing.startswith(("socket:", "pipe:", "anon_inode:[event")):
            return "opens a connection while it is imported"
        if thing.startswith("/dev/nvidia-uvm"):
            return "initialises CUDA while it is imported"
    return ""
