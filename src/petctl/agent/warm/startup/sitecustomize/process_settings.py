"""What there is once in a process, and modules may look at or change when they are imported.

    settings()                      in words, so that two processes can be compared
    Parts.read(), Parts.write()     the things themselves, so that one process can be as it was before

Of libraries only those count that are loaded, and only what is not as they make it: so it says nothing about a library
whether or not it is loaded, as long as nobody has changed its settings.
"""

from __future__ import annotations

import _locale
import _signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False  # typing itself is not loaded by every Python
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Tuple


def settings() -> Dict[str, str]:
    """Each in words, by what it is called."""
    found = {"the locale": _locale.setlocale(_locale.LC_ALL), "signal handlers": _handlers()}
    for name, module, read in _SETTINGS:
        if module in sys.modules:
            try:
                found[name] = read(sys.modules[module])
            except Exception:  # a library that is just being loaded, or of another age
                continue
    return {name: text for name, text in found.items() if text}


def _names(things: Iterable[Any]) -> str:
    return " ".join(getattr(thing, "__qualname__", type(thing).__qualname__) for thing in things)


def _exception_hook() -> Any:
    """The one beneath that of `torch.distributed`, which only writes the rank before what the other prints."""
    hook = sys.excepthook
    while getattr(hook, "__module__", "") == "torch.distributed.distributed_c10d":
        beneath = [cell.cell_contents for cell in hook.__closure__ or () if callable(cell.cell_contents)]
        if not beneath:
            break
        hook = beneath[0]
    return hook


def _handlers() -> str:
    found = ((number, _signal.getsignal(number)) for number in range(1, _signal.NSIG))
    return " ".join(f"{number}:{_handler(handler)}" for number, handler in found if handler)


def _handler(handler: Any) -> str:
    return str(int(handler)) if isinstance(handler, int) else getattr(handler, "__qualname__", "other")


def _start_method(module: Any) -> str:
    chosen = module._default_context._actual_context
    return chosen._name if chosen is not None else ""


def _unless(usual: str, value: object) -> str:
    return "" if str(value) == usual else str(value)


def _of_matplotlib(module: Any) -> str:
    usual = module.rcParamsOrig
    return " ".join(f"{name}={value}" for name, value in dict.items(module.rcParams) if dict.get(usual, name) != value)


def _of_jax(module: Any) -> str:
    values = {name: str(module.config.values.get(name)) for name in _JAX}
    return " ".join(f"{name}={value}" for name, value in values.items() if value not in ("None", "False", ""))


_JAX = ("jax_enable_x64", "jax_platforms", "jax_default_matmul_precision", "jax_debug_nans", "jax_disable_jit")
_SETTINGS: List[Tuple[str, str, Callable[[Any], str]]] = [
    ("the recursion limit", "sys", lambda m: str(m.getrecursionlimit())),
    ("import hooks", "sys", lambda m: f"{_names(m.meta_path)} {_names(m.path_hooks)}"),
    ("hooks of sys", "sys", lambda m: _names([_exception_hook(), m.displayhook, m.gettrace(), m.getprofile()])),
    ("streams of sys", "sys", lambda m: _names(map(type, (m.stdin, m.stdout, m.stderr)))),
    ("bytecode", "sys", lambda m: _unless("False", m.dont_write_bytecode)),
    ("the start method of multiprocessing", "multiprocessing.context", _start_method),
    ("the timeout of sockets", "_socket", lambda m: _unless("None", m.getdefaulttimeout())),
    ("the precision of decimal", "decimal", lambda m: _unless("28", m.getcontext().prec)),
    ("numpy's errors", "numpy", lambda m: _unless("warn warn ignore warn", " ".join(m.geterr().values()))),
    ("torch's default type", "torch", lambda m: _unless("torch.float32", m.get_default_dtype())),
    ("torch's gradients", "torch", lambda m: _unless("True", m.is_grad_enabled())),
    ("torch's modes", "torch._C", lambda m: _unless("0", m._len_torch_function_stack())),
    ("matplotlib's settings", "matplotlib", _of_matplotlib),
    ("jax's settings", "jax", _of_jax),
]


# -- the things themselves -------------------------------------------------------------------------------------------


class Parts:
    """All that can be put back."""

    @staticmethod
    def read() -> Dict[str, Any]:
        """As they are now."""
        return {name: get() for name, get, _ in _PARTS}

    @staticmethod
    def write(before: Dict[str, Any], after: Dict[str, Any]) -> None:
        """Those in which the second differs from the first are made as they are in the second."""
        for name, _, put in _PARTS:
            if before[name] != after[name]:
                put(after[name])


def filter_list() -> List[Any]:
    """The filters of warnings, which are there before that module is."""
    found: List[Any] = (sys.modules.get("warnings") or sys.modules["_warnings"]).filters
    return found


def filters() -> List[List[Any]]:
    """In words."""
    return [_in_words(each) for each in filter_list()]


def _in_words(each: Any) -> List[Any]:
    action, message, category, module, line = each
    kind = f"{category.__module__}:{category.__qualname__}"
    return [action, getattr(message, "pattern", message), kind, getattr(module, "pattern", module), line]


def make_filters(wanted: List[List[Any]]) -> None:
    """From words; LookupError, AttributeError: they name a class that is not there."""
    present = filters()
    if present == wanted:
        return
    import re

    known = dict(zip(map(str, present), filter_list()))
    made = []
    for words in wanted:
        action, message, kind, module, line = words
        place, _, name = kind.partition(":")
        texts = (message and re.compile(message, re.IGNORECASE), module and re.compile(module))
        one = (action, texts[0], getattr(sys.modules[place], name), texts[1], line)
        made.append(known.get(str(words), one))
    _put_filters(made)


def _put_filters(made: List[Any]) -> None:
    filter_list()[:] = made
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        changed = getattr(sys.modules["_warnings"], name, None)
        if changed is not None:
            changed()


def cwd() -> str:
    """Empty: it is gone."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def _put_locale(text: str) -> None:
    _locale.setlocale(_locale.LC_ALL, text)


def _put_handlers(wanted: List[Any]) -> None:
    for number, handler in enumerate(wanted, 1):
        if handler is not None and _signal.getsignal(number) is not handler:
            _signal.signal(number, handler)


def _put_in_sys(name: str) -> Tuple[str, Callable[[], Any], Callable[[Any], None]]:
    return name, lambda: getattr(sys, name), lambda value: setattr(sys, name, value)


def _list_in_sys(name: str) -> Tuple[str, Callable[[], Any], Callable[[Any], None]]:
    def put(value: List[Any]) -> None:
        getattr(sys, name)[:] = value

    return name, lambda: list(getattr(sys, name)), put


_PARTS: List[Tuple[str, Callable[[], Any], Callable[[Any], None]]] = [
    *map(_list_in_sys, ("path", "argv", "meta_path", "path_hooks")),
    *map(_put_in_sys, ("excepthook", "displayhook", "dont_write_bytecode", "stdin", "stdout", "stderr")),
    ("cwd", cwd, os.chdir),
    ("filters", lambda: list(filter_list()), _put_filters),
    ("recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    ("locale", lambda: _locale.setlocale(_locale.LC_ALL), _put_locale),
    ("signals", lambda: [_signal.getsignal(number) for number in range(1, _signal.NSIG)], _put_handlers),
]
