"""The words that a PyTorch launcher is given: what every worker runs, and what of the rest petctl has a field for.

    torchrun --nproc_per_node=4 --rdzv_id=x main.py --lr 0.1   ->   [python3, main.py, --lr, 0.1], 4 processes

Old and new spellings (torchelastic.distributed.launch, torch.distributed.run) and both ways to write an option. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from petctl.errors import UsageError

_MODULES = ("torch.distributed.run", "torch.distributed.launch", "torchelastic.distributed.launch")
_RENDEZVOUS = "petctl has its own rendezvous for every job"
_DROPPED = {
    **dict.fromkeys(("rdzv_backend", "rdzv_endpoint", "rdzv_id", "rdzv_conf", "node_rank"), _RENDEZVOUS),
    **dict.fromkeys(("master_addr", "master_port", "local_addr"), _RENDEZVOUS),
    "monitor_interval": "the end of a process is noticed when it happens",
    **dict.fromkeys(("log_dir", "redirects", "r", "tee", "t"), "petctl logs shows all that workers write"),
    **dict.fromkeys(("start_method", "role"), "petctl has no such setting"),
}
_FLAGS = {"standalone": _RENDEZVOUS, "use_env": "the environment always has it", "run_path": "it is the default"}


class Launch(NamedTuple):
    """What a launcher was to start."""

    command: list[str]  # of every worker
    procs: str = ""
    nodes: str = ""
    restarts: int | None = None
    notes: tuple[str, ...] = ()  # what was left out, and why


def launcher_length(words: Sequence[str]) -> int:
    """How many words at the beginning of a command are a launcher; 0: it is something else."""
    name = words[0].rpartition("/")[2] if words else ""
    if name == "torchrun":
        return 1
    if name.startswith("python"):
        for length in (3, 4):  # python [-u] -m MODULE
            if list(words[length - 2 : length]) in [["-m", module] for module in _MODULES]:
                return length
    return 0


def read_launch(words: Sequence[str]) -> Launch:
    """What the launcher makes of the words behind it."""
    rest, found, notes = list(words), {"procs": "", "nodes": "", "restarts": ""}, []
    fields = {"nproc_per_node": "procs", "nnodes": "nodes", "max_restarts": "restarts"}
    python = ["python3"]
    while rest and rest[0].startswith("-"):
        option, equals, value = rest.pop(0).partition("=")
        name = option.lstrip("-").replace("-", "_")
        if name in ("m", "module"):
            python = ["python3", "-m"]
        elif name == "no_python":
            python = []
        elif name in _FLAGS:
            notes.append(f"{option} is left out: {_FLAGS[name]}")
        elif name in fields or name in _DROPPED:
            if not equals and not rest:
                raise UsageError(f"the launcher's option {option} has no value")
            value = value if equals else rest.pop(0)
            if name in fields:
                found[fields[name]] = value
            else:
                notes.append(f"{option} is left out: {_DROPPED[name]}")
        else:
            raise UsageError(
                f"the launcher's option {option} is unknown; remove it, and check whether the job needs it"
            )
    if not rest:
        raise UsageError("the launcher has no script")
    if found["restarts"] and not found["restarts"].isdecimal():
        raise UsageError(f"the launcher's --max_restarts is {found['restarts']!r}, which is not a number")
    restarts = int(found["restarts"]) if found["restarts"] else None
    return Launch([*python, *rest], found["procs"], found["nodes"], restarts, tuple(notes))
