"""Numbers and what they count, in sentences. Standard library only."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """1 file, 2 files, 12,000 copies."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def scaling(before: int, wanted: int) -> str:
    """What is done about a wish for another size."""
    return f"scaling from {before} to {wanted} nodes" if before != wanted else f"already at {counted(wanted, 'node')}"
