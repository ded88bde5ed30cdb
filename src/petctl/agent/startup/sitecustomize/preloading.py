"""Imports modules into the zygote, and judges what each import did: may all workers begin with its consequences?

Only installed packages are imported, never the user's own code. A module is kept out, with those that import it, when
it does something that workers must do for themselves: ask for its rank, start a thread or a process, open a
connection, touch CUDA. What was imported cannot be undone, so the first such finding spoils the whole zygote.

It decides nothing about what to do then, and forks nothing.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Set, Tuple

from . import AT_START

# Libraries that start threads, or touch CUDA, when they are loaded unless they are told not to. See threads.py.
QUIET = {"OPENBLAS_NUM_THREADS": "1", "NUMEXPR_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


class Findings(NamedTuple):
    """What came of a list of names."""

    loaded: List[str]
    foreign: List[str]  # not of an installed package, or not there
    failed: Dict[str, str]  # name -> error
    trouble: Optional[Tuple[List[str], str]]  # modules to be kept out, and why: the zygote is spoilt


class _KeptOut(BaseException):
    """Ends an import at once. No Exception: modules may not take it for a missing optional package."""


class Preloading:
    """The preloading of one zygote. `round_names`: environment names that each worker has its own value of."""

    def __init__(self, round_names: FrozenSet[str]) -> None:
        self._round_names = round_names
        self._without: FrozenSet[str] = frozenset()
        self._hidden: Set[str] = set()  # modules that the user has something else under the name of
        self._trouble: Optional[Tuple[List[str], str]] = None
        self._places = _installed_places()

    def load(self, names: List[str], without: List[str]) -> Findings:
        """Imports those that can be, until one of them makes trouble."""
        self._without = frozenset(without)
        self._hidden = modules_in(script_directory())
        done = Findings([], [], {}, None)
        main = sys.modules["__main__"]
        script = "" if sys.argv[0] in ("", "-c", "-m") else os.path.abspath(sys.argv[0])
        before = {name: os.environ.get(name) for name in QUIET}
        os.environ.update(QUIET)
        if script:
            main.__file__ = script  # a program without one looks interactive to some libraries
        watching = _Watching(self)
        try:
            for name in names:
                self._load_one(name, done)
                if self._trouble is not None:
                    break
        finally:
            watching.end()
            if script:
                vars(main).pop("__file__", None)
            for variable, value in before.items():
                if os.environ.get(variable) == QUIET[variable]:
                    _set_variable(variable, value)
        return done._replace(trouble=self._trouble)

    def _load_one(self, name: str, done: Findings) -> None:
        if name in sys.modules:
            done.loaded.append(name)
            return
        if self._is_excluded(name):
            return
        if not self._is_installed(name):
            done.foreign.append(name)
            return
        before, belongings = set(sys.modules), _belongings()
        try:
            importlib.import_module(name)
            done.loaded.append(name)
        except _KeptOut:
            pass
        except BaseException as error:
            done.failed[name] = f"{type(error).__name__}: {error}"
        if self._trouble is None:
            why = _consequence(belongings) or self._user_code(set(sys.modules) - before)
            if why:
                self._trouble = ([name], why)

    def _is_excluded(self, name: str) -> bool:
        return any(package in self._without for package in _packages(name))

    def _is_installed(self, name: str) -> bool:
        """Looked up without importing anything: so in the outermost package of it that is not loaded yet."""
        first = next(package for package in _packages(name) if package not in sys.modules)
        if first.partition(".")[0] in self._hidden:
            return False
        try:
            spec = importlib.util.find_spec(first)
        except (ImportError, ValueError, AttributeError):
            return False
        return spec is not None and self._places_allow(spec)

    def _places_allow(self, spec: importlib.machinery.ModuleSpec) -> bool:
        if spec.origin in ("built-in", "frozen"):
            return True
        files = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        return all(os.path.realpath(file).startswith(self._places) for file in files)

    def _user_code(self, names: Set[str]) -> str:
        for name in sorted(names):
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if isinstance(spec, importlib.machinery.ModuleSpec) and spec.has_location and not self._places_allow(spec):
                return f"imports {name}, which is not an installed package"
        return ""

    def asked_for(self, variable: object) -> None:
        """Somebody reads the environment."""
        name = os.fsdecode(variable) if isinstance(variable, (str, bytes)) else ""
        if name in self._round_names:
            self._blame(f"reads {name} while it is imported")

    def about_to_import(self, name: str) -> None:
        """A module is about to be loaded, asked for by whatever is on the stack."""
        if name in self._without:
            self._blame(f"imports {name}, which is left for each worker to import")
        elif name in self._hidden:
            self._blame(f"imports {name}, which would be the one in {script_directory()}")

    def _blame(self, why: str) -> None:
        """Everything that is being imported at this moment, from the innermost outwards."""
        modules = _modules_on_stack()
        if modules:
            self._trouble = (modules, why)
            raise _KeptOut


class _Watching:
    """While it lasts, what imported modules look up in the environment, and which others they import, is seen."""

    def __init__(self, preloading: Preloading) -> None:
        self._preloading = preloading
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
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self._preloading.about_to_import(name)

    def end(self) -> None:
        for name, function in (("__getitem__", self._get), ("__contains__", self._contains)):
            if name in self._own:
                setattr(self._kind, name, function)
            else:
                delattr(self._kind, name)
        sys.meta_path.remove(self)


def script_directory() -> str:
    """What the interpreter will put at the head of a worker's sys.path; empty: nothing."""
    if getattr(sys.flags, "safe_path", False):
        return ""
    if sys.argv[0] in ("", "-c", "-m"):
        return os.getcwd()
    return os.path.dirname(os.path.realpath(sys.argv[0]))


def modules_in(directory: str) -> Set[str]:
    """Names of top-level modules that would be found in this directory."""
    found: Set[str] = set()
    try:
        entries = os.listdir(directory) if directory else []
    except OSError:
        return found
    suffixes = tuple(importlib.machinery.all_suffixes())
    for entry in entries:
        if entry.endswith(suffixes):
            found.add(entry.partition(".")[0])
        elif os.path.exists(os.path.join(directory, entry, "__init__.py")):
            found.add(entry)
    return found


def hidden_modules() -> Set[str]:
    """Loaded modules that a freshly started worker would take from its script's directory instead."""
    loaded = {name for name in sys.modules if "." not in name} - AT_START
    return loaded & modules_in(script_directory())


def _packages(name: str) -> List[str]:
    """a, a.b and a.b.c for a.b.c."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def threads() -> int:
    """How many threads this process has, also those that Python knows nothing of."""
    return len(os.listdir("/proc/self/task"))


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


def _consequence(before: Set[str]) -> str:
    """What an import has done that must not be done ahead for all workers; empty: nothing."""
    if threads() > 1:
        return "starts a thread while it is imported"
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


def _installed_places() -> Tuple[str, ...]:
    """Directories of the standard library and of installed packages, as prefixes of paths."""
    library = os.path.dirname(os.path.realpath(os.__file__))
    given = {os.path.realpath(part) for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part}
    packages = {
        os.path.realpath(part)
        for part in sys.path
        if os.path.basename(part) in ("site-packages", "dist-packages", "lib-dynload")
    }
    return tuple(part + os.sep for part in {library, *(packages - given)})


def _set_variable(name: str, value: Optional[str]) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
