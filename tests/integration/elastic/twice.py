"""Several trainings in one script, each going on from what the one before has made; every step adds exactly 1.

CALLS of them with 20 steps each, the last one with STEPS; with SAME all have one State, else each has its own. HOLD
names a place ("between", "entry", with ":RANK" for one rank) in the last one where workers wait for the file GO.
Half-way through the last one the workers only commit until they are WORLD. DEVICE and BACKEND: cpu and gloo, or cuda
and nccl, where ranks on one GPU look like ranks on several machines.
"""

import json
import os
import pathlib
import time

import torch

from petctl import elastic

CALLS = int(os.environ.get("CALLS", "2"))
WORLD = int(os.environ.get("WORLD", "1"))
EVERY = int(os.environ.get("EVERY", "0"))
DEVICE = os.environ.get("DEVICE", "cpu")
os.environ["NCCL_HOSTID"] = os.environ.get("PETCTL_WORKER_KEY", "")
torch.set_num_threads(1)
torch.manual_seed(0)


def say(**facts):
    facts = {"pid": os.getpid(), "rank": elastic.rank(), "world": elastic.world_size(), **facts}
    os.write(1, json.dumps(facts).encode() + b"\n")


def hold(name):
    if os.environ.get("HOLD") in (name, f"{name}:{elastic.rank()}"):
        say(held=name)
        while not pathlib.Path(os.environ["GO"]).exists():
            time.sleep(0.01)


def new_state(begin):
    model = torch.nn.Linear(1, 1, bias=False, device=DEVICE)
    chance = torch.nn.Linear(1, 1, bias=False, device=DEVICE)
    torch.nn.init.constant_(model.weight, begin)
    state = elastic.State(model=model, chance=chance, step=0)
    if EVERY:
        elastic.checkpoint(state, every=EVERY)
    return state


def run(state, call, steps):
    def train(state):
        say(entered=call, at=state.step, weight=state.model.weight.item(), chance=state.chance.weight.item())
        if call == CALLS:
            hold("entry")
        while state.step < steps:
            if call == CALLS and state.step == steps // 2 and elastic.world_size() < WORLD:
                time.sleep(0.01)
                state.commit()
                continue
            one = torch.full((1,), 1.0 / elastic.world_size(), device=DEVICE)
            torch.distributed.all_reduce(one)
            with torch.no_grad():
                state.model.weight += one
            state.step += 1
            time.sleep(float(os.environ.get("STEP_TIME", "0")))
            state.commit()
            say(step=state.step, call=call, weight=state.model.weight.item())
        return {"weight": state.model.weight.item(), "model": state.model}

    return elastic.run(train, state, backend=os.environ.get("BACKEND", "gloo"))


state, result = new_state(0.0), {"weight": 0.0}
for call in range(1, CALLS + 1):
    if call > 1:
        if call == CALLS:
            hold("between")
        if os.environ.get("SAME"):
            state.step = 0
        else:
            state = new_state(result["weight"])
    result = run(state, call, 20 if call < CALLS else int(os.environ.get("STEPS", "40")))
    assert result["model"] is state.model
    say(ended=call, weight=result["weight"], model=state.model.weight.item())
say(done=result["weight"])
