"""ddp.py with the elastic lines: it keeps its process, its model and its progress through changes of the group.

ddp_elastic.py MARKS [--pace SECONDS] [--work sleep|cpu] [--checkpoint-every STEPS]
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from workload import BATCH, Workload

from petctl import elastic

work = Workload()
model = work.model()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
state = elastic.State(model=model, optimizer=optimizer, samples=0, share=BATCH // elastic.world_size())
if work.options.checkpoint_every:
    elastic.checkpoint(state, every=work.options.checkpoint_every)


def keep_global_batch(before: int, now: int) -> None:
    """A step stays worth as many samples when there are fewer or more ranks to share them."""
    state.share = BATCH // now


def train(state: elastic.State) -> None:
    rank, world = elastic.rank(), elastic.world_size()
    parallel = DistributedDataParallel(state.model)
    step = 0
    while True:
        work.step(parallel, state.optimizer, work.batch(state.samples, state.share, rank))
        state.samples += BATCH
        state.commit()
        step += 1
        work.mark(rank, step, world, state.samples)
        wish = work.stopping()
        dist.all_reduce(wish)
        if wish.item():
            return


elastic.run(train, state, backend="gloo", on_resize=keep_global_batch)
