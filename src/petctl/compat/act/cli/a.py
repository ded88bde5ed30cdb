"""The entry of `a`, which is `act` under the name that its users type."""

from __future__ import annotations

from petctl.compat.act.cli import main

if __name__ == "__main__":
    main(program="a")
