"""What the tests train: DistributedDataParallel on numbers, one JSON line per step. Options are in the environment."""

import json
import os
import signal
import time

import torch
from torch.nn.parallel import DistributedDataParallel

from petctl import elastic

DEVICE = torch.device(os.environ.get("DEVICE", "cpu"))
STEPS = int(os.environ.get("STEPS", "1000000"))
torch.set_num_threads(1)
torch.manual_seed(0)
WIDTH = int(os.environ.get("WIDTH", "8"))
model = torch.nn.Sequential(torch.nn.Linear(4, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, 1)).to(DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
sampler = elastic.ElasticSampler(512, global_batch=24)
state = elastic.State(model=model, optimizer=optimizer, sampler=sampler, step=0)
table = torch.randn(512, 4, generator=torch.Generator().manual_seed(17)).to(DEVICE)
resized: list[list[int]] = []
if os.environ.get("EVERY"):
    elastic.checkpoint(state, every=int(os.environ["EVERY"]))


class Loop:
    """A trainer as people write them: it refers to itself."""

    def __init__(self, wrapped):
        self.wrapped, self.callback = wrapped, self.call

    def call(self, x):
        return self.wrapped(x)


def say(**facts):
    facts = {"pid": os.getpid(), "rank": elastic.rank(), "world": elastic.world_size(), **facts}
    os.write(1, json.dumps(facts).encode() + b"\n")  # in one piece: ranks may share the file


def train(state):
    say(entered=state.step, resized=list(resized), weight=model[0].weight.sum().item())
    parallel = DistributedDataParallel(state.model)
    own = torch.distributed.new_group() if os.environ.get("OWN_GROUP") else None
    forward = Loop(parallel).callback if os.environ.get("CYCLE") else parallel
    while state.step < STEPS:
        for indices in state.sampler.batches():
            x = table[indices]
            loss = (forward(x).squeeze(1) - x.sum(dim=1)).pow(2).mean()
            state.optimizer.zero_grad()
            loss.backward()
            state.optimizer.step()
            state.step += 1
            if own is not None:
                if state.step == 5 and elastic.rank() == 1:
                    signal.pause()  # the others wait for it in a group that the script made itself
                torch.distributed.all_reduce(loss.detach(), group=own)
            time.sleep(float(os.environ.get("STEP_TIME", "0")))
            if state.step == int(os.environ.get("FAIL_AT", "-1")) and elastic.rank() == 1:
                raise RuntimeError(os.environ["FAIL_WITH"]) if "FAIL_WITH" in os.environ else ValueError("own mistake")
            say(made=state.step)
            state.commit()
            say(step=state.step, loss=loss.item(), at=time.time())
            if state.step >= STEPS:
                break
    if os.environ.get("LINGER") and elastic.rank() == 1:
        say(lingers=True)
        signal.pause()
    return state.step


if os.environ.get("STOP_BEFORE_JOINING"):
    os.environ["MASTER_ADDR"] = "192.0.2.1"  # nobody: it never gets as far as the others
done = elastic.run(
    train,
    state,
    backend=os.environ.get("BACKEND", "gloo"),
    timeout=float(os.environ.get("TIMEOUT", "1800")),
    on_resize=lambda before, now: resized.append([before, now]),
)
say(done=done, weight=model[0].weight.sum().item())
