"""The words of `petctl-agent coordinate`. Read without argparse, like those of the agent."""

from __future__ import annotations

from pathlib import Path
from typing import List, NamedTuple

from petctl.agent.node.options import added_up, read_words
from petctl.errors import UsageError

USAGE = """\
Usage: petctl-agent coordinate --job DIR --state DIR --replacement N --listen HOST --port P --message FILE [--nobody]

Coordinates one job in a container of its own; what started the container starts another when it ends before the job.

Options, all but the last required:
  --job DIR            what the job is: job.json, token, tls.crt, tls.key, code/part-00000 ..., secrets/NAME
  --state DIR          a directory of this container's own
  --replacement N      how many coordinators of this job there were in other containers before: a number, or numbers to
                       add up, such as 1+2 (an empty one counts as 0)
  --listen HOST        the address to listen on, with TLS
  --port P             ... and the port
  --message FILE       where how the job ended is written, in at most 4096 bytes of JSON
  --nobody             no node of this job runs: do not wait for any to report

Events are printed as JSON, one per line; the last is the job's final status. Lines that are no JSON objects are to be
skipped: a process that is killed may leave half a line.

Exit code: 0 when the job has ended, however (FILE says it); 143 when asked to stop before (the job goes on); 2 for
wrong usage, 91 when a newer coordinator has taken over, 1 when it could not be kept running.
"""

_REQUIRED = ("--job", "--state", "--replacement", "--listen", "--port", "--message")
_FLAGS = ("--nobody",)


class CoordinateOptions(NamedTuple):
    """What a coordinator in a pod was told at its start."""

    job: Path
    state: Path
    replacement: int
    listen: str
    port: int
    message: Path
    nobody: bool = False


def parse_coordinate(words: List[str]) -> CoordinateOptions:
    """The options of `coordinate`, or a UsageError that names the wrong word."""
    given = read_words("coordinate", words, (*_REQUIRED, *_FLAGS), _FLAGS)
    for name in _REQUIRED:
        if not given.get(name):
            raise UsageError(f"coordinate needs {name}; see petctl-agent coordinate --help")
    port = given["--port"]
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--port {port!r} is not a port")
    return CoordinateOptions(
        job=Path(given["--job"]).absolute(),
        state=Path(given["--state"]).absolute(),
        replacement=added_up(given["--replacement"]),
        listen=given["--listen"],
        port=int(port),
        message=Path(given["--message"]).absolute(),
        nobody="--nobody" in given,
    )
