"""The step that makes a node ready, a process of its own: installs the code's requirements, then runs the job's line.

Nodes that share a directory take turns, so that two never build the same thing at the same moment. It runs under the
agent's interpreter and must not touch what the job's own processes inherit.

Requirements go into a Python environment that is made once per machine and found by its content:

    $XDG_CACHE_HOME/petctl/environments/<sha256 of interpreter, requirements, ...>/

It is a virtual environment that sees everything the interpreter sees which it was made from, so only what is missing
there is installed. Whoever makes one holds its lock; one without its mark was cut short, and is made again.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import time
from hashlib import sha256
from typing import List, Mapping, Sequence, Tuple

from petctl.agent.data.new_files import note_built
from petctl.agent.node.native import own_words
from petctl.errors import PetctlError
from petctl.files import locked
from petctl.job.task import Task

_PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); from petctl.agent.node.setup_step import main; main()"

MARK = "petctl-complete"
_KEPT = 30 * 86400.0  # seconds that an environment is kept after its last use
_OWN = "own.pth"
_SITES = "import sys; print(*[p for p in sys.path if p.endswith(('site-packages', 'dist-packages'))], sep='\\n')"
_WHERE = "import sysconfig; print(sysconfig.get_paths()['purelib'])"


def argv(lock: str, line: str, copy: str, python: str = "", requirements: str = "", environment: str = "") -> List[str]:
    """The command line of this step. `copy`: of the job's code, if it has one."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    here = os.path.dirname(package)  # a directory, or the pyz
    return [*own_words(), "-c", _PROGRAM, here, lock, line, copy, python, requirements, environment]


def main() -> None:
    """Runs it; exits with the code of what failed."""
    sys.exit(prepare(sys.argv[1:]))


def prepare(words: Sequence[str]) -> int:
    """The exit code: a signal's as a shell gives it."""
    lock, line, copy, python, requirements, environment = words
    code = make(python, requirements, environment) if requirements else 0
    if code == 0 and line:
        with locked(lock):
            code = subprocess.call(["/bin/sh", "-c", line])
            if code == 0 and copy:
                note_built(copy)
    return code if code >= 0 else 128 - code


def directory_of(python: str, requirements: str, code_id: str) -> str:
    """Where the environment of this interpreter and this file is, or will be."""
    try:
        with open(requirements, "rb") as file:
            content = file.read()
    except OSError as error:
        raise PetctlError(f"cannot read the requirements {requirements}: {error.strerror or error}") from None
    facts = [os.path.abspath(python), *_binary(python), content.decode("utf-8", "replace")]
    if any(line.lstrip()[:1] in (b".", b"/", b"-") or b"@" in line for line in content.splitlines()):
        facts.append(code_id)  # it speaks of other files, which may change while it does not
    cache = os.environ.get("PETCTL_CACHE") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "petctl", "environments", sha256("\0".join(facts).encode()).hexdigest()[:32])


def inside(task: Task, directory: str, inherited: Mapping[str, str]) -> Task:
    """The task, run in that environment."""
    own = os.path.join(directory, "bin")
    path = task.env.get("PATH") or inherited.get("PATH") or os.defpath
    env = {**task.env, "PATH": f"{own}{os.pathsep}{path}", "VIRTUAL_ENV": directory}
    return dataclasses.replace(task, python=os.path.join(own, "python"), env=env)


def make(python: str, requirements: str, directory: str) -> int:
    """Makes the environment unless it is there; pip's exit code, and what it says on the usual streams."""
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    with locked(directory + ".lock"):
        mark = os.path.join(directory, MARK)
        if os.path.exists(mark):
            os.utime(mark)
            return 0
        _remove_old(os.path.dirname(directory))
        shutil.rmtree(directory, ignore_errors=True)
        code = subprocess.call([python, "-m", "venv", directory])
        if code != 0:
            print(f"{python} cannot create a virtual environment, which the requirements need", flush=True)
            return code
        own = os.path.join(directory, "bin", "python")
        sites = _ask(python, _SITES).splitlines()
        with open(os.path.join(_ask(own, _WHERE), _OWN), "w") as file:
            file.writelines(f"import site; site.addsitedir({site!r})\n" for site in sites)
        install = [own, "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]
        code = subprocess.call([*install, "-r", requirements])
        if code == 0:
            with open(mark, "w"):
                pass
        return code


def _remove_old(environments: str) -> None:
    for name in os.listdir(environments):
        path = os.path.join(environments, name)
        try:
            if time.time() - os.stat(os.path.join(path, MARK)).st_mtime > _KEPT:
                shutil.rmtree(path, ignore_errors=True)
        except OSError:
            pass  # a lock, or one that is being made


def _binary(python: str) -> Tuple[str, str, str]:
    """Tells one installation of an interpreter from its successor without running it."""
    real = os.path.realpath(python)
    try:
        status = os.stat(real)
    except OSError as error:
        raise PetctlError(f"cannot run the interpreter {python}: {error.strerror or error}") from None
    return real, str(status.st_size), str(status.st_mtime_ns)


def _ask(python: str, program: str) -> str:
    try:
        asked = subprocess.run([python, "-c", program], stdout=subprocess.PIPE, check=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PetctlError(f"cannot query the interpreter {python}: {error}") from None
    return asked.stdout.strip()
