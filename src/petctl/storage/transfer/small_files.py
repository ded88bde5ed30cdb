"""Small files that are new at their place, between a bucket and this machine, from one thread (`pipelining.py`).

What does not go at the first attempt goes the way of all other files, which repeats and explains.
"""

from __future__ import annotations

from functools import partial
from typing import Callable

from petctl.storage.core.http_client import Head
from petctl.storage.stores.endpoint import Endpoint
from petctl.storage.stores.signed import SignedBucket
from petctl.storage.transfer.pipelining import LARGEST
from petctl.storage.transfer.plan import Pair


class Quick:
    """Takes the files that it is made for; the others are left to the caller."""

    def __init__(
        self,
        source: Endpoint,
        target: Endpoint,
        arrived: Callable[[Pair], None],
        failed: Callable[[Exception], bool],
        otherwise: Callable[[Pair], None],
    ) -> None:
        """`failed` says whether an error is final; `otherwise` is handed what did not go."""
        self._source, self._target = source, target
        self._arrived, self._failed, self._otherwise = arrived, failed, otherwise
        self._bucket = next((end for end in (source, target) if isinstance(end, SignedBucket)), None)
        other = target if self._bucket is source else source
        self._lanes = self._bucket.lanes() if self._bucket and other.location.local else None

    def take(self, pair: Pair) -> bool:
        """Whether the file is on its way."""
        if self._bucket is None or self._lanes is None or pair.source.size > LARGEST or not self._new(pair):
            return False
        try:
            if self._bucket is self._source:
                request = self._bucket.asking(pair.source)
            else:
                request = self._bucket.giving(pair.target, self._source.whole(pair.source))
        except Exception as error:
            if self._failed(error):
                raise
            return True
        self._lanes.hand(request, partial(self._done, pair), partial(self._otherwise, pair))
        return True

    def settle(self) -> None:
        """Waits until all that were taken are there, or handed on."""
        if self._lanes is not None:
            self._lanes.settle()

    def close(self) -> None:
        """Lets go of all connections."""
        if self._lanes is not None:
            self._lanes.close()

    def _new(self, pair: Pair) -> bool:
        """Whether nothing is there, as far as that is known without asking a store."""
        if pair.looked:
            return pair.there is None
        return self._target.location.local and self._target.find(pair.target) is None

    def _done(self, pair: Pair, head: Head, data: memoryview) -> None:
        try:
            if self._bucket is self._source:
                self._target.put(pair.target, self._bucket.received(pair.source, head, data), pair.source)
            self._arrived(pair)
        except Exception as error:
            if self._failed(error):
                raise
