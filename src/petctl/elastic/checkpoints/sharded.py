"""Checkpoints of parts that no rank has whole: models and optimisers over DTensors, as FSDP2 makes them.

Every rank writes its shards with torch.distributed.checkpoint into the directory of the checkpoint, which all of them
must see; rank 0 makes it and commits it after all have written. Loading puts the values where the present mesh wants
them, whatever the mesh was when they were written. Both are collective, and training waits for them: the shards are
written from the live parameters.

    kept = elastic.checkpoint(state, every=200)          before elastic.run; State(model=None, optimizer=None, step=0)
    def train(state):
        state.model = ...; fully_shard(state.model); state.optimizer = ...
        kept.load()                                      every time: in a new round the shards come from the checkpoint
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Optional

from petctl.elastic.checkpoints import saved
from petctl.elastic.snapshots.commits import Mark, Snapshot
from petctl.elastic.snapshots.kinds import is_module, is_sharded, parameters_of
from petctl.elastic.state import State, ledger_of
from petctl.errors import UsageError


def names_in(state: State) -> List[str]:
    """The parts of a State that are sharded."""
    return [name for name, part in vars(state).items() if any(map(is_sharded, parameters_of(part)))]


def save(directory: Path, mark: Mark, snapshot: Snapshot, state: State, names: List[str]) -> None:
    """Writes one checkpoint, all ranks together. OSError on every rank when rank 0 could not begin it."""
    import torch.distributed as distributed
    import torch.distributed.checkpoint as dcp

    told: List[Optional[str]] = []

    def together(path: Optional[Path]) -> None:
        told[:] = [None if path is None else str(path)]
        distributed.broadcast_object_list(told, 0)
        if told[0] is not None:
            dcp.save(_values(state, names), checkpoint_id=told[0])
            ledger_of(state).history.check()

    if distributed.get_rank() != 0:
        together(None)
        return
    try:
        saved.write(directory, mark, snapshot, names, together)
    finally:
        if not told:
            together(None)  # the others wait for a word


def load(directory: Path, mark: Optional[Mark], state: State, names: List[str]) -> Optional[Mark]:
    """Gives the parts the values of the checkpoint that rank 0 has chosen, all ranks together; None: there is none."""
    import torch.distributed as distributed
    import torch.distributed.checkpoint as dcp

    chosen = [mark]
    distributed.broadcast_object_list(chosen, 0)
    if chosen[0] is None:
        return None
    values = _values(state, names)
    dcp.load(values, checkpoint_id=str(directory / str(chosen[0])))
    _give(state, values)
    return chosen[0]


def _values(state: State, names: List[str]) -> Dict[str, Any]:
    """The state_dicts, under names of parameters: those do not depend on how many ranks there are."""
    from torch.distributed.checkpoint import state_dict as words

    found: Dict[str, Any] = {}
    for name in names:
        part = vars(state)[name]
        if is_module(part):
            found[name] = words.get_model_state_dict(part)
        else:
            found[name] = words.get_optimizer_state_dict(_model_of(state, name), part)
    return found


def _give(state: State, values: Dict[str, Any]) -> None:
    from torch.distributed.checkpoint import state_dict as words

    for name, value in values.items():
        part = vars(state)[name]
        if is_module(part):
            words.set_model_state_dict(part, value)
        else:
            words.set_optimizer_state_dict(_model_of(state, name), part, value)


def _model_of(state: State, optimizer: str) -> Any:
    """The model whose parameters an optimiser has."""
    own = {id(parameter) for parameter in parameters_of(vars(state)[optimizer])}
    for part in vars(state).values():
        if is_module(part) and own <= {id(parameter) for parameter in parameters_of(part)}:
            return part
    raise UsageError(f"elastic.checkpoint: the State has no model with the parameters of its part {optimizer!r}")
