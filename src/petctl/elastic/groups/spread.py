"""Brings every rank of a new round to the newest State there is, by broadcast over the new group.

A small exchange tells which commit each rank has, and which checkpoint it sees. The newest wins: by (epoch, round,
step), so that a rank which trained on while it was cut off overrides nobody. If that is a checkpoint, a rank that sees
it loads it first: all ranks that were further may be lost, while those that are left stood by. When all have the same
commit nothing moves. Otherwise the first that has the newest sends it: the skeletons in one message, then the tensors
as a stream of bytes in buckets. Ranks that need nothing take part too (a broadcast is the whole group's) and drop what
they hear. A rank's own State changes only when all has arrived.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from petctl.elastic.snapshots import randomness
from petctl.elastic.snapshots.commits import Mark, Snapshot
from petctl.elastic.snapshots.parts import Copy, record_events
from petctl.elastic.snapshots.randomness import Generators
from petctl.elastic.state import State, ledger_of

BUCKET = 32 << 20
NOTHING = Mark(0, 0, 0)
BEHIND = Mark(-1, -1, -1)  # of a rank that takes any State that others have


class Offer(NamedTuple):
    """What one rank could bring into the round."""

    own: Mark
    saved: Mark  # the newest checkpoint that it sees, where that is newer than its own State
    base: int
    generators: int  # a digest of its random generators


def equalize(state: State, grouped: bool) -> None:
    """After this all ranks have the same State, or an error came; ungrouped ranks know of nobody but themselves."""
    ledger = ledger_of(state)
    offers = _agree_on_saved(state, grouped)
    rank = sys.modules["torch"].distributed.get_rank() if grouped else 0
    ledger.base = max(offer.base for offer in offers)
    newest = max(offer.own for offer in offers)
    leading = [offer.generators for offer in offers if offer.own == newest]
    if len(leading) > 1:
        ledger.same_numbers = len(set(leading)) == 1
    if len(leading) == len(offers):
        ledger.behind = False
        return
    source = next(number for number, offer in enumerate(offers) if offer.own == newest)
    sent = ledger.snapshot(state) if rank == source else None
    snapshot = broadcast(sent, randomness.capture() if ledger.same_numbers else None, source)
    if offers[rank].own == newest:
        return
    snapshot.events = record_events(snapshot.copies.values())
    snapshot.whole = None
    ledger.history.settle(snapshot)
    ledger.history.check()
    ledger.adopt(state, snapshot)
    ledger.same_numbers = snapshot.generators is not None


def _agree_on_saved(state: State, grouped: bool) -> List[Offer]:
    """Loads the newest checkpoint on one rank, if no rank's own State is as new; what all have then."""
    while True:
        own = _offer(state)
        offers = _exchange(own) if grouped else [own]
        ledger_of(state).history.check()
        rank = sys.modules["torch"].distributed.get_rank() if grouped else 0
        newest = max(offer.saved for offer in offers)
        if newest <= max(NOTHING, *(offer.own for offer in offers)):
            return offers
        if rank == next(number for number, offer in enumerate(offers) if offer.saved == newest):
            for witness in ledger_of(state).witnesses:
                witness.load_saved(state, newest)


def _offer(state: State) -> Offer:
    ledger = ledger_of(state)
    saved = [mark for mark in (witness.saved(state) for witness in ledger.witnesses) if mark is not None]
    own = BEHIND if ledger.behind else ledger.mark
    return Offer(own, max([NOTHING, *saved]), ledger.base, randomness.capture().digest())


def _exchange(own: Offer) -> List[Offer]:
    torch = sys.modules["torch"]
    numbers = torch.tensor([*own.own, *own.saved, own.base, own.generators], device=_device(torch))
    everybody = [torch.empty_like(numbers) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(everybody, numbers)
    lists = [one.tolist() for one in everybody]
    return [Offer(Mark(*one[:3]), Mark(*one[3:6]), one[6], one[7]) for one in lists]


def broadcast(snapshot: Optional[Snapshot], generators: Optional[Generators], source: int) -> Snapshot:
    """Sends the snapshot and generators of rank `source` to the whole group; the others hand in None."""
    torch = sys.modules["torch"]
    device = _device(torch)
    message: List[Any] = [None]
    filling = snapshot is None
    if snapshot is not None:
        shapes = {name: _shape(copy) for name, copy in snapshot.copies.items()}
        gradients = _shape(snapshot.gradients) if snapshot.gradients is not None else None
        message = [(snapshot.mark, snapshot.world, snapshot.base, generators, gradients, shapes)]
    torch.distributed.broadcast_object_list(message, source, device=device)
    if snapshot is None:
        mark, world, base, generators, gradients, shapes = message[0]
        copies = {name: _empty(torch, *shape) for name, shape in shapes.items()}
        gathered = _empty(torch, *gradients) if gradients is not None else None
        snapshot = Snapshot(mark, world, copies, base, gathered, generators)
    everything = [snapshot.gradients, *snapshot.copies.values()]
    tensors = [tensor for copy in everything if copy is not None for tensor in copy.tensors]
    for bucket in _buckets(torch, tensors):
        flat = torch.empty(sum(len(piece) for piece in bucket), dtype=torch.uint8, device=device)
        if not filling:
            torch._foreach_copy_(_split(bucket, flat), bucket)
        torch.distributed.broadcast(flat, source)
        if filling:
            torch._foreach_copy_(bucket, _split(bucket, flat))
    return snapshot


def _shape(copy: Copy) -> Tuple[bytes, List[Any]]:
    return copy.skeleton, [(tuple(tensor.shape), tensor.dtype, tensor.device.type) for tensor in copy.tensors]


def _empty(torch: Any, skeleton: bytes, tensors: List[Any]) -> Copy:
    return Copy(skeleton, [torch.empty(shape, dtype=dtype, device=kind) for shape, dtype, kind in tensors])


def _split(bucket: List[Any], flat: Any) -> List[Any]:
    """The places of the pieces in the bucket's bytes."""
    return list(flat.split([len(piece) for piece in bucket]))


def _buckets(torch: Any, tensors: List[Any]) -> Iterator[List[Any]]:
    """The bytes of all tensors in order, as lists of views of at most BUCKET bytes together."""
    bucket: List[Any] = []
    room = BUCKET
    for tensor in tensors:
        rest = tensor.reshape(-1).view(torch.uint8)
        while len(rest):
            bucket.append(rest[:room])
            rest, room = rest[room:], room - len(bucket[-1])
            if not room:
                yield bucket
                bucket, room = [], BUCKET
    if bucket:
        yield bucket


def _device(torch: Any) -> Any:
    """Where the group's messages must lie: NCCL alone takes nothing from the CPU."""
    backend = torch.distributed.get_backend_config()
    if "gloo" not in str(backend) and "nccl" in str(backend):
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")
