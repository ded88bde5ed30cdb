"""Brings every rank of a new round to the State of the most advanced one, by broadcast over the new group.

A small exchange tells who is how far. When all are equally far nothing moves. Otherwise the first of the most
advanced sends its last commit: the skeletons in one message, then the tensors as a stream of bytes in buckets. Ranks
that need nothing take part too (a broadcast is the whole group's) and drop what they hear. A rank's own State changes
only when all has arrived.
"""

from __future__ import annotations

import sys
from typing import Any, Iterator, List, Optional

from petctl.elastic.parts import Copy
from petctl.elastic.state import Snapshot, State, ledger_of

BUCKET = 32 << 20


def equalize(state: State) -> None:
    """After this all ranks have the same State, or an error came from torch.distributed."""
    torch = sys.modules["torch"]
    distributed = torch.distributed
    if distributed.get_world_size() == 1:
        return
    device = _device(torch)
    ledger = ledger_of(state)
    own = torch.tensor([ledger.commits], device=device)
    everybody = [torch.empty_like(own) for _ in range(distributed.get_world_size())]
    distributed.all_gather(everybody, own)
    commits = [int(one) for one in everybody]
    if min(commits) == max(commits):
        return
    source = commits.index(max(commits))
    sending = distributed.get_rank() == source
    snapshot = _broadcast(torch, ledger.snapshot(state) if sending else None, source, device)
    if ledger.commits < max(commits):
        ledger.adopt(state, snapshot)


def _broadcast(torch: Any, snapshot: Optional[Snapshot], source: int, device: Any) -> Snapshot:
    message: List[Any] = [None]
    if snapshot is not None:
        shapes = {
            name: (copy.skeleton, [(tuple(t.shape), t.dtype, t.device.type) for t in copy.tensors])
            for name, copy in snapshot.copies.items()
        }
        message = [(snapshot.commits, snapshot.world, shapes)]
    torch.distributed.broadcast_object_list(message, source, device=device)
    if snapshot is None:
        commits, world, shapes = message[0]
        copies = {
            name: Copy(skeleton, [torch.empty(shape, dtype=dtype, device=kind) for shape, dtype, kind in tensors])
            for name, (skeleton, tensors) in shapes.items()
        }
        snapshot = Snapshot(commits, world, copies)
        filling = True
    else:
        filling = False
    tensors = [tensor for copy in snapshot.copies.values() for tensor in copy.tensors]
    for bucket in _buckets(torch, tensors):
        flat = torch.empty(sum(len(piece) for piece in bucket), dtype=torch.uint8, device=device)
        if not filling:
            torch._foreach_copy_(_split(bucket, flat), bucket)
        torch.distributed.broadcast(flat, source)
        if filling:
            torch._foreach_copy_(bucket, _split(bucket, flat))
    return snapshot


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
