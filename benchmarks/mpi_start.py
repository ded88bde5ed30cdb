"""Claim: under petctl 8 MPI ranks begin in at most 1.5 of the time that bare mpirun takes, and a job 1 s after it.

The ranks note when their main begins; the last of the 8 counts. Bare: `mpirun -np 8` on this machine. petctl: `petctl
run --launcher mpi` on one node with 8 ranks, and, beside it, on two nodes with 4 ranks each, where mpirun starts a
daemon too. Measured from the moment in which mpirun is started (a program of that name, in front of the real one on the
PATH of both, notes it) and from the start of the whole command. Needs Open MPI.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time

from common import PROGRAMS, Claim, Missed, Samples, finish, interleave, options, print_table, ratio
from subjects import Subject

RANKS = 8
DEADLINE = 60.0
# As root on a machine with fewer processors than ranks: what petctl does for its own mpirun.
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
SHIM = '#!/bin/sh\ndate +%s.%N >{note}\nPATH=${{PATH#*:}} exec mpirun "$@"\n'


class Start:
    """One way to start 8 ranks; a run gives the seconds since mpirun began, and the whole is kept beside."""

    def __init__(self, name: str, argv: list[str]) -> None:
        self.argv = argv
        self.whole = Samples(name)

    def __call__(self) -> float:
        try:
            whole, since = self.measure()
        except Missed:
            self.whole.seconds.append(math.inf)
            raise
        self.whole.seconds.append(whole)
        return since

    def measure(self) -> tuple[float, float]:
        """Seconds until the last rank's main: since the command was started, and since mpirun was."""
        with Subject() as run:
            moments, note = run.directory / "moments", run.directory / "note"
            shim = run.directory / "bin" / "mpirun"
            shim.parent.mkdir()
            shim.write_text(SHIM.format(note=note))
            shim.chmod(0o755)
            path = f"{shim.parent}:{os.environ['PATH']}"
            argv = [str(shim) if word == "mpirun" else word.replace("{path}", path) for word in self.argv]
            begin = time.time()
            process = run.piped([*argv, str(moments)], {**ALLOWED, "PATH": path, "PETCTL_HOME": str(run.directory)})
            code = process.wait(DEADLINE)
            found = [float(line) for line in moments.read_text().split()] if moments.exists() else []
            if code != 0 or len(found) != RANKS:
                raise Missed(f"{argv[0].rsplit('/', 1)[-1]} ended with {code} and {len(found)} ranks")
            return max(found) - begin, max(found) - float(note.read_text())


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__, pairs=20).parse_args()
    if shutil.which("mpirun") is None:
        print("mpi_start.py needs Open MPI: apt install openmpi-bin", file=sys.stderr)
        return 2
    program = str(PROGRAMS / "moment.py")
    petctl = [chosen.petctl, "run", "--launcher", "mpi", "--no-upload", "--python", sys.executable, "-e", "PATH={path}"]
    bare = ["mpirun", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none", sys.executable, "-u", program]
    starts = {
        name: Start(name, argv)
        for name, argv in {
            "petctl, 1 node of 8 ranks": [*petctl, "-n", "1", "--procs", "8", program],
            "petctl, 2 nodes of 4 ranks": [*petctl, "-n", "2", "--procs", "4", program],
            "bare mpirun": bare,
        }.items()
    }
    samples = interleave(chosen.pairs, dict(starts))
    ours, peer = samples["petctl, 1 node of 8 ranks"], samples["bare mpirun"]
    whole = {name: start.whole for name, start in starts.items()}
    print_table("8 ranks, from the start of mpirun", list(samples.values()), ours.name)
    print_table("8 ranks, from the start of the command", list(whole.values()), ours.name)
    share = ratio(ours, peer)
    more = whole[ours.name].median - whole[peer.name].median
    return finish(
        "mpi_start",
        chosen.output,
        {"from mpirun": list(samples.values()), "from the command": list(whole.values())},
        [
            Claim(f"{share:.2f} of bare mpirun's time (at most 1.5)", share <= 1.5),
            Claim(f"{more:.2f} s after bare mpirun, from the command (at most 1)", more <= 1.0),
        ],
    )


if __name__ == "__main__":
    sys.exit(main())
