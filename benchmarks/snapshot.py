"""Claim: the snapshot of an unchanged tree of 5,000 files takes at most 0.3 s and writes nothing.

Peers, each on its own copy of the tree: `git add -A && git write-tree`, which names a tree after its content too, with
a warm index; and `zip -ur`, with which others keep their code archive up to date. Unchanged, and after 10 files were
rewritten. All times are those of whole processes, petctl's with the start of Python and its imports. petctl packs the
whole archive anew where the code has changed; the time for the id alone is shown as well.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import Claim, Missed, Samples, finish, interleave, options, print_table, progress

FILES = 5000
CHANGED = 10
IGNORE = "__pycache__/\n*.py[cod]\n*.so\nbuild/\ndist/\n*.egg-info/\n*.log\n/data/\noutput*\n!output.py\n*.ckpt\n"
TAKE = """
import json, sys
from pathlib import Path
from petctl.bundle import Cabinet, take
root, home, keep = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "keep"
snapshot = take(root, cache=home / "index")
if keep:
    Cabinet(home / "bundles").put(snapshot)
written = next(int(line.split()[1]) for line in open("/proc/self/io") if line.startswith("wchar"))
print(json.dumps({"id": snapshot.id, "hashed": snapshot.hashed, "written": written}))
"""
GIT = ["-c", "core.fsmonitor=false", "-c", "gc.auto=0"]


def grow(root: Path, seed: int = 1) -> None:
    """A tree like that of a large project: 5,000 modules of 3 KB on average in 100 folders."""
    chance = random.Random(seed)
    for number in range(FILES):
        file = root / f"package{number % 20:02}" / f"part{number % 100:03}" / f"module{number}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        lines = chance.randint(5, 120)
        file.write_text("".join(f"value_{chance.random()} = {chance.random()}\n" for _ in range(lines)))
    (root / ".gitignore").write_text(IGNORE)


def change(root: Path) -> None:
    """Rewrites 10 files."""
    for file in random.sample(sorted(root.glob("package*/part*/*.py")), CHANGED):
        file.write_text(f"changed = {random.random()}\n")


def timed(argv: list[str], cwd: Path, fine: tuple[int, ...] = (0,)) -> tuple[float, str]:
    """Seconds of the whole process, and what it said."""
    begin = time.monotonic()
    try:
        done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except FileNotFoundError:
        raise Missed(f"{argv[0]} is not installed") from None
    seconds = time.monotonic() - begin
    if done.returncode not in fine:
        raise Missed(f"{argv[0]} ended with {done.returncode}: {done.stderr.strip()[-200:]}")
    return seconds, done.stdout


class Scene:
    """One copy of the tree for each subject, and what the subject keeps beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[int] = []
        for name in ("petctl", "git", "zip"):
            progress(f"{FILES} files for {name}")
            grow(folder / name)
        timed(["git", "init", "--quiet"], folder / "git")

    def petctl(self, keep: bool = True) -> float:
        """The snapshot, and with `keep` its archive."""
        words = [str(self.folder / "petctl"), str(self.folder / "home"), "keep" if keep else "id"]
        seconds, said = timed([sys.executable, "-c", TAKE, *words], self.folder)
        self.report = json.loads(said)
        self.written.append(self.report["written"])
        return seconds

    def git(self) -> float:
        """Two processes, as in a shell."""
        root = self.folder / "git"
        return timed(["git", *GIT, "add", "-A"], root)[0] + timed(["git", *GIT, "write-tree"], root)[0]

    def zip(self) -> float:
        """Its exit code 12 says that there was nothing to do."""
        return timed(["zip", "-qur", "../code.zip", "."], self.folder / "zip", fine=(0, 12))[0]

    def changed(self, name: str, run: Callable[[], float]) -> Callable[[], float]:
        """The same after a change."""

        def measure() -> float:
            change(self.folder / name)
            return run()

        return measure

    def settle(self) -> None:
        """All have seen the tree, and no file is so young that it must be read again."""
        self.git()
        self.zip()
        deadline = time.monotonic() + 60
        self.petctl()
        while self.report["hashed"]:
            self.petctl()
            if time.monotonic() > deadline:
                raise Missed("files were read again and again")


def main() -> int:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="petctl-bench-", dir=os.environ.get("TMPDIR")) as folder:
        scene = Scene(Path(folder))
        scene.settle()
        scene.written.clear()
        peers = {"git add -A && git write-tree": scene.git, "zip -ur": scene.zip}
        unchanged = interleave(chosen.pairs, {"petctl": scene.petctl, **peers})
        written = max(scene.written)
        changed = interleave(
            chosen.pairs,
            {
                "petctl, id": scene.changed("petctl", lambda: scene.petctl(keep=False)),
                "petctl, id and archive": scene.changed("petctl", scene.petctl),
                "git add -A && git write-tree": scene.changed("git", scene.git),
                "zip -ur": scene.changed("zip", scene.zip),
            },
        )
    print_table(f"{FILES} files, unchanged", list(unchanged.values()), "petctl")
    print_table(f"{FILES} files, {CHANGED} of them rewritten", list(changed.values()), "petctl, id and archive")
    ours: Samples = unchanged["petctl"]
    claims = [
        Claim(f"an unchanged tree takes {ours.median:.3f} s (at most 0.3)", ours.median <= 0.3),
        Claim(f"and writes {written} bytes (0)", written == 0),
    ]
    tables = {"unchanged": list(unchanged.values()), "changed": list(changed.values())}
    return finish("snapshot", chosen.output, tables, claims)


if __name__ == "__main__":
    sys.exit(main())
