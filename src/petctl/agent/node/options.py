"""The words of the agent's command line. Read without argparse, whose import alone would delay every worker's start."""

from __future__ import annotations

import os
import re
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

from petctl.errors import UsageError

USAGE = """\
Usage: petctl-agent join --file FILE [options]
       petctl-agent version

Makes this machine a node of a running job: connects to the job's coordinator, and starts, watches and stops the
workers that it is asked to run. `petctl token JOB` writes FILE; it holds the job's token, so keep it to yourself.

Options of join:
  --file FILE          the join file (required)
  --node NAME          this node's name in the job (default: the host's name and four random digits)
  --address ADDRESS    where the other nodes reach this one (default: the address that it connects from)
  --state-dir DIR      where its lock, pid and logs are kept (default: logs only, in $PETCTL_HOME/nodes/JOB/NAME)
  --gpus LIST          the GPUs that its workers may use, such as 0,1
  --nominal-gpus N     count as having N GPUs, whatever there is
  --stream             also write the workers' lines to stdout, with their rank
  --tagged             with --stream, for programs that read it: `[RANK.ROUND] text` for a line of a worker's stdout,
                       `[RANK.ROUND!] text` for one of its stderr, and nothing but whole lines
  --replacement N      how many starts of this node there were before, where its cluster counts them: a number, or
                       numbers to add up, such as 1+2 (an empty one counts as 0). Without it clocks must agree
  --leave-code N       for what starts nodes again: exit with N when this node leaves while the job goes on, and with 0
                       when the job is over, however it ended
  --ready-file FILE    there while the node's workers are in a round; for readiness probes
  -v, --verbose        log everything that the node does; $PETCTL_LOG chooses by module, as it does for petctl

Exit code: 0 when the job succeeded or this node was released or asked to stop; else the job's own, 2 for wrong usage,
70 for a fault of petctl itself.

Examples:
  python3 petctl-agent.pyz join --file mnist-3f9k.join
  python3 petctl-agent.pyz join --file mnist-3f9k.join --node big-one --gpus 0,1 --stream
"""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z")
_KNOWN = (
    *("--file", "--node", "--address", "--state-dir", "--gpus", "--nominal-gpus", "--stream"),
    *("--tagged", "--replacement", "--leave-code", "--ready-file", "-v", "--verbose"),
)
_FLAGS = ("--stream", "--tagged", "-v", "--verbose")


class Options(NamedTuple):
    """What a node was told at its start."""

    file: str
    node: str
    incarnation: str  # new for every start
    address: str = ""
    state_dir: str = ""
    gpus: Optional[str] = None
    nominal_gpus: Optional[int] = None
    stream: bool = False
    tagged: bool = False
    leave_code: Optional[int] = None
    ready_file: str = ""
    verbose: bool = False


def read_words(command: str, words: List[str], known: Sequence[str], flags: Sequence[str] = ()) -> Dict[str, str]:
    """Options by name, or a UsageError that names the wrong word; those in `flags` take no value."""
    given: Dict[str, str] = {}
    todo = list(words)
    while todo:
        name, equals, value = todo.pop(0).partition("=")
        if name not in known:
            raise UsageError(f"{command} has no option {name!r}; it has {', '.join(known)}")
        if name in flags:
            if equals:
                raise UsageError(f"{name} takes no value")
            given[name] = "yes"
            continue
        if not equals and not todo:
            raise UsageError(f"{name} needs a value")
        given[name] = value if equals else todo.pop(0)
    return given


def parse_join(words: List[str], host: Callable[[], str] = lambda: os.uname().nodename) -> Options:
    """The options of `join`, or a UsageError that names the wrong word."""
    given = read_words("join", words, _KNOWN, _FLAGS)
    if "--file" not in given:
        raise UsageError("join needs --file FILE, the join file of a job; `petctl token JOB` writes it")
    if "--gpus" in given and "--nominal-gpus" in given:
        raise UsageError("give either --gpus or --nominal-gpus, not both")
    node = given.get("--node") or _default_name(host())
    if not _NAME.match(node):
        raise UsageError(f"--node {node!r}: a name has at most 63 letters, digits, dots, dashes and underscores")
    nominal = given.get("--nominal-gpus")
    if nominal is not None and not nominal.isdigit():
        raise UsageError(f"--nominal-gpus {nominal!r} is not a number")
    if "--tagged" in given and "--stream" not in given:
        raise UsageError("--tagged needs --stream")
    incarnation = f"{time.time_ns():016x}-{os.urandom(3).hex()}"
    if "--replacement" in given:
        incarnation = f"{added_up(given['--replacement']):08d}-{incarnation}"
    leave_code = given.get("--leave-code")
    if leave_code is not None and (not leave_code.isdigit() or int(leave_code) > 255):
        raise UsageError(f"--leave-code {leave_code!r} is not an exit code from 0 to 255")
    return Options(
        file=given["--file"],
        node=node,
        incarnation=incarnation,
        address=given.get("--address", ""),
        state_dir=os.path.abspath(given["--state-dir"]) if "--state-dir" in given else "",
        gpus=given.get("--gpus"),
        nominal_gpus=None if nominal is None else int(nominal),
        stream="--stream" in given,
        tagged="--tagged" in given,
        leave_code=None if leave_code is None else int(leave_code),
        ready_file=given.get("--ready-file", ""),
        verbose="-v" in given or "--verbose" in given,
    )


def _default_name(host: str) -> str:
    clean = re.sub(r"[^A-Za-z0-9.-]+", "-", host.split(".")[0]).strip("-.") or "node"
    return f"{clean[:50]}-{os.urandom(2).hex()}"


def added_up(text: str) -> int:
    """The value of --replacement: container platforms can put two counters side by side into a word, but not add."""
    parts = [part.strip() for part in text.split("+")]
    if not all(part.isdigit() or not part for part in parts):
        raise UsageError(f"--replacement {text!r} is not a number, nor numbers with + between them")
    return sum(int(part) for part in parts if part)
