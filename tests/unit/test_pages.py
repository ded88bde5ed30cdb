"""The pages of the documentation: what they link to is there, and every benchmark that claims something is told of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CHANGELOG.md"]


def anchors(page: Path) -> set[str]:
    """The names that a browser finds a page's headings by."""
    titles = re.findall(r"^#+ (.*)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        path, _, anchor = link.partition("#")
        if ":" in path:
            continue
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


def test_every_claim_is_on_the_page_of_benchmarks() -> None:
    page = (DOCS / "benchmarks.md").read_text()
    claiming = [path.name for path in (ROOT / "benchmarks").glob("*.py") if path.read_text().startswith('"""Claim:')]
    assert len(claiming) > 15
    assert [name for name in claiming if f"`{name}`" not in page] == []
