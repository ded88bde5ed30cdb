"""Trains a small transformer, its weights sharded over the ranks (FSDP2), and keeps its processes when ranks change.

petctl run -n 1:3 examples/elastic_fsdp/train.py
torchrun --standalone --nproc-per-node 2 examples/elastic_fsdp/train.py
python examples/elastic_fsdp/train.py

Every rank holds a piece of each weight, so when a rank is lost its pieces are too: they come back from the last
checkpoint, cut anew for the ranks that there are now (torch.distributed.checkpoint does the cutting). So a loss costs
the steps since that checkpoint, but no process, no imports and no data; before a planned change one is written.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from petctl import elastic

VOCABULARY, LENGTH, WIDTH = 64, 32, 64


class Reverser(nn.Module):
    """Learns to write a sequence backwards."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.output = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        hidden = self.words(sequences) + self.places
        for layer in self.layers:
            hidden = layer(hidden)
        return self.output(hidden)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=48, help="of all ranks together")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    state = elastic.State(
        model=None, optimizer=None, step=0
    )  # the first two are made in every round: they are cut for it
    kept = elastic.checkpoint(state, every=options.checkpoint_every)

    def train(state: elastic.State) -> None:
        rank, world = elastic.rank(), elastic.world_size()
        torch.manual_seed(0)
        state.model = model = Reverser().to(device)
        mesh = dist.device_mesh.init_device_mesh(device.type, (world,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        state.optimizer = optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        if kept is not None:
            kept.load()
        if rank == 0:
            print(f"{world} rank(s) on {device.type}, process {os.getpid()}, from step {state.step}", flush=True)
        while state.step < options.steps:
            random = torch.Generator().manual_seed(state.step)
            batch = torch.randint(VOCABULARY, (options.batch, LENGTH), generator=random)[rank::world].to(device)
            loss = nn.functional.cross_entropy(model(batch).transpose(1, 2), batch.flip(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.step += 1
            state.commit()
            elastic.report(step=state.step, loss=loss)
            if state.step % 20 == 0 and rank == 0:
                print(f"step {state.step} of {options.steps}: loss {loss:.4f}", flush=True)

    elastic.run(train, state)


if __name__ == "__main__":
    main()
