"""The state diagram of the coordinator in docs/design/rendezvous.md, drawn from the table that runs it.

python -m tests.golden.state_diagram     draws it again, after the table was changed
"""

from __future__ import annotations

import re
from pathlib import Path

from petctl.rendezvous.core.transitions import START, TRANSITIONS

PAGE = Path(__file__).parents[2] / "docs/design/rendezvous.md"
_DRAWN = re.compile(r"(?<=tests\.golden\.state_diagram -->\n```mermaid\n).*?(?=```\n)", re.DOTALL)


def diagram() -> str:
    """The table as a Mermaid state diagram: one line per phase and next phase."""
    lines = ["stateDiagram-v2"]
    for phase, row in TRANSITIONS.items():
        labels: dict[str, list[str]] = {}
        for event, rule in row.items():
            for to in rule.next:
                labels.setdefault(to, []).append(event.__name__)
        ways = [f"{to}: {', '.join(sorted(names))}" for to, names in labels.items()] or ["[*]"]
        lines += [f"    {'[*]' if phase == START else phase} --> {way}" for way in ways]
    return "\n".join(lines) + "\n"


def drawn(page: str) -> str:
    """The page with the diagram of now."""
    assert _DRAWN.search(page), "the page has no place for the diagram"
    return _DRAWN.sub(diagram(), page)


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text("utf-8")), "utf-8")
