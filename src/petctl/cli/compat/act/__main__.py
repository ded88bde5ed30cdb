"""python -m petctl.cli.compat.act"""

from __future__ import annotations

from petctl.cli.compat.act import main

if __name__ == "__main__":
    main()
