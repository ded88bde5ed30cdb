"""The entry of `a`, which is `act` under the name that its users type."""

from __future__ import annotations

from petctl.cli.compat.act.entry import start

if __name__ == "__main__":
    start("a", None)
