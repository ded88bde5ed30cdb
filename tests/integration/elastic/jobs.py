"""Jobs of the real petctl on this machine, and what their workers print."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.elastic.harness import IMPORTS, ROOT, environment
from tests.integration.waiting import until


def lines(text: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines of a log."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class Job:
    """A job of the real petctl on this machine."""

    def __init__(self, home: Path, *words: str) -> None:
        self._env = environment(PETCTL_HOME=str(home))
        submitted = self.petctl("submit", *words)
        assert submitted.returncode == 0, submitted.stderr
        self.id = submitted.stdout.split()[-1]
        self.directory = home / "jobs" / self.id

    def petctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "petctl", *words]
        return subprocess.run(argv, env=self._env, cwd=ROOT, capture_output=True, text=True, timeout=60)

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.directory / "status.json").read_text()))
        except OSError:
            return {"state": "", "world_size": 0, "round": 0}

    def lines(self, rank: int, number: int) -> list[dict[str, Any]]:
        """What that rank has said in a round."""
        log = self.directory / f"logs/round-{number:04}/rank-{rank}.out"
        return lines(log.read_text().rpartition("\n")[0]) if log.exists() else []

    def steps(self, rank: int, world: int, after: int = 0, more: int = 5) -> tuple[int, dict[str, Any]]:
        """Waits until that rank has made some steps among so many in a round after that; the round and the first."""

        def made() -> tuple[int, dict[str, Any]] | None:
            rounds = sorted(int(path.name[-4:]) for path in self.directory.glob("logs/round-*"))
            for number in (number for number in rounds if number > after):
                found = [line for line in self.lines(rank, number) if "step" in line and line["world"] == world]
                if len(found) > more:
                    return number, found[0]
            return None

        number, first = until(made, f"steps among {world}: {self.status()}", IMPORTS)
        return int(number), dict(first)

    def guardian(self, rank: int) -> int:
        """The top process of that rank's node, once the status tells."""

        def look() -> int:
            return next((node["pid"] for node in self.status().get("nodes", ()) if node["rank"] == rank), 0)

        return int(until(look, f"the node of rank {rank}"))
