"""What is said where the output cannot be written. Help and version import it only then."""

from __future__ import annotations

import os
import sys

from petctl.errors import PetctlError, is_no_room

NO_ROOM = "cannot write the output: no space left on its disk"


def tell_unwritten(error: OSError, program: str) -> int:
    """The exit code: 0 when only nobody reads on, since help is all that was wanted."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter would write it once more
    if isinstance(error, BrokenPipeError):
        return 0
    why = NO_ROOM if is_no_room(error) else f"cannot write the output: {error.strerror}"
    print(f"{program}: {why}", file=sys.stderr)
    return PetctlError.code
