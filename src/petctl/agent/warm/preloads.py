"""What is known about the imports of one command, and where that is kept between runs.

    $XDG_CACHE_HOME/petctl/preload/<sha256 of interpreter, command and directory>.json

    {"python": TEXT, "code": DIGEST, "groups": [[STATE or null, [NAME, ...]], ...],
     "without": {MODULE: WHY}, "varying": [VARIABLE, ...]}

With each module goes the state of the process in which it was imported: what the script had done before, see
startup/sitecustomize/process_state.py. A state can hold secrets, so only harmless ones are written to the file; null
stands for all others, and their modules are left for the workers to import until workers of this job have told them.

It is only a memory: a file that is missing, damaged or cannot be written means that nothing is known yet. Nothing here
starts a process or decides when to import what.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from hashlib import sha256
from typing import Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from petctl.files import replace_json

State = Optional[Dict[str, Any]]  # None: it is not known

_MOST_NAMES = 20_000
_LARGEST_FILE = 4 << 20
# Values that nobody keeps secret, of variables that are not called like secrets.
_HARMLESS = re.compile(r"(?i)[0-9]{1,3}|true|false|yes|no|on|off|none|auto|error|warning|info|debug|cpu|cuda|offline")
_PRIVATE = re.compile(r"(?i)key|token|secret|pass|pwd|cred|auth|pin")
# Libraries that are not written in Python read these themselves, where nobody can see it.
_NATIVE = re.compile(
    r"(OMP|GOMP|KMP|MKL|BLIS|OPENBLAS|GOTO|VECLIB|NUMEXPR|TF|XLA|JAX|CUDA|NCCL|HIP|ROCM|TORCH|PYTORCH|LD|MALLOC|LC|PYTHON)_"
    r"|LANG$|LANGUAGE$|TZ$|HOME$|PATH$|TMPDIR$"
)


# Read when CUDA is first used, which no zygote does; scripts like to set them to their rank.
_DEVICES = frozenset(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"))


class Preloads:
    """The modules that a command imports, in their order, and those that cannot be imported ahead."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.python = ""  # which interpreter all of this is about, in its own words
        self.code = ""  # and which script
        self.states: Dict[str, State] = {}  # by the module's name
        self.without: Dict[str, str] = {}
        self.varying: Set[str] = set()  # variables that are not the same in each worker
        self._start: Dict[str, str] = {}  # variables that workers begin with; in the file, none of those in a state
        self._read()

    @property
    def names(self) -> List[str]:
        """The modules, in their order."""
        return list(self.states)

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                data = json.loads(file.read(_LARGEST_FILE))
            python, code, groups = data["python"], data["code"], data["groups"]
            without, varying = data["without"], data["varying"]
            states = {name: state for state, names in groups for name in names}
            texts = [python, code, *states, *without, *without.values(), *varying]
            if _are_texts(texts) and all(state is None or is_state(state) for state, _ in groups):
                self.python, self.code, self.states = python, code, states
                self.without, self.varying = without, set(varying)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass

    def belong_to(self, python: str) -> bool:
        """Whether what is known is about this interpreter. If not, it is forgotten."""
        if self.python and self.python != python:
            self.states, self.without = {}, {}
            self.python = python
            return False
        self.python = python
        return True

    def belong_to_code(self, digest: str) -> None:
        """Another script may do other things before its imports: then their states are not known."""
        if self.code != digest:
            self.states = {}
            self.code = digest

    def forget_states(self, names: Iterable[str]) -> None:
        """The states of these have to be learnt again."""
        self.states.update((name, None) for name in names if name in self.states)

    def fit(self, env: Mapping[str, str]) -> None:
        """Workers begin with these variables: what is known of states that differ from others is not known any more."""
        before, self._start = self._start, dict(env)
        for name, state in self.states.items():
            if state and any(env.get(each) != before.get(each) for each in state.get("env", {})):
                self.states[name] = None

    def add(self, name: str, state: Dict[str, Any], own: FrozenSet[str]) -> bool:
        """A worker has imported it in this state. True: that is news."""
        self.varying |= _DEVICES & {*state.get("env", {})}
        state = _less(state, own | self.varying)
        if name in self.without or (name not in self.states and len(self.states) >= _MOST_NAMES):
            return False
        known = self.states.get(name)
        if known is None or known == state:
            self.states[name] = state
            return known is None
        variables = _varying(known, state)
        if variables:
            self.varying |= variables
            self.states = {each: _less(state, self.varying) for each, state in self.states.items()}
        else:
            self.keep_out([name], "is imported in another state each time")
        return True

    def drop(self, names: Sequence[str]) -> None:
        """They cannot be imported ahead after all, for no reason that has to be remembered."""
        for name in names:
            self.states.pop(name, None)

    def keep_out(self, modules: Sequence[str], why: str) -> None:
        """From now on these are left to the workers."""
        self.without.update(dict.fromkeys(modules, why))
        self.drop(modules)

    def groups(self, names: Iterable[str]) -> List[Tuple[State, List[str]]]:
        """These in their order, those after each other with the same state together."""
        pairs = [(self.states.get(name, {}), name) for name in names]
        return [(state, [name for _, name in part]) for state, part in itertools.groupby(pairs, lambda pair: pair[0])]

    def save(self) -> None:
        """Whole or not at all; other nodes may do the same at the same time, in pods with the same process number."""
        groups = [(_harmless(state, self._start), names) for state, names in self.groups(self.states)]
        content = {"python": self.python, "code": self.code, "groups": groups, "without": self.without}
        content["varying"] = sorted(self.varying)
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            replace_json(self._path, content)
        except OSError:
            pass


def path_of(interpreter: str, argv: Sequence[str], cwd: str) -> str:
    """The file for this command. The interpreter counts with what it is now: a replaced one is another one."""
    try:
        found = os.stat(interpreter)
        identity = [os.path.realpath(interpreter), found.st_mtime_ns, found.st_size]
    except OSError:
        identity = [interpreter]
    key = json.dumps([interpreter, identity, list(argv), cwd])
    cache = os.environ.get("PETCTL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "petctl", "preload", f"{sha256(key.encode('utf-8', 'replace')).hexdigest()}.json")


def digest_of(words: Sequence[str], cwd: str) -> str:
    """Of the script that these words of a command line, behind the interpreter, run; empty: it has no file."""
    name = os.path.join(*words[1].split(".")) + ".py" if words[0] == "-m" else words[0]
    try:
        with open(os.path.join(cwd, name), "rb") as file:
            return sha256(file.read()).hexdigest()
    except OSError:
        return ""


def is_state(value: object) -> bool:
    """Whether it has the form of one."""
    return isinstance(value, dict) and isinstance(value.get("env", {}), dict)


def _less(state: State, variables: Iterable[str]) -> Any:
    """Without these variables."""
    if not state or not any(name in state.get("env", {}) for name in variables):
        return state
    env = {name: value for name, value in state["env"].items() if name not in variables}
    rest = {key: value for key, value in state.items() if key != "env"}
    return {**rest, "env": env} if env else rest


def _varying(first: Dict[str, Any], second: Dict[str, Any]) -> Set[str]:
    """The variables in which alone two states differ; empty: they differ in more, or in some that must be the same."""
    one, other = first.get("env", {}), second.get("env", {})
    names = {name for name in {*one, *other} if (name in one, one.get(name)) != (name in other, other.get(name))}
    same = {key: value for key, value in first.items() if key != "env"} == {
        k: v for k, v in second.items() if k != "env"
    }
    return names if same and not any(map(_NATIVE.match, names)) else set()


def _harmless(state: State, start: Mapping[str, str]) -> State:
    """It, if nothing in it can be a secret or belongs to one job alone."""
    if state is None or not {*state} <= {"env", "filters"}:
        return None
    env = state.get("env", {})
    return state if all(name not in start and _is_public(name, value) for name, value in env.items()) else None


def _is_public(name: str, value: Optional[str]) -> bool:
    return bool(value and _HARMLESS.fullmatch(value) and not _PRIVATE.search(name))


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
