"""Claim: `petctl --help` takes at most 0.15 s.

Peer: `torchx --help` (0.7.0), a command line of the same kind. Both with compiled bytecode; wall clock of the whole
process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from functools import partial

from common import ROOT, Claim, Missed, finish, interleave, options, print_table


def whole_process(argv: list[str]) -> float:
    """From fork to exit."""
    begin = time.monotonic()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Missed(f"{argv[0]} ended with {done.returncode}")
    return time.monotonic() - begin


def main() -> int:
    """Measure and print."""
    parser = options(__doc__, pairs=30)
    default = os.environ.get("PETCTL_TORCHX", str(ROOT / ".venv-bench/bin/torchx"))
    parser.add_argument("--torchx", default=default, help="default: $PETCTL_TORCHX, else .venv-bench/bin/torchx")
    chosen = parser.parse_args()
    commands = {"petctl --help": [chosen.petctl, "--help"], "torchx --help": [chosen.torchx, "--help"]}
    for argv in commands.values():
        if shutil.which(argv[0]) is None:
            parser.error(f"{argv[0]} is not there; `make .venv/.ready .venv-bench/.ready` brings both programs")
        whole_process(argv)  # the first run compiles the bytecode
    samples = interleave(chosen.pairs, {name: partial(whole_process, argv) for name, argv in commands.items()})
    ours = samples["petctl --help"]
    print_table("the help page, whole process", list(samples.values()), ours.name)
    claims = [Claim(f"petctl --help takes {ours.median:.3f} s (at most 0.15)", ours.median <= 0.15)]
    return finish("cli_start", chosen.output, {"help": list(samples.values())}, claims)


if __name__ == "__main__":
    sys.exit(main())
