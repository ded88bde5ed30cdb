"""How this machine's GPUs are divided between the nodes of a job.

Real ones are shared out by CUDA_VISIBLE_DEVICES (the agent sets it from --gpus), and a container gets those of its node
only. Where there are none, a node may still declare nominal ones, so that a job for GPU machines can be tried on a
laptop. Different jobs are not kept off each other's GPUs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Mapping, Sequence, Tuple


def visible_gpus(environment: Mapping[str, str]) -> List[str]:
    """The GPUs that the submitter may use, by the names CUDA_VISIBLE_DEVICES takes."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() and name.strip() != "-1"]
    try:
        found = [path.name[6:] for path in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    except OSError:
        return []
    return sorted(found, key=int)


def gpus_per_node(asked: int, procs: str, nodes: int, devices: Sequence[str]) -> int:
    """What each node gets: what the job asks for, else an equal share where its processes are counted by GPUs."""
    if asked or procs not in ("gpu", "auto"):
        return asked
    return max(1, len(devices) // nodes) if devices else 0


def gpu_options(index: int, count: int, devices: Sequence[str]) -> List[str]:
    """The agent's options for the node of this index; with too few GPUs for all, the nodes share them in turn."""
    if not count:
        return []
    if not devices:
        return ["--nominal-gpus", str(count)]
    mine = [devices[(index * count + offset) % len(devices)] for offset in range(min(count, len(devices)))]
    return ["--gpus", ",".join(mine)]


def inside_container(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The devices that a node's container needs, and the agent's words in there: what is let in is counted from 0."""
    if "--gpus" not in words:
        return [], list(words)
    at = list(words).index("--gpus") + 1
    devices = words[at].split(",")
    return devices, [*words[:at], ",".join(str(number) for number in range(len(devices))), *words[at + 1 :]]


def device_words(engine: str, devices: Sequence[str]) -> List[str]:
    """How an engine is told to let GPUs into a container."""
    if not devices:
        return []
    if engine == "docker":
        return ["--gpus", f'"device={",".join(devices)}"']  # the quotes are docker's: without them it reads two options
    return [word for device in devices for word in ("--device", f"nvidia.com/gpu={device}")]
