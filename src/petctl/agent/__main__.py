"""`python -m petctl.agent`, and the entry of `petctl-agent.pyz`."""

import sys

from petctl.agent.node.cli import main

if __name__ == "__main__":
    sys.exit(main())
