"""Run by test_parts with a Python that has torch: what a State does with torch's own objects. Silent if all is well."""

import torch

from petctl.elastic import ElasticSampler, State
from petctl.elastic.snapshots import parts
from petctl.elastic.state import ledger_of

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
state = State(
    model=model,
    optimizer=optimizer,
    scheduler=scheduler,
    sampler=ElasticSampler(10, batch_size=2),
    average=torch.zeros(3),
    history=[torch.ones(1)],
)
ledger = ledger_of(state)
ledger.keeping = True
ledger.snapshot(state)


def step():
    optimizer.zero_grad()
    model(torch.randn(8, 3)).pow(2).mean().backward()
    optimizer.step()
    scheduler.step()
    state.average += 1
    state.history.append(torch.ones(1))


def facts():
    values = [tensor.clone() for tensor in model.state_dict().values()]
    moments = [entry[name].clone() for entry in optimizer.state.values() for name in ("exp_avg", "step")]
    plain = (optimizer.param_groups[0]["lr"], scheduler.last_epoch, state.average.tolist(), len(state.history))
    return values + moments, plain


def same(one, other):
    return (
        one[1] == other[1] and len(one[0]) == len(other[0]) and all(torch.equal(a, b) for a, b in zip(one[0], other[0]))
    )


# Before the first commit: the optimiser had no moments then.
begun = facts()
step()
assert not same(begun, facts())
ledger.rollback(state)
assert same(begun, facts())

# A commit, a step, and back; twice, because training on after a rollback must not change what the commit kept.
weights = list(model.parameters())
step()
state.commit()
kept = facts()
for _ in range(2):
    step()
    step()
    assert not same(kept, facts())
    ledger.rollback(state)
    assert same(kept, facts())
assert all(one is other for one, other in zip(weights, model.parameters())), "the optimiser refers to these"

# The buffers of a copy are used again by the next but one, but not while somebody reads them.
first = ledger.snapshot(state).copies["model"].tensors[0]
step()
state.commit()
second = ledger.snapshot(state).copies["model"].tensors[0]
assert second is not first, "a commit that fails leaves the one before"
step()
state.commit()
assert ledger.snapshot(state).copies["model"].tensors[0] is first
with ledger.history.hold(ledger.snapshot(state)) as held:
    before = first.clone()
    for _ in range(3):
        step()
        state.commit()
        assert torch.equal(held.copies["model"].tensors[0], before)
        assert ledger.snapshot(state).copies["model"].tensors[0] is not first

# A module that changes its shape between two commits is copied anew.
model[2] = torch.nn.Linear(4, 2)
assert parts.take("model", model, ledger.snapshot(state).copies["model"]).tensors[-1].shape == (2,)
