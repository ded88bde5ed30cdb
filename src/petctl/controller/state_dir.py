"""What a coordinator leaves in its container for the process that replaces it there: `--state`.

    starts          how many coordinator processes this container has had: the lower part of the epoch
    wanted          the size that the user asked for last
    nodes           the nodes that an operator named last, one in a line; a "-" before those that it was to give up
    events.jsonl    the events so far
    code.tar.gz     the job's code, joined from its pieces

A coordinator in another container has none of it, and learns from the nodes what it needs. Small to import: the parent
process uses it.
"""

from __future__ import annotations

from pathlib import Path
from typing import List, Optional, Tuple

from petctl.files import replace


class Memory:
    """One container's memory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.events = directory / "events.jsonl"
        self.archive = directory / "code.tar.gz"
        self._starts = directory / "starts"
        self._wanted = directory / "wanted"
        self._nodes = directory / "nodes"

    def next_start(self, replacement: int) -> int:
        """The number of the process that is about to start, from 0; durable before it is used."""
        known = _read(self._starts).split()
        number = int(known[1]) + 1 if len(known) == 2 and known[0] == str(replacement) else 0
        replace(self._starts, f"{replacement} {number}\n", durable=True)
        return number

    @property
    def wanted(self) -> Optional[int]:
        """The user's last wish, if there was one."""
        text = _read(self._wanted).strip()
        return int(text) if text.isdigit() else None

    @wanted.setter
    def wanted(self, count: Optional[int]) -> None:
        replace(self._wanted, f"{count}\n", durable=True)

    @property
    def nodes(self) -> Tuple[List[str], List[str]]:
        """All nodes that there are, as the cluster said last, and those of them that it was told to give up."""
        lines = _read(self._nodes).split()
        return sorted(line.lstrip("-") for line in lines), [line[1:] for line in lines if line.startswith("-")]

    @nodes.setter
    def nodes(self, known: Tuple[List[str], List[str]]) -> None:
        nodes, released = known
        kept = [name for name in nodes if name not in released]
        text = "".join(f"{line}\n" for line in (*kept, *(f"-{name}" for name in released)))
        replace(self._nodes, text, durable=True)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return ""
