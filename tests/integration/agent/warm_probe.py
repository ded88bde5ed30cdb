"""Prints everything about its own process that a script can see and that must not depend on how it was started."""

# It must not import more than it needs, so no pathlib.
# ruff: noqa: PTH109, PTH115, PTH122, PTH208
import atexit
import faulthandler
import gc
import inspect
import json
import locale
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from typing import Any


def main_module():
    module = sys.modules["__main__"]
    facts = {name: repr(value) for name, value in vars(module).items() if name.startswith("__")}
    for name in ("__builtins__", "__loader__"):
        facts[name] = repr(type(facts[name]))
    loader = module.__loader__
    return [list(facts), facts, type(loader).__name__, getattr(loader, "name", ""), getattr(loader, "path", "")]


def signals():
    with open("/proc/self/status") as file:
        masks = [line for line in file if line.startswith("Sig") and not line.startswith("SigQ")]
    handlers = {int(number): str(signal.getsignal(number)) for number in signal.valid_signals()}
    return [masks, handlers, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))]


def descriptors():
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            _, suffix = os.path.splitext(os.readlink("/proc/self/fd/" + number))
            found[number] = [suffix, os.get_inheritable(int(number))]
        except OSError:
            pass
    return found


def streams():
    facts = []
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        facts.append([stream.encoding, stream.errors, stream.isatty(), stream.line_buffering, stream.name, stream.mode])
        facts.append([type(stream.buffer).__name__, getattr(stream, "write_through", None), stream.fileno()])
    return facts


def process():
    with open("/proc/self/comm") as comm, open("/proc/self/cmdline") as cmdline:
        names = [comm.read(), cmdline.read()]
    me = os.getpid()
    limits = [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")]
    mask = os.umask(0)
    os.umask(mask)
    return [names, os.getsid(0) == me, os.getpgid(0) == me, os.getcwd(), limits, mask, os.nice(0)]


def threads():
    main = threading.main_thread()
    same = [main is threading.current_thread(), main.native_id == os.getpid(), main.ident == threading.get_ident()]
    return [main.name, same, threading.active_count(), len(os.listdir("/proc/self/task"))]


def stacks():
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        dumped = [line.split("(")[0] for line in file.readlines()[1:]]
    return [traceback.format_stack(), len(inspect.stack()), dumped, faulthandler.is_enabled()]


def interpreter():
    return {
        "argv": sys.argv,
        "orig_argv": getattr(sys, "orig_argv", None),
        "path": sys.path,
        "flags": repr(sys.flags),
        "executable": [sys.executable, sys.prefix, sys.base_prefix],
        "options": [sys.warnoptions, sorted(sys._xoptions)],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()],
        "finders": [getattr(finder, "__name__", repr(finder)) for finder in sys.meta_path],
        "left": [name for name in [*sys.modules, *sys.path_importer_cache] if "petctl" in name or "customize" in name],
        "locale": [locale.setlocale(locale.LC_ALL, None), sys.getfilesystemencoding()],
        "gc": [gc.isenabled(), gc.get_threshold()],
    }


def say(queue):
    queue.put([os.environ["RANK"], multiprocessing.current_process().name, sys.argv, __name__])


def children():
    facts = []
    for method in ("spawn", "fork", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        queue = context.SimpleQueue()
        child = context.Process(target=say, args=(queue,))
        child.start()
        facts.append(queue.get())
        child.join()
        facts.append(child.exitcode)
    return facts


def everything():
    facts = {
        "main": main_module(),
        "interpreter": interpreter(),
        "environment": dict(os.environ),
        "inherited": sorted(subprocess.check_output(["env"]).decode().splitlines()),
        "signals": signals(),
        "descriptors": descriptors(),
        "streams": streams(),
        "process": process(),
        "threads": threads(),
        "stacks": stacks(),
    }
    if "children" in sys.argv:
        facts["children"] = children()
    return facts


if __name__ == "__main__":
    print(json.dumps(everything(), indent=1, sort_keys=True))
    atexit.register(print, "last", "__file__" in globals())
    atexit.register(print, "first")
