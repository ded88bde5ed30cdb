"""The process groups of one round: joined, cut off from another thread, and taken down. The only torch.distributed code
beside `spread`.

Three ways to join, by who launched us: petctl's round has its own store at MASTER_ADDR:MASTER_PORT, which rank 0 may
have opened while it was parked; torchrun and others speak for themselves (env://); without a launcher the group has
one member. A script that has not imported torch has no group at all, and its ranks share nothing.

When to join, cut or leave is the runner's business.
"""

from __future__ import annotations

import os
import sys
import threading
from datetime import timedelta
from typing import Any, Iterator, List, Optional

from petctl.elastic import place
from petctl.elastic.connections import Connections
from petctl.elastic.gloo import Waits, let_go
from petctl.errors import UsageError

CREATE = "_new_process_group_helper"  # what torch makes every group with, the user's own included
# The watchdog of NCCL ends the process when a peer is lost; here the agent says what happens then.
WATCHDOG = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class Groups:
    """What connects this worker with the others of its round."""

    def __init__(self, backend: Optional[str], timeout: Optional[float]) -> None:
        self._backend = backend
        self._timeout = timedelta(seconds=timeout) if timeout else None
        self._connections = Connections()
        self._waits = Waits()
        self._store: Any = None
        self._server: Any = None  # where this worker hosts the round's store; peers read from it until they have parked
        self._hosted: Any = None  # the same for the round to come
        self._remains: List[Any] = []  # groups that were left, and are not freed yet
        self._aborting = threading.Lock()
        self._original: Any = None

    # -- the main thread -----------------------------------------------------------------------------------------------

    def join(self, under_petctl: bool) -> Optional[Any]:
        """Makes the default group of this round; the answer is a store of one's own for agreements, if there is one."""
        distributed = _distributed()
        if distributed is None:
            return None
        if distributed.is_initialized():
            raise UsageError(
                "elastic.run makes the process group itself, anew in each round, but there is one already: "
                "remove init_process_group() from the script, or call it after elastic.run has returned."
            )
        named = {} if self._timeout is None else {"timeout": self._timeout}
        if not under_petctl and "RANK" in os.environ:
            distributed.init_process_group(self._chosen_backend(), **named)
            return None
        if not under_petctl:
            store = distributed.HashStore()
            distributed.init_process_group(self._chosen_backend(), store=store, rank=0, world_size=1, **named)
            return None
        os.environ[WATCHDOG] = "0"
        self._watch_creation()
        with self._connections.watching():
            self._store = self._open_store(distributed)
            agreements = self._store.clone()
        rank, world = place.rank(), place.world_size()
        distributed.init_process_group(self._chosen_backend(), store=self._store, rank=rank, world_size=world, **named)
        return agreements

    @property
    def joined(self) -> bool:
        distributed = _distributed()
        return distributed is not None and bool(distributed.is_initialized())

    def bind(self) -> int:
        """Opens the store of the coming round here, for its rank 0; the answer is its port."""
        distributed = _distributed()
        if distributed is None:
            return 0
        self._hosted = distributed.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        return int(self._hosted.port)

    def leave(self, broken: bool = False) -> None:
        """Takes every group down; peers that wait for us are released. `broken`: a collective may be under way."""
        distributed = _distributed()
        if broken:
            self.cut()  # or taking it down would wait for that collective
        if distributed is not None and distributed.is_initialized():
            self._remains = list(distributed.distributed_c10d._world.pg_map)
            distributed.destroy_process_group()

    def bury(self) -> None:
        """Frees the groups that were left, once nothing else refers to them.

        A group waits for its threads as it is freed, and those may wait for Python's lock. Freed by its last Python
        reference it lets go of that lock; freed by a DistributedDataParallel it does not, and the process stands still.
        """
        self._remains = []

    def renew(self) -> None:
        """What was cut belongs to a round that is over; from now on connections live again."""
        self._connections.forget()

    def barrier(self) -> None:
        """Nobody takes a group down while a peer may still be reading from it."""
        distributed = _distributed()
        if distributed is not None and distributed.is_initialized() and distributed.get_world_size() > 1:
            distributed.barrier()

    def close(self, broken: bool) -> None:
        """Leaves torch as it was found."""
        self.leave(broken)
        let_go()
        self._store = self._server = self._hosted = None
        if self._original is not None:
            setattr(sys.modules["torch.distributed.distributed_c10d"], CREATE, self._original)
            self._original = None

    # -- any thread ----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Brings back a main thread that waits in a collective, with an error; all groups at once."""
        self._connections.cut()
        distributed = _distributed()
        with self._aborting:  # the main thread may do the same after an error of its own
            if distributed is not None and distributed.is_initialized() and "nccl" in distributed.get_backend_config():
                self._remains = list(distributed.distributed_c10d._world.pg_map)
                distributed.distributed_c10d._abort_process_group()

    def release(self) -> None:
        """Brings back those that wait although everything is cut."""
        self._waits.release()

    # -- within --------------------------------------------------------------------------------------------------------

    def _chosen_backend(self) -> str:
        if self._backend is not None:
            return self._backend
        return "cpu:gloo,cuda:nccl" if sys.modules["torch"].cuda.is_available() else "gloo"

    def _open_store(self, distributed: Any) -> Any:
        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self._server, self._hosted = self._hosted, None
        chief = place.rank() == 0
        if chief and self._server is not None and self._server.port == port:
            return self._server.clone()  # a connection made while they are watched
        named = {} if self._timeout is None else {"timeout": self._timeout}
        return distributed.TCPStore(address, port, None, chief, wait_for_workers=False, **named)

    def _watch_creation(self) -> None:
        """From now on the connections of every new group are known, the user's own groups included."""
        module = sys.modules["torch.distributed.distributed_c10d"]
        original = getattr(module, CREATE, None)
        if original is None or self._original is not None:
            return

        def create(*words: Any, **named: Any) -> Any:
            with self._connections.watching():
                return original(*words, **named)

        self._original = original
        setattr(module, CREATE, create)


def is_about_peers(error: BaseException) -> bool:
    """Whether an error can come from the loss of a peer rather than from the script itself."""
    distributed = _distributed()
    return distributed is not None and any(_names_peers(link, distributed) for link in _chain(error))


def _names_peers(error: BaseException, distributed: Any) -> bool:
    if isinstance(error, getattr(distributed, "DistError", ())):
        return True
    text = str(error)
    return isinstance(error, RuntimeError) and any(sign in text for sign in ("gloo", "Gloo", "NCCL", "Connection "))


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """An error and those it came from, however often the script has wrapped it."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _distributed() -> Optional[Any]:
    """torch.distributed, if the script uses torch and torch has it."""
    if "torch" not in sys.modules:
        return None
    import torch.distributed

    return torch.distributed if torch.distributed.is_available() else None
