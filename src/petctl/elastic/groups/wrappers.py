"""DistributedDataParallel wrappers, which must not outlive the round they were made in.

One that does goes on reducing gradients over a group that is gone. A training function's own are freed as it ends;
those in a reference cycle are freed here, and who keeps one on purpose is told. They are noted as they are made: to
look for them among all objects would take longer than the rest of a membership change.
"""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any


class Wrappers:
    """Those made while elastic.run runs."""

    def __init__(self) -> None:
        self._living: Any = weakref.WeakSet()
        self._original: Any = None

    def watch(self) -> None:
        """From now on they are noted."""
        parallel = sys.modules.get("torch.nn.parallel")
        if parallel is None or self._original is not None:
            return
        kind, living = parallel.DistributedDataParallel, self._living
        self._original = original = kind.__init__

        def noting(wrapper: Any, *words: Any, **named: Any) -> None:
            original(wrapper, *words, **named)
            living.add(wrapper)

        kind.__init__ = noting

    def drop(self) -> None:
        """The round is over."""
        if not self._living:
            return
        gc.collect()
        if self._living:
            print(
                "petctl.elastic: a DistributedDataParallel of the last round is still referenced from outside the "
                "training function, and will fail in the next one. Create it inside the function that "
                "elastic.run calls.",
                file=sys.stderr,
                flush=True,
            )
            self._living.clear()

    def close(self) -> None:
        """Leaves torch as it was found."""
        if self._original is not None:
            sys.modules["torch.nn.parallel"].DistributedDataParallel.__init__ = self._original
            self._original = None
