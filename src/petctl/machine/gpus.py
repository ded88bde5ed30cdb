"""GPUs of this machine that a user may use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path


def visible_gpus(environment: Mapping[str, str]) -> list[str]:
    """The GPUs that the submitter may use, by the names CUDA_VISIBLE_DEVICES takes."""
    given = environment.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [name.strip() for name in given.split(",") if name.strip() and name.strip() != "-1"]
    try:
        found = [path.name[6:] for path in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    except OSError:
        return []
    return sorted(found, key=int)
