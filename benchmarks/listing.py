"""Claim: listing 200,000 objects takes petctl no longer than the fastest peer, within 300 MB of memory.

`petctl data ls -r` beside s5cmd, rclone, aws (SeaweedFS) and azcopy, rclone (Azurite). The objects are one byte each.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial

from common import Claim, Samples, finish, interleave, options, print_table
from stores import BUCKET, Stage, peers, stage

PREFIX = "many"


def words(program: str, name: str, at: Stage) -> list[str]:
    """The command line with which a program lists everything below the prefix."""
    if name == "petctl":
        return [program, "data", "ls", "-r", f"{at.root}/{PREFIX}"]
    if name == "rclone":
        return [program, "lsl", "--fast-list", f":{'s3' if at.kind == 's3' else 'azureblob'}:{BUCKET}/{PREFIX}"]
    if name == "azcopy":
        return [program, "list", at.sas_url(PREFIX), "--skip-version-check"]
    if name == "aws":
        return [program, "s3", "ls", "--recursive", "--endpoint-url", at.url, f"{at.root}/{PREFIX}/"]
    return [program, "ls", f"{at.root}/{PREFIX}/*"]


def memory(at: Stage, petctl: str) -> int:
    """The most memory that one listing by petctl has, in MB."""
    process = subprocess.Popen(words(petctl, "petctl", at), env=dict(at.environment), stdout=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # it has been waited for
    return used.ru_maxrss // 1024


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
            source = at.folder / "source"
            for number in range(chosen.objects):
                path = source / f"{number // 1000:04d}" / f"{number:07d}"
                if number % 1000 == 0:
                    path.parent.mkdir(parents=True)
                path.write_bytes(b"x")
            at.run([chosen.petctl, "data", "up", str(source), f"{at.root}/{PREFIX}"])
            used = memory(at, chosen.petctl)
            programs = {"petctl": chosen.petctl, **peers(kind)}
            commands = {name: partial(at.run, words(program, name, at)) for name, program in programs.items()}
            samples = interleave(chosen.pairs, commands)
            title = f"{kind}: list {chosen.objects:,} objects"
            tables[title] = list(samples.values())
            print_table(title, tables[title], "petctl")
            claims.append(Claim(f"{title}: {used} MB of memory (at most 300)", used <= 300))
            others = [row.median for name, row in samples.items() if name != "petctl"]
            if others:
                speed = min(others) / samples["petctl"].median
                claims.append(Claim(f"{title}: {speed:.2f} of the fastest peer's speed (at least 1)", speed >= 1))
    return finish("listing", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
