"""Whether an object that somebody wrote has the shape that Kubernetes gives it, as far as others look into it.

A shape is written as an example: in {"spec": {"ports": [{}], "replicas": 0}} `spec` is a mapping, `ports` a list of
mappings, and `replicas` a whole number. What it does not name may be anything, and null is as good as nothing. Pure.
"""

from __future__ import annotations

from typing import Any

from petctl.errors import UsageError
from petctl.job.spec.problems import shown

_WORDS = {dict: "a mapping", list: "a list", int: "a whole number"}


def check_shape(said: str, value: Any, shape: Any, place: str = "") -> None:
    """UsageError names the first place of another shape; `said`: what the object is called."""
    if type(value) is not type(shape):
        raise UsageError(f"{said}: {place or 'it'} must be {_WORDS[type(shape)]}, not {shown(value)}")
    if isinstance(shape, dict):
        for name, inner in shape.items():
            if value.get(name) is not None:
                check_shape(said, value[name], inner, f"{place}.{name}" if place else name)
    elif isinstance(shape, list):
        for number, item in enumerate(value):
            for inner in shape:
                check_shape(said, item, inner, f"{place}[{number}]")
