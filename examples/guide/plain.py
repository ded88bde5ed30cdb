"""The script that docs/guide.md begins with: ordinary DistributedDataParallel, with a checkpoint after each epoch.

petctl run -n 1:2 examples/guide/plain.py
"""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

inputs = torch.rand(4096, 8, generator=torch.Generator().manual_seed(0))
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))
checkpoint = Path(os.environ["PETCTL_CHECKPOINT_DIR"], "last.pt")

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler)
first = 0
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    first = saved["epoch"] + 1

for epoch in range(first, 20):
    sampler.set_epoch(epoch)
    for batch, wanted in loader:
        loss = nn.functional.mse_loss(model(batch), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(saved, checkpoint.with_suffix(".tmp"))
        checkpoint.with_suffix(".tmp").replace(checkpoint)
dist.destroy_process_group()
