"""Claim: the first line of the user's own script appears in at most 0.35 of the time that torchrun takes.

The script prints before it imports anything, so what is measured is the launcher. Two processes: `petctl run -n 1
--procs 2` and `petctl run -n 2` beside `torchrun --standalone --nproc-per-node 2`. From starting the command to its
first line. The interpreter of the script is the same on both sides.
"""

from __future__ import annotations

import sys
import time
from functools import partial

from common import PROGRAMS, Claim, Missed, finish, interleave, options, print_table, ratio
from subjects import BEST_ENVIRONMENT, Subject

EXPECTED = b"first user line"


def first_line(argv: list[str], deadline: float = 60.0) -> float:
    """From the start of the command until the user's line has come through; then it may end in peace."""
    with Subject() as run:
        begin = time.monotonic()
        process = run.piped(argv, {**BEST_ENVIRONMENT, "PETCTL_HOME": str(run.directory / "home")})
        assert process.stdout is not None
        moment = next((time.monotonic() for line in process.stdout if EXPECTED in line), None)
        process.stdout.read()
        code = process.wait(deadline)
        if moment is None or code != 0:
            raise Missed(f"{argv[0].rsplit('/', 1)[-1]} ended with {code}")
        return moment - begin


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__, pairs=20).parse_args()
    script, python = str(PROGRAMS / "first.py"), chosen.torch_python
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script]
    petctl = [chosen.petctl, "run", "--python", python]
    samples = interleave(
        chosen.pairs,
        {
            "petctl run -n 1 --procs 2": partial(first_line, [*petctl, "-n", "1", "--procs", "2", script]),
            "petctl run -n 2": partial(first_line, [*petctl, "-n", "2", script]),
            "torchrun --standalone": partial(first_line, torchrun),
        },
    )
    ours, peer = samples["petctl run -n 1 --procs 2"], samples["torchrun --standalone"]
    print_table("time to the first user line, 2 processes", list(samples.values()), ours.name)
    share = ratio(ours, peer)
    return finish(
        "first_line",
        chosen.output,
        {"first line": list(samples.values())},
        [Claim(f"{share:.2f} of torchrun's time (at most 0.35)", share <= 0.35)],
    )


if __name__ == "__main__":
    sys.exit(main())
