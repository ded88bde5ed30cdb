"""A node in a container: the words that start one, and the removal of what is left.

    podman run --rm --name petctl-JOB-NODE-N-HOME --label petctl.job=JOB ... IMAGE python petctl-agent.pyz join ...

The agent's Python is not the image's: it is a copy of petctl's own, mounted read-only (agent/workers/python_copy.py).
So it does not matter which Python an image has, or whether it has one.

A container is for its image, not for walls: it has the network, the processes and the shared memory of the machine, so
process ids, locks, signals and sweeps are as they are without one, and so are NCCL and CUDA between nodes. Directories
are where they are outside. Of the submitter's environment nothing gets in: the image's own counts, and what the job
sets reaches the workers as on any cluster, through the coordinator's welcome.

The engine's client lives as long as its container, unless somebody kills it; then the container goes on. Who watches
what is the keeper's business. Standard library only: the supervisor uses it.
"""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from petctl.agent.node.native import words_of
from petctl.agent.workers.python_copy import copy_name
from petctl.clusters.foreground import run_in_foreground
from petctl.clusters.local.gpus import device_words, inside_container
from petctl.clusters.local.job_directory import JobDirectory, write_json
from petctl.errors import UsageError
from petctl.machine.engines import DOCKER, Engine, last_words

JOB, NODE = "petctl.job", "petctl.node"
HOME = "petctl.home"  # stands for the job's directory: another $PETCTL_HOME may have a job of the same id
_REMOVAL_TAKES = 60.0
_LIMITS = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "stack": resource.RLIMIT_STACK}
_ENTER = """
import json, os, sys
with open(sys.argv[1]) as file:
    wish = json.load(file)
os.unlink(sys.argv[1])
with open("/proc/self/environ", "rb") as file:
    given = file.read().split(bytes(1))
if not any(entry.startswith(b"LC_CTYPE=") for entry in given):
    os.environ.pop("LC_CTYPE", None)  # this Python has set it, to what the image may not know
os.environ.update(wish["env"])
try:
    os.chdir(wish["cwd"])
    os.execvp(wish["argv"][0], wish["argv"])
except OSError as error:
    print(f"cannot run {wish['argv'][0]!r} in {wish['cwd']}: {error.strerror}", file=sys.stderr)
    sys.exit(127)
"""


def container_plan(
    engine: Engine,
    image: str,
    options: Sequence[str],
    directory: JobDirectory,
    places: Sequence[str],
    secret: str,
    shm: int = 0,
) -> dict[str, Any]:
    """What a job's record says of its containers: the words that are the same for all nodes, and no secret. `shm`: the
    bytes of a /dev/shm of their own."""
    cache = directory.home / "cache" / "images" / sha256(image.encode()).hexdigest()[:16]
    python = str(directory.home / "cache" / "python" / copy_name())
    made = [str(directory.path), str(cache)]
    environment = {"PETCTL_CACHE": str(cache)}
    if os.getuid() != 0 and not (engine.kind == DOCKER and engine.rootless):
        environment["HOME"] = str(directory.path / "home")  # in most images there is no other that this user can use
        made.append(environment["HOME"])
    run = [
        *("run", "--rm", "--pull", "never", "--log-driver", "none"),
        *("--network", "host", "--pid", "host", "--security-opt", "label=disable"),
        *(("--ipc", "private", "--shm-size", f"{shm}") if shm else ("--ipc", "host")),
        *_user(engine),
        *_limits(),
        *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
        *(word for path in _outermost([*made, *places]) for word in ("--mount", bind(path))),
        *("--mount", f"{bind(python)},readonly"),
        *("--workdir", "/", "--entrypoint", words_of(python)[0]),
    ]
    return {
        "engine": engine.program,
        "kind": engine.kind,
        "home": sha256(str(directory.path).encode()).hexdigest()[:8],
        "image": image,
        "credentials": secret,
        "python": python,
        "made": [*made, *(path for path in places if not Path(path).exists())],
        "run": run,
        "options": list(options),
    }


def container_argv(
    container: Mapping[str, Any], directory: JobDirectory, node: str, number: int, words: Sequence[str]
) -> list[str]:
    """The words that start a node's `number`th container, in which the agent is given `words`."""
    name = f"petctl-{directory.id}-{node}-{number}-{container['home']}"
    devices, inside = inside_container(words)
    return [
        *(container["engine"], *container["run"]),
        *("--name", name, "--label", f"{JOB}={directory.id}", "--label", f"{NODE}={node}"),
        *("--label", f"{HOME}={container['home']}"),
        *device_words(container["kind"], devices),
        *container["options"],
        *(container["image"], *words_of(container["python"])[1:], str(directory.agent), *inside),
    ]


def why_not_started(container: Mapping[str, Any], code: int, said: bytes) -> str:
    """The sentence for a container that ended before its agent had joined."""
    image, words = container["image"], last_words(said) or f"exit code {code}"
    return f"{Path(container['engine']).name} cannot run a node in the image {image}: {words}"


def remove_containers(container: Mapping[str, Any], job: str, node: str = "") -> str:
    """Removes every container of a node, or of the whole job, whoever started it; why not, if it could not."""
    try:
        found = _containers(container, job, node, running=False)
        if found:
            # podman waits ten seconds otherwise, though it says -f
            at_once = [] if container["kind"] == DOCKER else ["--time", "0"]
            _engine(container, ["rm", "-f", "-v", *at_once, *found])
            left = _containers(container, job, node, running=False)
            if left:
                return (
                    f"some containers of {job} are left; remove them with: {container['engine']} rm -f {' '.join(left)}"
                )
    except _Failed as error:
        return f"cannot list the containers of {job}: {error}"
    return ""


def enter_container(
    container: Mapping[str, Any], directory: JobDirectory, node: str, argv: list[str], env: dict[str, str], cwd: str
) -> int:
    """Runs a command in a node's container, with this terminal; its exit code. Engines show what they are told to
    anybody who asks, so values travel in a file that is gone once it is read."""
    try:
        found = _containers(container, directory.id, node, running=True)
    except _Failed as error:
        raise UsageError(f"cannot enter node {node} of {directory.id}: {error}") from None
    if not found:
        raise UsageError(f"node {node} of {directory.id} has no running container; try again in a moment")
    wish = directory.path / f".enter-{secrets.token_hex(6)}"
    write_json(wish, {"argv": argv, "env": env, "cwd": cwd}, mode=0o600)
    terminal = ["-t"] if sys.stdin.isatty() and sys.stdout.isatty() else []
    try:
        words = [container["engine"], "exec", "-i", *terminal, found[0], *words_of(container["python"])]
        words += ["-c", _ENTER, str(wish)]
        return run_in_foreground(words)
    finally:
        wish.unlink(missing_ok=True)


class _Failed(Exception):
    pass


def _containers(container: Mapping[str, Any], job: str, node: str, running: bool) -> list[str]:
    labels = [f"{JOB}={job}", f"{HOME}={container['home']}", *([f"{NODE}={node}"] if node else [])]
    filters = [word for label in labels for word in ("--filter", f"label={label}")]
    return _engine(container, ["ps", "-q" if running else "-aq", *filters]).split()


def _engine(container: Mapping[str, Any], words: Sequence[str]) -> str:
    argv = [container["engine"], *words]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REMOVAL_TAKES, check=False, cwd="/"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Failed(f"{argv[0]}: {error}") from None
    if done.returncode != 0 and words[0] != "rm":  # one that has gone meanwhile is no failure
        raise _Failed(last_words(done.stderr) or f"{argv[0]}: exit code {done.returncode}")
    return done.stdout.decode(errors="replace")


def _user(engine: Engine) -> list[str]:
    """So that files belong to whoever submitted the job, and nobody gets rights that he did not have."""
    if engine.kind == DOCKER:
        if engine.rootless:
            return ["--user", "0:0"]  # which is this user
        groups = sorted(set(os.getgroups()) - {os.getgid()})
        more = [word for group in groups for word in ("--group-add", str(group))]
        return ["--userns", "host", "--user", f"{os.getuid()}:{os.getgid()}", *more]
    own = ["--userns", "keep-id"] if engine.rootless else []
    return [*own, "--user", f"{os.getuid()}:{os.getgid()}", "--http-proxy=false"]


def _limits() -> list[str]:
    """Those of the submitter: engines have their own, with little memory to lock and few or very many files."""
    found = {name: resource.getrlimit(number) for name, number in _LIMITS.items()}
    return [word for name, (soft, hard) in found.items() for word in ("--ulimit", f"{name}={soft}:{hard}")]


def _outermost(paths: Sequence[str]) -> list[str]:
    """Without what lies in another one."""
    kept: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths}):
        if not any(Path(path).is_relative_to(outer) for outer in kept):
            kept.append(path)
    return kept


def bind(path: str, inside: str = "") -> str:
    """What --mount is told to show a path of this machine, under the same name or another."""
    fields = ("type=bind", f"src={path}", f"dst={inside or path}")
    return ",".join('"{}"'.format(field.replace('"', '""')) if set(',"') & set(field) else field for field in fields)
