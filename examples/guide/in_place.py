"""The script that docs/guide.md ends with: the same training, which keeps its process when ranks come and go.

petctl run -n 1:2 examples/guide/in_place.py
"""

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from petctl import elastic

inputs = torch.rand(4096, 8, generator=torch.Generator().manual_seed(0))
data = TensorDataset(inputs, inputs.sum(1, keepdim=True))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
sampler = elastic.ElasticSampler(data, batch_size=32)
loader = DataLoader(data, batch_sampler=sampler)
state = elastic.State(model=model, optimizer=optimizer, sampler=sampler)
elastic.checkpoint(state, every="60s")


def train(state: elastic.State) -> None:
    parallel = DistributedDataParallel(state.model)
    while sampler.epoch < 20:
        epoch = sampler.epoch
        for batch, wanted in sampler.batches(loader):
            loss = nn.functional.mse_loss(parallel(batch), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.commit()
        if elastic.rank() == 0:
            print(f"epoch {epoch}: loss {loss:.4f}", flush=True)


elastic.run(train, state, backend="gloo")
