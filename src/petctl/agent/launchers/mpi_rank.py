"""The shell script that every MPI rank of a node is started with, between mpirun's daemon and the user's command.

It turns what MPI says (OMPI_COMM_WORLD_RANK; PMI_RANK under MPICH) into the variables that every worker has, lets the
rank write its own log files, and tells the agent through a FIFO:

    ROUND begin LOCAL-RANK RANK PID
    ROUND end LOCAL-RANK CODE

The command has a session of its own, as every worker does. So what mpirun does when it gives up, which is to kill the
script, does not reach it: ranks are ended by the node's agent alone, within the grace that the job gives them, and the
one that failed is known before mpirun knows.

A shell, because it starts in a millisecond. Only text is made here.
"""

from __future__ import annotations

import shlex
import shutil
from typing import Dict, List, Mapping, NamedTuple, Optional

from petctl.agent.node.native import own_words

TEXT = """\
# Rank of round {round}; mpirun or its daemon starts it.
RANK=${{OMPI_COMM_WORLD_RANK-${{PMIX_RANK-$PMI_RANK}}}}
LOCAL_RANK=${{OMPI_COMM_WORLD_LOCAL_RANK-$MPI_LOCALRANKID}}
ROLE_RANK=$RANK
petctl_place=$(({first} + LOCAL_RANK))
PETCTL_WORKER_KEY={key}/$petctl_place
TORCHELASTIC_ERROR_FILE={logs}/rank-$RANK.error.json
PETCTL_PROGRESS={logs}/rank-$petctl_place.progress
export RANK LOCAL_RANK ROLE_RANK PETCTL_WORKER_KEY TORCHELASTIC_ERROR_FILE PETCTL_PROGRESS
{variables}
exec </dev/null >>{logs}/rank-$RANK.out 2>>{logs}/rank-$RANK.err
cd {cwd} || exit 1
trap : TERM HUP INT USR1 USR2
exec 3>&2 2>/dev/null # what a shell says of a command that a signal ended must not be the rank's last words
{session} /bin/sh -c 'exec 2>&3 3>&-; echo "$1 begin $LOCAL_RANK $RANK $$" >"$2"; shift 2; exec "$@"' {words}
petctl_code=$?
echo "{round} end $LOCAL_RANK $petctl_code" >{fifo}
exit $petctl_code
"""
_SESSION = "import os, sys; os.setsid(); os.execv(sys.argv[1], sys.argv[1:])"


class RankScript(NamedTuple):
    """What a node's ranks of one round have in common."""

    round: int
    first: int  # rank of the first
    key: str  # their worker keys begin so
    logs: str  # the round's directory
    fifo: str
    cwd: str
    argv: List[str]
    variables: Mapping[str, Optional[str]]  # that a rank has another value of than mpirun; None: it has none

    def text(self) -> str:
        """The script itself."""
        quote = shlex.quote
        lines: Dict[str, str] = {
            name: f"unset {name}" if value is None else f"export {name}={quote(value)}"
            for name, value in self.variables.items()
        }
        return TEXT.format(
            round=self.round,
            first=self.first,
            key=quote(self.key),
            logs=quote(self.logs),
            fifo=quote(self.fifo),
            cwd=quote(self.cwd),
            variables="\n".join(lines.values()),
            session=" ".join(map(quote, session_words())),
            words=" ".join(map(quote, ["petctl-rank", str(self.round), self.fifo, *self.argv])),
        )


def session_words() -> List[str]:
    """What gives a command a session of its own, in the same process."""
    program = shutil.which("setsid")
    return [program] if program else [*own_words(), "-S", "-c", _SESSION]
