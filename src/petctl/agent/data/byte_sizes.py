"""Amounts of bytes, as sentences for people say them."""

from __future__ import annotations


def amount(size: float) -> str:
    """For instance 5 bytes, 1.5 MiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} GiB"
