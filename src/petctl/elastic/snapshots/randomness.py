"""The process's random numbers at a commit: Python's, numpy's and torch's.

A step that is undone has drawn some. Ranks that make the same choice from the same seed (a layer to skip, the size of
the next images) would differ from then on, and wait for each other for ever. So a rollback takes the generators back
too; and where all ranks draw the same numbers, a newcomer gets them from the others.
"""

from __future__ import annotations

import hashlib
import pickle
import random
import sys
from typing import Any, Dict


class Generators:
    """The state of all generators at one moment."""

    def __init__(self, states: Dict[str, Any]) -> None:
        self.states = states

    def digest(self) -> int:
        """A number that is equal where the states are: 62 bits, for a tensor of int64."""
        plain = [(name, state.tolist() if hasattr(state, "tolist") else state) for name, state in self.states.items()]
        return int.from_bytes(hashlib.sha256(pickle.dumps(sorted(plain))).digest()[:8], "big") >> 2


def capture() -> Generators:
    """The generators as they are now; those of libraries that the script has not imported are left alone."""
    states: Dict[str, Any] = {"python": random.getstate()}
    if "numpy.random" in sys.modules:
        kind, keys, *rest = sys.modules["numpy.random"].get_state()
        states["numpy"] = (kind, keys.tobytes(), *rest)
    torch = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state()
    return Generators(states)


def restore(generators: Generators) -> None:
    """Takes the generators back, those that there were and still are."""
    states = generators.states
    random.setstate(states["python"])
    if "numpy" in states and "numpy.random" in sys.modules:
        numpy = sys.modules["numpy"]
        kind, keys, *rest = states["numpy"]
        numpy.random.set_state((kind, numpy.frombuffer(keys, dtype=numpy.uint32).copy(), *rest))
    torch = sys.modules.get("torch")
    if torch is None:
        return
    for name, module in (("torch", torch), ("cuda", torch.cuda)):
        if name in states and (name == "torch" or torch.cuda.is_initialized()):
            module.set_rng_state(states[name])
