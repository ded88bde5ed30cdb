"""Claim: petctl moves a large file at 0.95 of the fastest peer's speed or more, and many small ones 1.5 times as fast.

1 file of 2 GiB and 20,000 files of 10 KiB, up and down, against SeaweedFS (S3) and Azurite (Azure), beside s5cmd,
rclone, aws and azcopy, within 300 MB of memory. Server and client share this machine. petctl verifies what it moves, up
and down. The small files lie in memory (a virtual disk may take longer to make a file than all the rest), and Azurite,
which takes longer for each blob the more it has, gets a tenth of them. Where a server itself takes so long that 1.5 is
out of reach, the other half of the claim counts: small files at 0.9 of the server's own limit (`bare.py`), measured
in the same turns.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bare import bare
from common import Claim, Samples, finish, interleave, options, print_table
from stores import Stage, peers, stage

NUMBERS = itertools.count(1)
SMALL = 10_240
LIMIT = "bare requests: the server's limit"
CARELESS = "rclone --ignore-checksum"
"""For comparison: what it saves not to look at what arrived. petctl has no such option."""


def words(program: str, name: str, at: Stage, up: bool, local: Path, path: str, folder: bool) -> list[str]:
    """The command line with which a program moves a file or the content of a folder."""
    if name == "petctl":
        ends = [str(local), f"{at.root}/{path}"]
        return [program, "data", *(["up", *ends] if up else ["down", *reversed(ends)])]
    if name in ("rclone", CARELESS):
        bucket = at.root.rpartition("/")[2]
        remote = f":{'s3' if at.kind == 's3' else 'azureblob'}:{bucket}/{path}"
        ends = [str(local), remote]
        tuned = ["--transfers", "24", "--checkers", "24", "--multi-thread-streams", "8"]
        tuned += ["--ignore-checksum"] if name == CARELESS else []
        return [program, "copy" if folder else "copyto", *tuned, *(ends if up else reversed(ends))]
    if name == "azcopy":
        ends = [f"{local}/*" if folder and up else str(local), at.sas_url(f"{path}/*" if folder and not up else path)]
        quiet = [
            "--skip-version-check",
            "--log-level=ERROR",
            "--recursive",
            f"--from-to={'LocalBlob' if up else 'BlobLocal'}",
        ]
        return [program, "copy", *(ends if up else reversed(ends)), *quiet]
    if name == "aws":
        ends = [str(local), f"{at.root}/{path}"]
        recursive = ["--recursive"] if folder else []
        endpoint = ["--endpoint-url", at.url, "--only-show-errors"]
        return [program, "s3", "cp", *endpoint, *recursive, *(ends if up else reversed(ends))]
    ends = [f"{local}/" if folder else str(local), f"{at.root}/{path}" + ("/" if folder else "")]
    if not up and folder:
        ends = [f"{local}/", f"{at.root}/{path}/*"]
    return [program, "cp", *(ends if up else reversed(ends))]


def send(at: Stage, program: str, name: str, source: Path) -> float:
    """One upload to a place of its own."""
    if source.is_dir() and at.kind == "az":
        with stage("az", in_memory=True) as fresh:  # with every blob that it has, Azurite takes longer for the next
            seconds = fresh.run(words(program, name, fresh, True, source, "up", True))
            at.note_memory(fresh)
            return seconds
    return at.run(words(program, name, at, True, source, f"up/{next(NUMBERS)}", source.is_dir()))


def fetch(at: Stage, program: str, name: str, path: str, folder: bool) -> float:
    """One download into a folder of its own."""
    target = at.folder / f"down-{next(NUMBERS)}"
    target.mkdir()
    try:
        return at.run(words(program, name, at, False, target if folder else target / "file", path, folder))
    finally:
        shutil.rmtree(target)


def send_bare(at: Stage, names: list[str]) -> float:
    """As many objects by bare requests."""
    if at.kind == "az":
        with stage("az", in_memory=True) as fresh:
            return bare(fresh, [f"up/{name}" for name in names], SMALL, up=True)
    return bare(at, [f"up/{next(NUMBERS)}/{name}" for name in names], SMALL, up=True)


def make_files(folder: Path, count: int, size: int) -> Path:
    """Files with random content, or one of them."""
    if count == 1:
        with open(folder / "large", "wb") as file:
            for _ in range(size >> 20):
                file.write(os.urandom(1 << 20))
        return folder / "large"
    for number in range(count):
        path = folder / "small" / f"{number // 1000:03d}" / f"{number:06d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(size))
    return folder / "small"


def measure(at: Stage, source: Path, pairs: int, petctl: str, wanted: list[str]) -> dict[str, dict[str, Samples]]:
    """Both directions, all programs in turn."""
    others = {name: program for name, program in peers(at.kind).items() if not wanted or name in wanted}
    programs = {"petctl": petctl, **others}
    # Of a large file each has sent its own: only then does it find the checksum that it wants to see again.
    sent = {name: "source" if source.is_dir() else f"source-{name}" for name in programs}
    for path in dict.fromkeys(sent.values()):
        name = path.partition("-")[2] or "petctl"
        at.run(words(programs[name], name, at, True, source, path, source.is_dir()))
    up: dict[str, Callable[[], float]] = {
        name: partial(send, at, program, name, source) for name, program in programs.items()
    }
    down: dict[str, Callable[[], float]] = {
        name: partial(fetch, at, program, name, sent[name], source.is_dir()) for name, program in programs.items()
    }
    if "rclone" in programs and not source.is_dir():
        down[CARELESS] = partial(fetch, at, programs["rclone"], CARELESS, sent["rclone"], False)
    if source.is_dir():
        names = [str(path.relative_to(source)) for path in sorted(source.rglob("*")) if path.is_file()]
        up[LIMIT] = partial(send_bare, at, names)
        down[LIMIT] = lambda: bare(at, [f"source/{name}" for name in names], SMALL, up=False)
    return {"up": interleave(pairs, up), "down": interleave(pairs, down)}


def judge(title: str, case: str, samples: dict[str, Samples]) -> Claim:
    """Whether petctl was as fast as is claimed."""
    ours = samples["petctl"].median
    others = [row.median for name, row in samples.items() if name not in ("petctl", LIMIT, CARELESS)]
    speed = min(others, default=math.nan) / ours
    if case == "large":
        return Claim(f"{title}: {speed:.2f} of the fastest peer's speed (at least 0.95)", speed >= 0.95)
    limit = samples[LIMIT].median / ours
    text = (
        f"{title}: {speed:.2f} of the fastest peer's speed (at least 1.5), {limit:.2f} of the server's limit (or 0.9)"
    )
    return Claim(text, speed >= 1.5 or limit >= 0.9)


def main() -> int:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--store", choices=("s3", "az"), action="append", help="only this one (repeatable)")
    parser.add_argument("--case", choices=("large", "small"), action="append", help="only this one (repeatable)")
    parser.add_argument("--peer", action="append", help="only beside this one (repeatable; default: all that are here)")
    parser.add_argument("--mib", type=int, default=2048, help="size of the large file (default: 2048)")
    parser.add_argument("--files", type=int, default=20_000, help="how many small files (default: 20000)")
    chosen = parser.parse_args()
    tables: dict[str, list[Samples]] = {}
    claims: list[Claim] = []
    for kind in chosen.store or ("s3", "az"):
        for case in chosen.case or ("large", "small"):
            with stage(kind, in_memory=case == "small") as at:
                files = chosen.files // (10 if kind == "az" else 1)
                source = make_files(at.folder, *((1, chosen.mib << 20) if case == "large" else (files, SMALL)))
                for direction, samples in measure(at, source, chosen.pairs, chosen.petctl, chosen.peer or []).items():
                    title = f"{kind}, {case}, {direction}"
                    tables[title] = list(samples.values())
                    print_table(title, tables[title], "petctl")
                    claims.append(judge(title, case, samples))
                used = at.memory(chosen.petctl)
                claims.append(Claim(f"{kind}, {case}: {used} MB of memory (at most 300)", used <= 300))
    return finish("transfer", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
