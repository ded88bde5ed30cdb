"""The entry of the `az` stand-in. Only installed when asked for: `petctl compat install az`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from petctl.compat.batchai.cli.batchai import start


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Runs one command line of `az` and exits with its code."""
    start("az", words)


if __name__ == "__main__":
    main()
