"""What the tests on a GPU train: each step adds exactly 1 to every number, by a collective.

Nothing in a step waits for the device, so the host runs ahead of it, as in a training that is not measured.
"""

import json
import os

import torch
import torch.distributed

from petctl import elastic

os.environ["NCCL_HOSTID"] = os.environ["PETCTL_WORKER_KEY"]  # ranks on one GPU look like ranks on several machines
NUMBERS = int(os.environ.get("NUMBERS", str(1 << 20)))
STEPS = int(os.environ.get("STEPS", "1000000"))

weights = torch.nn.Parameter(torch.zeros(NUMBERS, device="cuda"))
optimizer = torch.optim.SGD([weights], lr=1.0)
state = elastic.State(weights=torch.nn.ParameterList([weights]), optimizer=optimizer, step=0)
if os.environ.get("EVERY"):
    elastic.checkpoint(state, every=int(os.environ["EVERY"]))


def say(**facts):
    facts = {"pid": os.getpid(), "rank": elastic.rank(), "world": elastic.world_size(), **facts}
    os.write(1, json.dumps(facts).encode() + b"\n")


def train(state):
    lowest, highest = (value.item() for value in torch.aminmax(weights.detach()))
    say(entered=state.step, lowest=lowest, highest=highest)
    while state.step < STEPS:
        optimizer.zero_grad()
        weights.grad = torch.full_like(weights, -1.0 / elastic.world_size())
        torch.distributed.all_reduce(weights.grad)
        optimizer.step()
        state.step += 1
        state.commit()
        if state.step % 10 == 0:
            say(step=state.step)
    return state.step


done = elastic.run(train, state, backend=os.environ.get("BACKEND", "nccl"))
lowest, highest = (value.item() for value in torch.aminmax(weights.detach()))
say(done=done, lowest=lowest, highest=highest)
