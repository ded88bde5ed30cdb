"""A DistributedDataParallel script as torchrun's users write it: one group, checkpoints, and an end with the group.

ddp.py MARKS [--pace SECONDS] [--work sleep|cpu] [--checkpoint-every STEPS]
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from workload import BATCH, Workload

work = Workload()
checkpoint = Path(work.options.marks + ".checkpoint")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
model = DistributedDataParallel(work.model())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
samples = 0
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    samples = saved["samples"]

step, every = 0, work.options.checkpoint_every
while True:
    work.step(model, optimizer, work.batch(samples, BATCH // world, rank))
    step, samples = step + 1, samples + BATCH
    if every and rank == 0 and step % every == 0:
        saved = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "samples": samples}
        unfinished = checkpoint.with_suffix(".tmp")
        torch.save(saved, unfinished)
        unfinished.replace(checkpoint)
    work.mark(rank, step, world, samples)
    wish = work.stopping()
    dist.all_reduce(wish)
    if wish.item():
        break
dist.barrier()
dist.destroy_process_group()
