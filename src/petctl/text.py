"""Numbers and what they count, in sentences for people. Standard library only."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Says 1 file, 2 files, 12,000 copies."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def scaling(before: int, wanted: int) -> str:
    """Says what is done about a wish for another size."""
    return f"scaling from {before} to {wanted} nodes" if before != wanted else f"already at {counted(wanted, 'node')}"


def amount(size: float) -> str:
    """Says an amount of bytes, for instance 5 bytes, 1.5 MiB."""
    for unit in ("byte" if size == 1 else "bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"


def program_of(line: str) -> str:
    """Says the first program in a shell line: there may be a password in the rest of it."""
    return next((word for word in line.split() if "=" not in word), "its command")
