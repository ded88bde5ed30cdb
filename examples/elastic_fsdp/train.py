"""Trains a small transformer, its weights sharded over the ranks (FSDP2), and keeps its processes when ranks change.

petctl run -n 1:3 examples/elastic_fsdp/train.py
torchrun --standalone --nproc-per-node 2 examples/elastic_fsdp/train.py
python examples/elastic_fsdp/train.py

Every rank holds a piece of each weight, so when a rank is lost its pieces are too: they come back from the last
checkpoint, cut anew for the ranks that there are now (torch.distributed.checkpoint does the cutting). So a change costs
the steps since that checkpoint, but no process, no imports and no data.
"""

import argparse
import os
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
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


class Checkpoints:
    """Directories EPOCH-ROUND-STEP; the highest whole one counts, so a late write of a lost rank never does."""

    def __init__(self, root: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.root, self.model, self.optimizer = root, model, optimizer

    def whole(self) -> "list[tuple[tuple[int, ...], Path]]":
        """All that were written to the end, in their order: .metadata is what is written last."""
        found = [path.parent for path in self.root.glob("*/.metadata")]
        return sorted((tuple(map(int, path.name.split("-"))), path) for path in found)

    def save(self, step: int) -> None:
        """Every rank writes its pieces; the last two checkpoints stay."""
        epoch, number = os.environ.get("PETCTL_EPOCH", "0"), os.environ.get("PETCTL_ROUND", "0")
        model, optimizer = get_state_dict(self.model, self.optimizer)
        path = self.root / f"{epoch}-{number}-{step}"
        dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=path)
        if dist.get_rank() == 0:
            for _, old in self.whole()[:-2]:
                shutil.rmtree(old)

    def load(self) -> int:
        """Every rank reads the pieces that are its own now; the step that they are from, 0 if there are none."""
        newest = [self.whole()[-1:]]
        dist.broadcast_object_list(newest, src=0)  # all ranks must mean the same one
        if not newest[0]:
            return 0
        mark, path = newest[0][0]
        model, optimizer = get_state_dict(self.model, self.optimizer)
        dcp.load({"model": model, "optimizer": optimizer}, checkpoint_id=path)
        set_state_dict(self.model, self.optimizer, model_state_dict=model, optim_state_dict=optimizer)
        return mark[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=48, help="of all ranks together")
    parser.add_argument("--checkpoint-every", type=int, default=20, metavar="STEPS")
    default = Path(os.environ.get("PETCTL_CHECKPOINT_DIR", "checkpoints"))
    parser.add_argument("--checkpoint-dir", type=Path, default=default, metavar="DIRECTORY")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else torch.device("cpu")
    state = elastic.State(step=0)

    def train(state: elastic.State) -> None:
        rank, world = elastic.rank(), elastic.world_size()
        torch.manual_seed(0)
        model = Reverser().to(device)
        mesh = dist.device_mesh.init_device_mesh(device.type, (world,))
        for layer in model.layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
        checkpoints = Checkpoints(options.checkpoint_dir, model, optimizer)
        state.step = checkpoints.load()
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
            if state.step % options.checkpoint_every == 0 or state.step == options.steps:
                checkpoints.save(state.step)
                if rank == 0:
                    print(f"step {state.step} of {options.steps}: loss {loss:.4f}", flush=True)
            state.commit()
            elastic.report(step=state.step, loss=loss)

    elastic.run(train, state)


if __name__ == "__main__":
    main()
