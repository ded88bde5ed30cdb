"""Copies of one part of a State, and how a part gets its values back from a copy.

A part is a torch module, an optimiser, anything else with `state_dict` and `load_state_dict`, or a plain value. Its
copy is a pickle of all that is no tensor (the skeleton) and the tensors beside it, in buffers that the next copy of
the same part uses again: then a copy costs what moving the bytes costs. Sharded parts (DTensor, as FSDP2 makes them)
are not copied: this process has only a piece of them, and what others had is gone with them. They come back from a
checkpoint.

Copies of what lies on a GPU are only queued when a call returns; `record_events` tells when they are made. It knows
nothing of commits, ranks or groups.
"""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Optional, Set

from petctl.elastic.snapshots.kinds import is_module, is_sharded, is_tensor
from petctl.errors import UsageError

_beside: Dict[Any, Any] = {}  # device -> a stream of `on_host`


@dataclass
class Copy:
    """One part as it was; `skeleton` is empty where the part is sharded."""

    skeleton: bytes
    tensors: List[Any] = field(default_factory=list)

    @property
    def sharded(self) -> bool:
        return not self.skeleton


def take(name: str, part: Any, into: Optional[Copy] = None) -> Copy:
    """Copies a part, into the buffers of an older copy where they fit."""
    tensors: List[Any] = []
    skeleton = _skeleton(name, part.state_dict() if _keeps_state(part) else part, tensors)
    if any(is_sharded(tensor) for tensor in tensors):
        return Copy(b"")
    if not tensors:
        return Copy(skeleton)
    torch = sys.modules["torch"]
    with torch.no_grad():
        buffers = into.tensors if into is not None else []
        if not _alike(tensors, buffers):
            buffers = [torch.empty_like(tensor, requires_grad=False) for tensor in tensors]
            for device in _devices([Copy(skeleton, buffers)]):
                _stream_beside(device)
        torch._foreach_copy_(buffers, tensors)
    return Copy(skeleton, buffers)


def record_events(copies: Iterable[Copy]) -> List[Any]:
    """Events that are done when the copies are: one for each device whose queue they are in."""
    torch = sys.modules.get("torch")
    return [torch.cuda.current_stream(device).record_event() for device in _devices(copies)] if torch else []


def wait_for_devices(copies: Iterable[Copy]) -> None:
    """Waits until nothing is under way on the devices of these copies, on any stream."""
    for device in _devices(copies):
        sys.modules["torch"].cuda.synchronize(device)


def _devices(copies: Iterable[Copy]) -> Set[Any]:
    return {tensor.device for copy in copies for tensor in copy.tensors if tensor.is_cuda}


def on_host(copy: Copy) -> Copy:
    """The same with its tensors in the host's memory, whatever is queued on their devices; the copy must be made.

    torch.save moves them too, but behind all that the training has queued and with Python's lock held. If a collective
    there waits for a lost peer, the thread that would abort the collective never runs again.
    """
    return Copy(copy.skeleton, [_moved(tensor) if tensor.is_cuda else tensor for tensor in copy.tensors])


def _moved(tensor: Any) -> Any:
    with sys.modules["torch"].cuda.stream(_stream_beside(tensor.device)):
        return tensor.cpu()


def _stream_beside(device: Any) -> Any:
    """A stream of the device that waits for no other. Making the first one waits until the device has nothing to do."""
    if device not in _beside:
        _beside[device] = sys.modules["torch"].cuda.Stream(device)
    return _beside[device]


def restore(part: Any, copy: Copy) -> Any:
    """The part with the values of the copy: the same object, or for a plain value a new one. The copy stays whole."""
    if copy.sharded:
        return part
    # A module copies what it loads. Others may keep the very tensors they are given, and would train on our copy.
    own = copy.tensors if is_module(part) else [tensor.clone() for tensor in copy.tensors]
    value = _Loader(copy.skeleton, own).load()
    if not _keeps_state(part):
        return value.to(part.device) if is_tensor(part) and is_tensor(value) else value
    part.load_state_dict(value)
    if isinstance(getattr(part, "_per_optimizer_states", None), dict):
        part._per_optimizer_states.clear()  # a GradScaler that was cut off after unscale_ would refuse the next one
    return part


def value(copy: Copy) -> Any:
    """What was copied: a state_dict, or the plain value. It shares the copy's tensors."""
    return _Loader(copy.skeleton, copy.tensors).load()


def _keeps_state(part: Any) -> bool:
    return hasattr(part, "state_dict") and hasattr(part, "load_state_dict")


def _alike(tensors: List[Any], buffers: List[Any]) -> bool:
    return len(tensors) == len(buffers) and all(
        one.shape == other.shape and one.dtype == other.dtype and one.device == other.device
        for one, other in zip(tensors, buffers)
    )


def _skeleton(name: str, value: Any, tensors: List[Any]) -> bytes:
    """Everything but the tensors, which are put in a list instead."""
    file = io.BytesIO()
    try:
        _Dumper(file, tensors).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(
            f"elastic.State: part {name!r} ({type(value).__name__}) cannot be copied: {error}. "
            "Give it state_dict() and load_state_dict(), or keep it out of the State."
        ) from None
    return file.getvalue()


class _Dumper(pickle.Pickler):
    def __init__(self, file: io.BytesIO, tensors: List[Any]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        torch = sys.modules.get("torch")
        self._tensor = torch.Tensor if torch is not None else ()
        self._tensors = tensors

    def persistent_id(self, value: Any) -> Optional[int]:
        if not isinstance(value, self._tensor):
            return None
        self._tensors.append(value)
        return len(self._tensors) - 1


class _Loader(pickle.Unpickler):
    def __init__(self, skeleton: bytes, tensors: List[Any]) -> None:
        super().__init__(io.BytesIO(skeleton))
        self._tensors = tensors

    def persistent_load(self, index: int) -> Any:
        return self._tensors[index]
