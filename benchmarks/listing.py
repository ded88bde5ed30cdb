"""Claim: listing 200,000 objects takes petctl no longer than the fastest peer, within 300 MB of memory.

`petctl data ls -r` beside s5cmd, rclone, aws (SeaweedFS) and azcopy, rclone (Azurite). The objects are one byte each.
Azurite takes 4 ms to make one, so it gets a tenth of them.
"""

from __future__ import annotations

import sys
from functools import partial

from bare import bare
from common import Claim, Samples, finish, interleave, options, print_table
from stores import BUCKET, Stage, peers, stage

PREFIX = "many"


def words(program: str, name: str, at: Stage) -> list[str]:
    """The command line with which a program lists everything below the prefix."""
    if name == "petctl":
        return [program, "data", "ls", "-r", f"{at.root}/{PREFIX}"]
    if name == "rclone":
        remote = f":{'s3' if at.kind == 's3' else 'azureblob'}:{BUCKET}/{PREFIX}"
        return [program, "lsl", "--fast-list", "--use-server-modtime", remote]
    if name == "azcopy":
        return [program, "list", at.sas_url(PREFIX), "--skip-version-check"]
    if name == "aws":
        return [program, "s3", "ls", "--recursive", "--endpoint-url", at.url, f"{at.root}/{PREFIX}/"]
    return [program, "ls", f"{at.root}/{PREFIX}/*"]


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--store", choices=("s3", "az"), action="append", help="only this one (repeatable)")
    parser.add_argument("--objects", type=int, default=200_000, help="how many there are (default: 200000)")
    chosen = parser.parse_args()
    tables: dict[str, list[Samples]] = {}
    claims: list[Claim] = []
    for kind in chosen.store or ("s3", "az"):
        with stage(kind) as at:
            count = chosen.objects if kind == "s3" else chosen.objects // 10
            for first in range(0, count, 10_000):
                numbers = range(first, min(first + 10_000, count))
                bare(at, [f"{PREFIX}/{number // 1000:04d}/{number:07d}" for number in numbers], 1, up=True)
            programs = {"petctl": chosen.petctl, **peers(kind)}
            commands = {name: partial(at.run, words(program, name, at)) for name, program in programs.items()}
            samples = interleave(chosen.pairs, commands)
            title = f"{kind}: list {count:,} objects"
            tables[title] = list(samples.values())
            print_table(title, tables[title], "petctl")
            used = at.memory(chosen.petctl)
            claims.append(Claim(f"{title}: {used} MB of memory (at most 300)", used <= 300))
            others = [row.median for name, row in samples.items() if name != "petctl"]
            if others:
                speed = min(others) / samples["petctl"].median
                claims.append(Claim(f"{title}: {speed:.2f} of the fastest peer's speed (at least 1)", speed >= 1))
    return finish("listing", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
