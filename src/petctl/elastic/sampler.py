"""Deals out the samples of an epoch so that each is in exactly one committed step, whatever happens to the ranks.

An epoch is one order of all samples, which depends on seed and epoch alone. Each step takes the next ones of that
order and divides them among the ranks there are; how many were dealt out is the sampler's whole state. As a part of a
State it is rolled back with the model, so a step that was undone is dealt out again, to whoever is there by then.

The order is computed sample by sample (a small Feistel network over the positions): nothing is as large as the data
set, and to resume is to remember a number. It knows no torch and no groups.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Optional, Sized, Tuple, Union

from petctl.elastic import place
from petctl.errors import UsageError

_WORD = (1 << 64) - 1
_FACTOR = 0x9E3779B97F4A7C15
_ROUNDS = 3


class ElasticSampler:
    """A batch sampler for torch's DataLoader, or for any loop over `batches()`.

    sampler = ElasticSampler(dataset, batch_size=32)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=2)
    while sampler.epoch < epochs:
        for x, y in sampler.batches(loader):
            ...; state.commit()

    `batch_size` is each rank's: the batch of all ranks together grows and shrinks with them. `global_batch` instead
    is that of all ranks together, and stays; ranks' shares differ by one where it cannot be divided. The last step of
    an epoch has what is left. Only if that is less than one sample per rank, some are dealt out twice: `padding` says
    how many.
    """

    def __init__(
        self,
        data: Union[int, Sized],
        batch_size: Optional[int] = None,
        *,
        global_batch: Optional[int] = None,
        shuffle: bool = True,
        seed: int = 0,
    ) -> None:
        self._length = data if isinstance(data, int) else len(data)
        given = [size for size in (batch_size, global_batch) if size is not None]
        if self._length < 1 or len(given) != 1 or given[0] < 1:
            raise UsageError(
                f"ElasticSampler: {self._length} samples, batch_size={batch_size}, global_batch={global_batch}; it "
                "takes at least one sample and either a batch_size (each rank's) or a global_batch (of all together)"
            )
        self._batch_size, self._global_batch = batch_size, global_batch
        self._shuffle, self._seed = shuffle, seed
        self._epoch = 0
        self._dealt = 0  # samples of this epoch that are in a step
        self._uncounted = False  # somebody reads ahead whose progress we do not see

    @property
    def epoch(self) -> int:
        """The epoch being dealt out; one more as soon as `batches` has come to its end."""
        return self._epoch

    @property
    def dealt(self) -> int:
        """How many samples of this epoch have been dealt out, to all ranks together."""
        return self._dealt

    @property
    def padding(self) -> int:
        """How many samples the last step of an epoch deals out twice, with the ranks there are now."""
        world = place.world_size()
        size = self._step_size(world)
        return max(0, world - ((self._length - self._dealt - 1) % size + 1)) if self._dealt < self._length else 0

    def __len__(self) -> int:
        """Steps left in this epoch, with the ranks there are now."""
        return -(-(self._length - self._dealt) // self._step_size(place.world_size()))

    def __iter__(self) -> Iterator[List[int]]:
        """The indices of this rank's coming batches, for a loader that reads ahead; `batches` counts what is used."""
        self._uncounted = True
        return self._plan(self._epoch, self._dealt, place.rank(), place.world_size())

    def batches(self, loader: Optional[Iterable[Any]] = None) -> Iterator[Any]:
        """What is left of this epoch: the loader's batches, or lists of indices; each counts once it is handed over."""
        steps = self._steps(self._dealt, place.world_size())
        source = iter(self if loader is None else loader)
        self._uncounted = False
        for batch, (first, size) in zip(source, steps):
            self._dealt = first + size
            yield batch
        self._epoch, self._dealt = self._epoch + 1, 0

    def state_dict(self) -> Dict[str, Any]:
        """For the State it is a part of."""
        if self._uncounted:
            raise UsageError(
                "ElasticSampler: a loader reads from it, but used samples are not counted, so a commit cannot "
                "tell which it covers. Iterate over `sampler.batches(loader)` instead of `loader`."
            )
        return {"epoch": self._epoch, "dealt": self._dealt, "length": self._length, "seed": self._seed}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Goes on where that State was."""
        if state["length"] != self._length:
            raise UsageError(
                f"ElasticSampler: the State to continue from was trained on {state['length']} samples, this data has "
                f"{self._length}. Use the same data, or keep the sampler out of the State."
            )
        self._epoch, self._dealt, self._seed = state["epoch"], state["dealt"], state["seed"]
        self._uncounted = False

    # -- which samples -------------------------------------------------------------------------------------------------

    def _step_size(self, world: int) -> int:
        if self._batch_size is not None:
            return self._batch_size * world
        return max(self._global_batch or 1, world)  # no rank can be without a sample

    def _steps(self, dealt: int, world: int) -> Iterator[Tuple[int, int]]:
        """First position and size of each step to come, of all ranks together."""
        size = self._step_size(world)
        for first in range(dealt, self._length, size):
            yield first, min(size, self._length - first)

    def _plan(self, epoch: int, dealt: int, rank: int, world: int) -> Iterator[List[int]]:
        order = _Order(self._length, self._seed, epoch) if self._shuffle else None
        for first, size in self._steps(dealt, world):
            if size < world:  # a rank without a sample would leave the others waiting
                positions = [first + rank % size]
            else:
                positions = list(range(first + size * rank // world, first + size * (rank + 1) // world))
            yield [order[position] for position in positions] if order is not None else positions


class _Order:
    """A permutation of range(length), computed index by index.

    A position is split into two digits (left, right) of bases about the square root of the length; each round adds to
    one digit a hash of the other, which can be undone and so is a permutation. Results beyond the length (less than
    one in a square root) are sent through again until they fall inside.
    """

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self._length = length
        self._left = max(1, int(length**0.5))
        self._right = -(-length // self._left)
        key = _mix(_mix(seed) + epoch)
        self._keys = [(_mix(key + 2 * number), _mix(key + 2 * number + 1)) for number in range(_ROUNDS)]

    def __getitem__(self, position: int) -> int:
        left_base, right_base, keys = self._left, self._right, self._keys
        while True:
            left, right = divmod(position, right_base)
            for even, odd in keys:  # written out: this runs once per sample
                word = ((right + even) * _FACTOR) & _WORD
                left = (left + ((((word ^ (word >> 29)) * _FACTOR) & _WORD) >> 24)) % left_base
                word = ((left + odd) * _FACTOR) & _WORD
                right = (right + ((((word ^ (word >> 29)) * _FACTOR) & _WORD) >> 24)) % right_base
            position = left * right_base + right
            if position < self._length:
                return position


def _mix(word: int) -> int:
    """Spreads 64 bits over 64 bits (the finalizer of SplitMix64)."""
    word = ((word + 1) * _FACTOR) & _WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)
