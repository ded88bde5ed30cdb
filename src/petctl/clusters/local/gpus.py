"""How this machine's GPUs are divided between the nodes of a job.

Real ones are shared out by CUDA_VISIBLE_DEVICES (the agent sets it from --gpus), and a container gets those of its node
only. Where there are none, a node may still declare nominal ones, so that a job for GPU machines can be tried on a
laptop. Different jobs are not kept off each other's GPUs.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple


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
