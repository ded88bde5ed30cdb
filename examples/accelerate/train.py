"""A Hugging Face accelerate script as its users write one; petctl is nowhere in it.

petctl run -n 2 --procs 2 examples/accelerate/train.py
accelerate launch --cpu --num_processes 2 examples/accelerate/train.py
"""

import argparse
import os
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def points() -> TensorDataset:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(256, 1, generator=random)
    return TensorDataset(x, 3 * x + 1 + 0.01 * torch.randn(256, 1, generator=random))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--directory", type=Path, default=Path(os.environ.get("PETCTL_CHECKPOINT_DIR", "checkpoints")))
    options = parser.parse_args()

    set_seed(0)
    accelerator = Accelerator(cpu=True)
    print(f"rank {accelerator.process_index} of {accelerator.num_processes} is process {os.getpid()}", flush=True)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(points(), batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    first = 0
    saved = options.directory / "last"
    if (saved / "epoch").exists():
        accelerator.load_state(str(saved))
        first = int((saved / "epoch").read_text()) + 1

    for epoch in range(first, options.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
        mean = accelerator.gather(loss.detach()).mean()
        accelerator.save_state(str(saved))
        if accelerator.is_main_process:
            (saved / "epoch").write_text(str(epoch))
            print(f"epoch {epoch} of {options.epochs}: loss {mean:.4f}", flush=True)
        accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    main()
