"""Flags of act's own that were written among the words of a command: they are the command's, and that is pointed out.

ACT's users know the trap: `a submit python train.py -n 8` asks for no GPUs. Nothing is changed here; a sentence says
how it is written, where the words can hardly mean anything else.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import PurePath

from petctl.compat.act.cli.flags import Flags

HAVE_THEIR_OWN = frozenset(
    {"mpirun", "mpiexec", "srun", "head", "tail", "nice", "xargs", "echo", "sed", "sort", "grep"}
)
_MEANING = {
    "num_gpu": "for {value} GPUs",
    "cluster": "for the cluster {value}",
    "single": "for one process per node",
    "hold": "to keep a failed node",
}
_WORDS = {"-n": "num_gpu", "--num_gpu": "num_gpu", "-c": "cluster", "-single": "single", "-hold": "hold"}
_SWITCHES = ("single", "hold")


def misplaced(program: str, verb: str, words: Sequence[str], said: Flags, known: Callable[[str], bool]) -> list[str]:
    """A sentence for each such flag; `known` tells whether a name is that of a configuration."""
    if not words or PurePath(words[0]).name in HAVE_THEIR_OWN:
        return []
    found = []
    for place, word in enumerate(words):
        name = _WORDS.get(word)
        value = words[place + 1] if place + 1 < len(words) else ""
        if name is None or getattr(said, name) is not getattr(Flags(), name):
            continue
        if (name == "num_gpu" and not value.isdigit()) or (name == "cluster" and not known(value)):
            continue
        flag = [word] if name in _SWITCHES else [word, value]
        rest = [*words[:place], *words[place + len(flag) :]]
        if not rest:
            continue
        line = shlex.join([program, *flag, verb, *rest])
        found.append(
            f"{' '.join(flag)} is {PurePath(words[0]).name}'s; {_MEANING[name].format(value=value)} write: {line}"
        )
    return found
