"""Runs in the user's interpreter, in the place of `sitecustomize`, and leaves no trace when the script begins.

The agent puts the directory of this package at the head of PYTHONPATH; PETCTL_STARTUP says what for:

    check     the interpreter does run this: so it is safe to start the script's own command line as a zygote
    zygote    imports what it is asked to and forks workers (serving.py)
    learn     an ordinary worker that notes what it imports (learning.py)

and PETCTL_STARTUP_SNAPSHOT, whatever it is for, where modules of the user's project come from (snapshot.py);
PETCTL_STARTUP_STACKS, that the process is to answer a signal with its stacks (stacks.py).

A fork of the zygote simply returns from here, and the interpreter goes on to what its command line says. Nothing has to
be imitated: `__main__`, sys.argv, sys.path, tracebacks and exit codes are the interpreter's own.

Whatever fails in a zygote must end the process: if it got away from here, it would run the script as a worker nobody
asked for. This package uses the standard library only, any Python from 3.8, and nothing of petctl beyond itself. This
file is read by older ones too, from 2.7 on, so its types are comments: there it only steps aside.
"""

import os
import sys

AT_START = frozenset(sys.modules)  # what any Python has loaded before its script begins
VARIABLE = "PETCTL_STARTUP"
_BROKEN, _TOO_OLD = 70, 68  # zygote.py knows them
_SNAPSHOT = "PETCTL_STARTUP_SNAPSHOT"
_STACKS = "PETCTL_STARTUP_STACKS"


def _run():
    # type: () -> None
    directory = os.path.dirname(os.path.dirname(__file__))
    role, _, value = os.environ.pop(VARIABLE, "").partition(":")
    old = sys.version_info < (3, 8)
    if old and role == "check":
        os._exit(_TOO_OLD)
    if role == "check":
        _become_zygote(value)
    _take_out(directory)
    snapshot = os.environ.pop(_SNAPSHOT, "")
    stacks = os.environ.pop(_STACKS, "")
    try:
        if stacks and not old:
            from .stacks import answer_signal

            answer_signal()
        if snapshot and not old:
            from .snapshot import search_snapshot

            search_snapshot(snapshot)
        if old:
            pass
        elif role == "zygote":
            from .serving import serve

            serve(int(value))
        elif role == "learn" and value:
            from .learning import note_imports

            note_imports(value)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        if role == "zygote":
            sys.stderr.flush()
            os._exit(_BROKEN)
    own, modules, cache, load, at_start = __name__, sys.modules, sys.path_importer_cache, __import__, AT_START
    for name in [name for name in modules if name not in at_start or name.partition(".")[0] == own]:
        del modules[name]  # and what we have loaded. Python 2 empties it: from here on there are only local names
    for place in [place for place in cache if place.startswith(directory)]:
        del cache[place]
    try:
        load(own)  # the user's own, if there is one
    except ImportError:  # if not, `site` expects this very error
        modules.setdefault(
            own, modules["sys"]
        )  # up to 3.9 the importer of archives takes it for granted, and deletes it
        raise


def _become_zygote(descriptor):
    # type: (str) -> None
    """Starts again with the worker's command line, in the environment that this process was itself started with.

    os.environ is not that any more: a Python in the C locale has changed LC_CTYPE in it.
    """
    with open("/proc/self/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    env = {name: value for name, _, value in pairs}
    env[os.fsencode(VARIABLE)] = os.fsencode("zygote:" + descriptor)
    os.execvpe(sys.argv[1], sys.argv[1:], env)


def _take_out(directory):
    # type: (str) -> None
    while directory in sys.path:
        sys.path.remove(directory)
    rest = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part != directory]
    if rest:
        os.environ["PYTHONPATH"] = os.pathsep.join(rest)
    else:
        os.environ.pop("PYTHONPATH", None)


if __name__ == "sitecustomize":
    _run()
