"""The words with which a command runs in a pod as a worker of its job would: in its directory, with its environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from petctl.clusters.kubernetes.names import node_of
from petctl.clusters.kubernetes.pods import manifests as make
from petctl.job.task import Task

AS_A_WORKER = """
import json, os, pathlib, sys
wish, own = json.loads(sys.argv[1]), b""
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found = b"\\0" + path.read_bytes()
    except OSError:
        continue
    if b"\\0PETCTL_WORKER_KEY=" in found:
        own = found
        break
    if b"\\0PETCTL_NODE_KEY=" in found:  # a warm worker's: its round's variables do not show from outside
        own = found
os.environ.update(line.split("=", 1) for line in os.fsdecode(own).split("\\0") if "=" in line)
os.environ.update(wish["env"])
try:
    os.chdir(wish["cwd"] or ".")
    os.execvp(wish["argv"][0], wish["argv"])
except OSError as error:
    sys.exit(f"cannot run {wish['argv'][0]!r} in {os.getcwd()}: {error.strerror}")
"""


def worker_command(pod: dict[str, Any], job_id: str, task: Task, argv: Sequence[str]) -> list[str]:
    """What to execute in the pod, by the Python that its agent runs on."""
    cwd = make.code_directory(task.code) if task.code.id else task.cwd
    command = pod["spec"]["containers"][0]["command"]
    python = command[: command.index(make.ARCHIVE)]
    own = {**task.env, "PETCTL_JOB_ID": job_id, "PETCTL_NODE": node_of(pod)}
    return [*python, "-c", AS_A_WORKER, json.dumps({"env": own, "cwd": cwd, "argv": list(argv)})]
