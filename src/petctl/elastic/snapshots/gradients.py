"""Gradients at a commit: those that no optimizer step has used yet are part of it; a rollback drops all others.

A round that is cut off in backward leaves gradients behind. A script that clears them after its step would add the next
ones to them. But a script may also commit between two backward passes of one step (gradient accumulation): what it has
gathered by then must come back. A gradient is used once `optimizer.step()` has ended and nothing has changed it since.

A newcomer gets those of the rank that it gets the State from: where each backward pass is averaged over the ranks they
are its own as well; where ranks gather apart (`no_sync`), what the lost rank had gathered is lost.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, Iterable, List, Optional, Tuple

from petctl.elastic.snapshots import parts
from petctl.elastic.snapshots.kinds import is_optimizer, is_sharded, parameters_of


class UsedGradients:
    """Notes at the end of each optimizer step which gradients it has used."""

    def __init__(self) -> None:
        self._used: Dict[int, Tuple[Any, int]] = {}  # by parameter: its gradient, weakly, and that one's version
        self._watched: Any = weakref.WeakSet()

    def take(self, state_parts: Iterable[Any], into: Optional[parts.Copy]) -> Optional[parts.Copy]:
        """Copies the gradients that no step has used, if there are any; watches optimizers from the first call on."""
        found = list(state_parts)
        for part in found:
            if is_optimizer(part) and part not in self._watched:
                self._watched.add(part)
                part.register_step_post_hook(self._note)
        unused = {number: one.grad for number, one in enumerate(_trained(found)) if self._is_unused(one)}
        return parts.take("gradients", unused, into) if unused else None

    def _note(self, optimizer: Any, *_: Any) -> None:
        for parameter in _parameters([optimizer]):
            gradient = parameter.grad
            if gradient is not None:
                self._used[id(parameter)] = weakref.ref(gradient), gradient._version

    def _is_unused(self, parameter: Any) -> bool:
        gradient = parameter.grad
        if gradient is None or is_sharded(gradient):
            return False
        reference, version = self._used.get(id(parameter), (None, -1))
        return reference is None or reference() is not gradient or gradient._version != version


def restore(state_parts: Iterable[Any], copy: Optional[parts.Copy]) -> None:
    """Gives every parameter of these parts the gradient of the commit, or none."""
    found = list(state_parts)
    for parameter in _parameters(found):
        if parameter.grad is not None and not is_sharded(parameter.grad):
            parameter.grad = None
    if copy is not None:
        trained = _trained(found)
        for number, gradient in parts.value(copy).items():
            trained[number].grad = gradient.clone()


def _trained(state_parts: List[Any]) -> List[Any]:
    """What the optimizers train, in the same order on every rank; without any, all parameters."""
    optimizers = [part for part in state_parts if is_optimizer(part)]
    return _parameters(optimizers or state_parts)


def _parameters(state_parts: Iterable[Any]) -> List[Any]:
    """The parameters of modules and optimizers, each once."""
    return list({id(one): one for part in state_parts for one in parameters_of(part)}.values())
