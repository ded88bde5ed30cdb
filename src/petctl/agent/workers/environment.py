"""The environment of a worker: the union of what torchrun, Batch AI, ElasticJob and petctl scripts expect. Pure.

Later wins: what the agent inherited, the job's `env` and secrets, petctl's own variables. It looks at nothing but its
arguments.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Dict, Mapping, Optional

from petctl.agent.workers.processes import NODE_KEY
from petctl.job.task import CHECKPOINTS, Task
from petctl.rendezvous.core.heartbeat import lost_after
from petctl.rendezvous.core.messages import Place

# What the node's own start may have left behind, and no worker may inherit.
_PRIVATE = ("PETCTL_STEP", "PETCTL_WORKER_KEY", "PETCTL_AGENT_SOCKET", "PETCTL_LAUNCHER")

# What each worker has its own value of, in each round; all else is the same for every worker that a node ever starts.
ROUND_NAMES = frozenset(
    (
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NUM_NODES", "SIZE"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE"),
        *("MASTER_ADDR", "MASTER_PORT", "RDZV_ENDPOINT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RESTART_COUNT"),
        *("PETCTL_ROUND", "PETCTL_EPOCH", "PETCTL_WORKER_KEY", "PETCTL_PROGRESS"),
    )
)


@dataclass(frozen=True)
class RoundContext:
    """What all local workers of a round have in common."""

    node: str
    node_key: str  # JOB/NODE/INCARNATION
    epoch: int
    round: int
    place: Place
    spent: int
    procs: int  # local workers
    gpus: Optional[str] = None  # CUDA_VISIBLE_DEVICES of the node, when it was given some
    socket: str = ""  # where the agent listens to its workers; empty: nowhere
    library: str = ""  # where workers find petctl; empty: they have it


def output_variable(output: str) -> str:
    """The variable that leads to one of the job's outputs."""
    return "PETCTL_OUTPUT_" + output.upper().replace("-", "_")


def node_environment(
    inherited: Mapping[str, str], task: Task, node: str, node_key: str, library: str = ""
) -> Dict[str, str]:
    """What every process of a node gets, its preparation included."""
    env = {name: value for name, value in inherited.items() if name not in _PRIVATE}
    env.update(task.env)
    env.update(task.secrets)
    env.update({NODE_KEY: node_key, "PETCTL_JOB_ID": task.job, "PETCTL_NODE": node, "JOB_ID": task.job})
    if task.layout.kind:
        env["PETCTL_PYTHON"] = task.python or "python3"  # what runs its scripts, in lines for a shell
    if task.output_dir:
        env["PETCTL_OUTPUT_DIR"] = task.output_dir
        env.update({output_variable(output): os.path.join(task.output_dir, output) for output in task.outputs})
    if task.checkpoint_dir:
        env[CHECKPOINTS] = task.checkpoint_dir
    if library:  # last, so that what the user put there is still found first
        env["PYTHONPATH"] = os.pathsep.join(part for part in (env.get("PYTHONPATH"), library) if part)
    return env


def worker_environment(
    inherited: Mapping[str, str], task: Task, context: RoundContext, local_rank: int, error_file: str
) -> Dict[str, str]:
    """All variables of one worker."""
    place, procs = context.place, context.procs
    rank = place.first_rank + local_rank
    env = node_environment(inherited, task, context.node, context.node_key, context.library)
    if context.socket:
        env["PETCTL_AGENT_SOCKET"] = context.socket
    if procs > 1:
        env.setdefault("OMP_NUM_THREADS", "1")
    env.setdefault("NCCL_ASYNC_ERROR_HANDLING", "1")
    env.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    if context.gpus is not None:
        env["CUDA_VISIBLE_DEVICES"] = context.gpus
    numbers = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "GROUP_RANK": place.rank,
        "ROLE_RANK": rank,
        "WORLD_SIZE": place.world_size,
        "LOCAL_WORLD_SIZE": procs,
        "GROUP_WORLD_SIZE": place.nodes,
        "ROLE_WORLD_SIZE": place.world_size,
        "MASTER_PORT": place.master_port,
        "TORCHELASTIC_RESTART_COUNT": context.spent,
        "TORCHELASTIC_MAX_RESTARTS": task.restarts,
        "NUM_NODES": place.nodes,
        "SIZE": place.nodes,
        "MIN_SIZE": task.min_nodes,
        "MAX_SIZE": task.max_nodes,
        "PETCTL_ROUND": context.round,
        "PETCTL_EPOCH": context.epoch,
    }
    env.update({name: str(value) for name, value in numbers.items()})
    host = f"[{place.master_addr}]" if ":" in place.master_addr else place.master_addr
    env.update(
        {
            "ROLE_NAME": task.role,
            "MASTER_ADDR": place.master_addr,
            "TORCHELASTIC_RUN_ID": task.job,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCHELASTIC_ERROR_FILE": error_file,
            "RDZV_ENDPOINT": f"{host}:{place.master_port}",
            "PETCTL_HEARTBEAT_LIMIT": f"{lost_after(task.timing.silence, task.max_nodes):g}",
            "PETCTL_WORKER_KEY": f"{context.node_key}/{context.round}/{rank}",
        }
    )
    if task.layout.kind:
        from petctl.agent.layouts import layout_module

        env.update(layout_module(task.layout).round_variables(task, rank, env))
    return env
