"""The entry of the `az` stand-in. Only installed when asked for: `petctl compat install az`."""

from __future__ import annotations

from petctl.compat.batchai.cli.batchai import main

if __name__ == "__main__":
    main(program="az")
