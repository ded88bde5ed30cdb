"""python -m petctl.compat.act.cli"""

from __future__ import annotations

from petctl.compat.act.cli import main

if __name__ == "__main__":
    main()
