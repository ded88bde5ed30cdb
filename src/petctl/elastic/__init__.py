"""petctl.elastic: what a training script imports to keep its process through membership changes.

    from petctl import elastic

    state = elastic.State(model=model, optimizer=optimizer, sampler=sampler, step=0)

    def train(state):
        model = DistributedDataParallel(state.model)     # wrapped anew in each round
        ...
            state.step += 1
            state.commit()

    elastic.run(train, state)

The same script runs under petctl, torchrun and plain python. Standard library only; torch is used when the script has
imported it.

    runner.py     the way in: elastic.run; calls.py: ... several calls in one script
    state.py      State: the values; snapshots/: copies of it in memory; checkpoints/: ... on disk
    groups/       the process groups of a round, and the newest State to every rank
    control.py    the agent's orders, in a thread; channel.py: ... over its socket; place.py: rank and world size
    sampler.py    deals out the data; progress.py: tells how far it is
"""

from __future__ import annotations

from petctl.elastic.checkpoints.checkpoints import checkpoint
from petctl.elastic.place import rank, world_size
from petctl.elastic.progress import expires, report
from petctl.elastic.runner import run
from petctl.elastic.sampler import ElasticSampler
from petctl.elastic.state import State

__all__ = ["ElasticSampler", "State", "checkpoint", "expires", "rank", "report", "run", "world_size"]
