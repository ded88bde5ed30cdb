"""The smallest job: every rank says who it is, beats a few times and ends. Standard library only.

petctl run -n 2 --procs 2 examples/hello/hello.py --steps 5
petctl run -n 2 examples/hello/hello.py --fail-rank 1 --fail-at 3      see how a failure is reported and retried
"""

import argparse
import os
import sys
import time


def main() -> None:
    parser = argparse.ArgumentParser(description="Every rank says who it is, beats a few times and ends.")
    parser.add_argument("--steps", type=int, default=3, help="heartbeat lines per rank (default: 3)")
    parser.add_argument("--step-time", type=float, default=0.5, metavar="SECONDS", help="pace (default: 0.5)")
    parser.add_argument("--fail-rank", type=int, default=-1, metavar="RANK", help="this rank fails")
    parser.add_argument("--fail-at", type=int, default=1, metavar="STEP", help="... at this step (default: 1)")
    parser.add_argument("--fail-rounds", type=int, default=1, metavar="N", help="... in rounds 1 to N (default: 1)")
    parser.add_argument("--fail-code", type=int, default=1, metavar="CODE", help="... with this exit code (default: 1)")
    options = parser.parse_args()

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    node, this_round = os.environ.get("PETCTL_NODE", "this machine"), int(os.environ.get("PETCTL_ROUND", 1))
    print(f"hello from rank {rank} of {world}, node {node}, round {this_round}, pid {os.getpid()}", flush=True)

    for step in range(1, options.steps + 1):
        if rank == options.fail_rank and step == options.fail_at and this_round <= options.fail_rounds:
            print(f"rank {rank} fails on purpose at step {step}", file=sys.stderr, flush=True)
            sys.exit(options.fail_code)
        time.sleep(options.step_time)
        print(f"step {step} of {options.steps}", flush=True)


if __name__ == "__main__":
    main()
