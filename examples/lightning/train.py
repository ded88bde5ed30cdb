"""A PyTorch Lightning script as Lightning's own documents write one for torchrun; petctl is nowhere in it.

petctl run -n 2 --procs 2 examples/lightning/train.py
torchrun --standalone --nproc-per-node 2 examples/lightning/train.py

Lightning finds its place through the TORCHELASTIC_ variables. What it wants to be told is how many nodes there are, and
that number may differ in the next round, so it comes from the environment too.
"""

import argparse
import os

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Line(L.LightningModule):
    """Learns y = 3x + 1 from noisy points."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def training_step(self, batch, _):
        x, y = batch
        loss = nn.functional.mse_loss(self.layer(x), y)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self):
        loss = self.trainer.callback_metrics["loss"]
        if self.trainer.is_global_zero:
            print(f"epoch {self.current_epoch} of {self.trainer.max_epochs}: loss {loss:.4f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def points() -> TensorDataset:
    random = torch.Generator().manual_seed(0)
    x = torch.rand(256, 1, generator=random)
    return TensorDataset(x, 3 * x + 1 + 0.01 * torch.randn(256, 1, generator=random))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--directory", default=os.environ.get("PETCTL_CHECKPOINT_DIR", "checkpoints"))
    options = parser.parse_args()

    L.seed_everything(0)
    trainer = L.Trainer(
        accelerator="cpu",
        strategy="ddp",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)),
        num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
        max_epochs=options.epochs,
        default_root_dir=options.directory,
        callbacks=[ModelCheckpoint(options.directory, save_last=True)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    print(f"rank {trainer.global_rank} of {trainer.world_size} is process {os.getpid()}", flush=True)
    trainer.fit(Line(), DataLoader(points(), batch_size=16, shuffle=True), ckpt_path="last")


if __name__ == "__main__":
    main()
