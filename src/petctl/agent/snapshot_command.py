"""What a worker runs where its code is a snapshot and its working directory is the user's own.

    script, python FILE      the file of the snapshot; so `__file__` and sys.path[0] lie there
    module, python -m, -c    Python's own search, which finds the user's project in the snapshot (startup/)
    ./program, bash run.sh   the program's file, and scripts among its words, from the snapshot
    anything else            in the snapshot: nobody can tell which of its words are code

Relative paths that a program opens are the user's live files. Nothing is started here.
"""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Dict, List, Mapping, NamedTuple, Sequence

from petctl.agent import startup
from petctl.agent.task import MODULE, PROGRAM, SCRIPT, TORCHRUN, Task
from petctl.rendezvous.messages import Failure

_OPTION = re.compile(r"-([bBdOPqRsux]+|[XW].+)\Z")
_SCRIPTS = (".py", ".sh", ".bash")


class Command(NamedTuple):
    """The words of a task, as its workers are to be given them, and where they are to be started."""

    words: List[str]
    cwd: str
    searches: bool = False  # is it a Python that looks for modules in the user's project?


def interpreter_words(argv: Sequence[str]) -> int:
    """How many of these words are a Python and its options; 0 unless it reads PYTHONPATH and then runs a program."""
    words = 1
    while words < len(argv):
        word = argv[words]
        if word in ("-c", "-m") or not word.startswith("-"):
            return words
        if word in ("-X", "-W"):
            words += 1
        elif not _OPTION.match(word):
            return 0
        words += 1
    return 0


def command_of(task: Task) -> Command:
    """The task's words with the files of its snapshot in the place of the user's."""
    if task.root in ("", task.cwd):
        return Command(list(task.words), task.cwd)
    words, root = list(task.words), task.root
    if task.kind == SCRIPT:
        return Command([os.path.join(root, words[0]), *words[1:]], task.cwd, searches=True)
    if task.kind == MODULE and task.launcher != TORCHRUN:  # whose own processes look for it
        own = _has_module(root, words[0])
        return Command(words if own else _with_scripts(words, root), task.cwd, searches=True)
    if task.kind == PROGRAM and task.is_python:
        first = interpreter_words(words)
        if first and words[first] not in ("-c", "-m"):
            words[first] = _in_snapshot(words[first], root)
        return Command(words, task.cwd, searches=True) if first else Command(words, root)
    if task.kind == PROGRAM:
        changed = _with_scripts(words, root)
        return Command(changed, task.cwd if changed != words else root)
    return Command(words, root)


def with_snapshot_paths(env: Mapping[str, str], task: Task, searches: bool) -> Dict[str, str]:
    """The environment of a worker whose imports must come from the snapshot, also those by way of PYTHONPATH."""
    if task.root in ("", task.cwd):
        return dict(env)
    changed = dict(env)
    parts = env.get("PYTHONPATH", "").split(os.pathsep) if env.get("PYTHONPATH") else []
    if parts:
        changed["PYTHONPATH"] = os.pathsep.join(_searched(part, task) for part in parts)
    return startup.with_snapshot(changed, task.copy, task.code.own) if searches and task.code.own else changed


def named_by_user(failure: Failure, task: Task) -> Failure:
    """The failure with the user's own paths in the place of the snapshot's."""
    copy, own = task.copy, os.path.join(task.code.own, "")
    if not copy:
        return failure
    message, traceback = (
        text.replace(os.path.realpath(copy) + os.sep, own).replace(copy + os.sep, own)
        for text in (failure.message, failure.traceback)
    )
    return dataclasses.replace(failure, message=message, traceback=traceback)


def _searched(part: str, task: Task) -> str:
    """A directory of PYTHONPATH: the snapshot's, where it has the same one."""
    path = os.path.normpath(os.path.join(task.cwd, part))
    below = os.path.relpath(path, task.code.own) if task.code.own else ".."
    found = os.path.normpath(os.path.join(task.copy, below))
    return found if not below.startswith("..") and os.path.isdir(found) else path


def _with_scripts(words: Sequence[str], root: str) -> List[str]:
    """A program that is named by its path, and the scripts among its words, from the snapshot."""
    first = _in_snapshot(words[0], root) if os.sep in words[0] else words[0]
    return [first, *(_in_snapshot(word, root) if word.endswith(_SCRIPTS) else word for word in words[1:])]


def _in_snapshot(word: str, root: str) -> str:
    path = os.path.normpath(os.path.join(root, word))
    return path if not os.path.isabs(word) and os.path.isfile(path) else word


def _has_module(root: str, name: str) -> bool:
    first = os.path.join(root, name.partition(".")[0])
    return os.path.isdir(first) or os.path.isfile(first + ".py")
