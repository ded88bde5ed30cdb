"""What a value in a State is to torch; nothing, where the script has not imported torch."""

from __future__ import annotations

import sys
from typing import Any, List


def is_tensor(value: Any) -> bool:
    """Also a parameter."""
    return _is("torch", "Tensor", value)


def is_sharded(value: Any) -> bool:
    """A tensor of which each rank holds a part."""
    return _is("torch.distributed.tensor", "DTensor", value)


def is_module(value: Any) -> bool:
    """A model, or a part of one."""
    return _is("torch.nn", "Module", value)


def is_optimizer(value: Any) -> bool:
    """One of torch's own, or one that is made like them."""
    return _is("torch.optim", "Optimizer", value)


def parameters_of(value: Any) -> List[Any]:
    """Those of a module, or of whatever has groups of them as optimizers do; none of anything else."""
    if is_module(value):
        return list(value.parameters())
    groups = getattr(value, "param_groups", None)
    return [parameter for group in groups for parameter in group["params"]] if isinstance(groups, list) else []


def _is(module: str, kind: str, value: Any) -> bool:
    found = sys.modules.get(module)
    return found is not None and isinstance(value, getattr(found, kind))
