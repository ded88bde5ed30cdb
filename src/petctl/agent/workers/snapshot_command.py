"""What a worker runs where its code is a snapshot and its working directory is the user's own.

    script, python FILE      the file of the snapshot; so `__file__` and sys.path[0] lie there
    module, python -m, -c    Python's own search, which finds the user's project in the snapshot (startup/)
    ./program, bash run.sh   the program's file, and scripts among its words, from the snapshot
    a line for a shell       the same for the words of the line

A few commands work in the snapshot, because their code would not be found otherwise (`copy_reason`). Relative paths
that a program opens are the user's live files. Nothing is started here.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence

from petctl.agent.warm import startup
from petctl.job.task import MODULE, PROGRAM, SCRIPT, SHELL, TORCHRUN, Task
from petctl.rendezvous.core.messages import Failure

_OPTION = re.compile(r"-([bBdOPqRsux]+|[XW].+)\Z")
_SCRIPTS = (".py", ".sh", ".bash")
_SHELLS = ("sh", "bash", "dash", "zsh", "ksh")
_LINE_OPTION = re.compile(r"-[a-z]*c\Z")
_BETWEEN_WORDS = re.compile(r"([\s;&|()<>]+)")
_PLAIN_WORD = re.compile(r"[\w./@%+-]+\Z")
_CHANGES_DIRECTORY = re.compile(r"(?:^|[;&|({\s])(?:cd|pushd)\s+(?![/~])")
_RUNS_MODULE = re.compile(r"\s(?:-m|--module)[\s=]+[A-Za-z_][\w.]*(?=\s|\Z)")
_PYTHON = re.compile(r"(?:.*/)?python[\d.]*\Z")


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
    if copy_reason(task):
        return Command(words, root)
    if task.kind == MODULE:
        own = _has_module(root, words[0])
        return Command(words if own else _with_scripts(words, root), task.cwd, searches=True)
    if task.kind == PROGRAM and task.is_python:
        first = interpreter_words(words)
        if words[first] not in ("-c", "-m"):
            words[first] = _in_snapshot(words[first], root)
        return Command(words, task.cwd, searches=True)
    line = _line_at(task)
    if line is not None:
        words[line] = _line_with_scripts(words[line], root)
        return Command(words, task.cwd, searches=True)
    return Command(_with_scripts(words, root), task.cwd, searches=True)


def copy_reason(task: Task) -> str:
    """Says why a task must work in the snapshot, although the user's own directory is there; empty: it need not."""
    if task.kind == MODULE and task.launcher == TORCHRUN:
        return "torchrun looks for the module there"
    if task.kind == PROGRAM and task.is_python:
        return "" if interpreter_words(task.words) else "this Python could not import the snapshot from elsewhere"
    line = _line_at(task)
    if line is not None and _CHANGES_DIRECTORY.search(task.words[line]):
        return "the command changes its directory"
    if task.kind in (PROGRAM, SHELL):
        text = task.words[line] if line is not None else " ".join(task.words)
        for command in re.split(r"[;&|()]", text):
            module = _RUNS_MODULE.search(command)
            if module and not any(map(_PYTHON.match, command[: module.start()].split())):
                return "the command looks for a module there"
    return ""


def _line_at(task: Task) -> Optional[int]:
    """Which of the words is a line for a shell; None: no word is."""
    if task.kind == SHELL:
        return 0
    if task.kind == PROGRAM and os.path.basename(task.words[0]) in _SHELLS:
        for number, word in enumerate(task.words[1:-1], 1):
            if _LINE_OPTION.match(word):
                return number + 1
            if not word.startswith("-"):
                break
    return None


def _line_with_scripts(line: str, root: str) -> str:
    """A line for a shell with the snapshot's files in the place of its scripts, and of programs named by a path."""
    parts = _BETWEEN_WORDS.split(line)
    for number in range(0, len(parts), 2):
        word = parts[number]
        written = number > 0 and parts[number - 1].rstrip().endswith(">")
        if written or not _PLAIN_WORD.match(word):
            continue
        found = _in_snapshot(word, root)
        is_code = word.endswith(_SCRIPTS) or (os.sep in word and os.access(found, os.X_OK))
        quoted = shlex.quote(found)
        if found != word and is_code and (quoted == found or not ("'" in line or '"' in line)):
            parts[number] = quoted
    return "".join(parts)


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
