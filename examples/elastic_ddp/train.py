"""Trains a small network with DistributedDataParallel and keeps its processes when nodes come and go.

petctl run -n 1:3 examples/elastic_ddp/train.py                         elastic, on this machine
torchrun --standalone --nproc-per-node 2 examples/elastic_ddp/train.py  unchanged under PyTorch's own launcher
python examples/elastic_ddp/train.py                                    and without any

Under petctl a lost node costs the survivors one step: they keep their process, model and data, and new members get both
from them. Each sample of an epoch is used exactly once, whatever happens to the ranks in the middle of it.
"""

import argparse
import math
import os
import time

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from petctl import elastic

SAMPLES, BATCH = 3840, 96  # the batch is that of all ranks together, so the loss curve does not depend on their number


def spirals() -> TensorDataset:
    """Points on two interleaved spirals, and which spiral each is on."""
    random = torch.Generator().manual_seed(0)
    turn = torch.rand(SAMPLES, generator=random).sqrt() * 3 * math.pi
    label = torch.randint(2, (SAMPLES,), generator=random)
    angle = turn + math.pi * label
    points = torch.stack([angle.cos(), angle.sin()], dim=1) * turn.unsqueeze(1) / (3 * math.pi)
    return TensorDataset(points + 0.02 * torch.randn(SAMPLES, 2, generator=random), label)


def main() -> None:
    """Read the options, build everything once, and train in as many rounds as it takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--step-time", type=float, default=0.0, metavar="SECONDS", help="a pause per step, to watch it")
    options = parser.parse_args()

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    torch.manual_seed(0)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.005)
    data = spirals()
    sampler = elastic.ElasticSampler(data, global_batch=BATCH)
    loader = DataLoader(data, batch_sampler=sampler)
    state = elastic.State(model=model, optimizer=optimizer, sampler=sampler, step=0, loss=math.nan)
    elastic.checkpoint(state, every=40)

    def train(state: elastic.State) -> float:
        """One round: entered anew, with the same objects, whenever the ranks have changed."""
        parallel = DistributedDataParallel(state.model)
        if elastic.rank() == 0:
            print(f"{elastic.world_size()} ranks, process {os.getpid()}, after step {state.step}", flush=True)
        while sampler.epoch < options.epochs:
            for points, label in sampler.batches(loader):
                loss = nn.functional.cross_entropy(parallel(points.to(device)), label.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                time.sleep(options.step_time)
                state.step += 1
                state.loss = loss.item()
                state.commit()
                elastic.report(step=state.step, loss=state.loss)
            if elastic.rank() == 0:
                print(f"epoch {sampler.epoch:3d} of {options.epochs}   loss {state.loss:.4f}", flush=True)
        return state.loss

    loss = elastic.run(train, state)
    print(f"rank {elastic.rank()} is done: {state.step} steps, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
