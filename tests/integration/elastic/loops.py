"""The usual forms of training loops, by FORM, with everything that has a state; digests tell what it is on entry."""

import hashlib
import json
import os
import random
import signal
from pathlib import Path

import numpy
import torch
from torch.nn.parallel import DistributedDataParallel

from petctl import elastic

FORM = os.environ["FORM"]
STEPS = int(os.environ.get("STEPS", "1000000"))
PAUSE = Path(os.environ["PAUSE"])  # says at which step one rank waits, and which: the others wait for it in backward
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(0)
numpy.random.seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=7)
sampler = elastic.ElasticSampler(512, global_batch=24)
state = elastic.State(
    model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler, sampler=sampler, step=0, drawn=0.0
)
table = torch.randn(512, 4, generator=torch.Generator().manual_seed(17))


def say(**facts):
    facts = {"pid": os.getpid(), "rank": elastic.rank(), "world": elastic.world_size(), **facts}
    os.write(1, json.dumps(facts).encode() + b"\n")


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def _of_numpy():
    kind, keys, *rest = numpy.random.get_state()
    return kind, keys.tolist(), rest


def facts():
    """What must be the same on every rank that enters a round."""
    torch.set_printoptions(precision=9, threshold=10_000)
    return {
        "parameters": digest([parameter.tolist() for parameter in model.parameters()]),
        "buffers": digest([buffer.tolist() for buffer in model.buffers()]),
        "optimizer": digest(optimizer.state_dict()),
        "scheduler": digest(scheduler.state_dict()),
        "scaler": digest(scaler.state_dict()),
        "random": digest((random.getstate(), torch.get_rng_state().tolist(), _of_numpy())),
    }


def backward(parallel, x, scale):
    if PAUSE.read_text() == f"step {state.step}, rank {elastic.rank()}":
        say(paused=state.step)
        signal.pause()
    loss = (parallel(x).squeeze(1) - x.sum(dim=1)).pow(2).mean() / 2
    scale(loss).backward()
    return loss


def train(state):
    has_gradients = any(parameter.grad is not None for parameter in model.parameters())
    parallel = DistributedDataParallel(state.model)  # gives all ranks the buffers of the first, which are its own
    say(entered=state.step, gradients=has_gradients, **facts())
    while state.step < STEPS:
        for indices in state.sampler.batches():
            x = table[indices]
            state.drawn += (
                random.random() + torch.rand(()).item() + numpy.random.random()
            )  # a choice that all ranks must make alike
            if FORM == "zero first":
                optimizer.zero_grad()
                backward(parallel, x, lambda loss: loss)
                optimizer.step()
            elif FORM == "zero last":
                backward(parallel, x, lambda loss: loss)
                optimizer.step()
                optimizer.zero_grad()
            elif FORM == "scaled":
                optimizer.zero_grad(set_to_none=False)
                backward(parallel, x, scaler.scale)
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                torch.distributed.all_reduce(torch.ones(1))  # a loss may be noticed here, too
                scaler.step(optimizer)
                scaler.update()
            elif FORM == "accumulated":  # a commit between two backward passes of one step
                backward(parallel, x, lambda loss: loss)
                if state.step % 3 == 2:
                    optimizer.step()
                    optimizer.zero_grad()
            scheduler.step()
            state.step += 1
            say(made=state.step)
            state.commit()
            say(step=state.step)
            if state.step >= STEPS:
                break


elastic.run(train, state, backend="gloo")
say(done=state.step, drawn=state.drawn, weight=model[0].weight.double().sum().item(), **facts())
