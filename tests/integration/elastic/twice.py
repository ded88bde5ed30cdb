"""Two trainings in one script, each with a State of its own: the second goes on from what the first has made."""

import json
import os
import time

import torch

from petctl import elastic

torch.set_num_threads(1)


def say(**facts):
    facts = {"pid": os.getpid(), "rank": elastic.rank(), "world": elastic.world_size(), **facts}
    os.write(1, json.dumps(facts).encode() + b"\n")


def run(name, steps, begin):
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(model.weight, begin)
    state = elastic.State(model=model, step=0)

    def train(state):
        say(entered=name, at=state.step)
        while state.step < steps:
            one = torch.full((1,), 1.0 / elastic.world_size())
            torch.distributed.all_reduce(one)
            with torch.no_grad():
                state.model.weight += one
            state.step += 1
            time.sleep(float(os.environ.get("STEP_TIME", "0")))
            state.commit()
            say(step=state.step, run=name)
        return state.model.weight.item()

    return elastic.run(train, state, backend="gloo")


first = run("first", 20, 0.0)
say(first=first)
second = run("second", int(os.environ.get("STEPS", "40")), first)
say(done=second)
