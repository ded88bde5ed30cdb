"""Tracebacks and warnings of a job's workers as the user knows the files: by their own paths, not the snapshot's.

Only what names a line of code is changed ('File "PATH", line 3', 'PATH:3: UserWarning'): what else a script says of its
paths is true as it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any


def own_paths(code: Mapping[str, Any], copy: str) -> Callable[[bytes], bytes]:
    """What a worker wrote, with the user's paths. `copy`: where the nodes of this machine have the snapshot."""
    if not code:
        return lambda text: text
    own = os.fsencode(f"{code['own']}/" if code.get("own") else "")
    elsewhere = rb'[^"\n]*/code/' + re.escape(code["id"][:16].encode())
    copies = b"|".join([*(re.escape(os.fsencode(path)) for path in {copy, os.path.realpath(copy)}), elsewhere])
    pattern = re.compile(rb'(?m)(\bFile "|^)(?:' + copies + rb')/(?=[^"\n]+(?:", line \d|:\d+: ))')
    mark = b"/code/"

    def changed(text: bytes) -> bytes:
        if mark not in text:
            return text
        return pattern.sub(lambda match: match.group(1) + own, text)

    return changed
