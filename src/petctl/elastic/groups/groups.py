"""The process groups of one round: joined, cut off from another thread, and taken down. The only torch.distributed code
beside `spread`.

Three ways to join, by who launched us: petctl's round has its own store at MASTER_ADDR:MASTER_PORT, which rank 0 may
have opened while it was parked; torchrun and others speak for themselves (env://); without a launcher the group has
one member. A script that has not imported torch has no group at all, and its ranks share nothing.

When to join, cut or leave is the runner's business.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from datetime import timedelta
from typing import Any, Callable, Dict, Iterator, List, Optional

from petctl.elastic import place
from petctl.elastic.groups.connections import Connections
from petctl.elastic.groups.gloo import Waits, let_go
from petctl.elastic.snapshots.commits import CutOff
from petctl.errors import UsageError

CREATE = "_new_process_group_helper"  # what torch makes every group with, the user's own included
# The watchdog of NCCL ends the process when a peer is lost; here the agent says what happens then.
WATCHDOG = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
# That watchdog sleeps after an error for four times as many milliseconds (for dumps of its flight recorder): a minute
# by default, in which the aborted group cannot be freed.
DUMP_WAIT = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
# A second thread looks once a second whether there is something to dump, which there is after any error; then it sleeps
# for eight minutes, and the aborted group cannot be freed. Without dumps it waits in a way that freeing ends.
DUMPS = "TORCH_NCCL_DUMP_ON_TIMEOUT"
WAIT_FOR_RANKS = timedelta(minutes=30)  # as torch waits for the members of a group
GLOO_PLACE = re.compile(r"(?:\w+: )?\[[^\]]*\bgloo/[^\]]*:\d+\]")


class Groups:
    """What connects this worker with the others of its round."""

    def __init__(
        self, backend: Optional[str], timeout: Optional[float], before_cut: Callable[[], None], number: int = 1
    ) -> None:
        self._backend, self._number = backend, number  # which call of elastic.run it is, of those in this process
        self._before_cut = before_cut  # the last moment in which what comes out of a collective can be trusted
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
                "elastic.run creates the process group itself in each round, but one exists already: "
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
        os.environ.setdefault(DUMP_WAIT, "1")
        os.environ.setdefault(DUMPS, "0")
        with self._connections.watching():
            agreements = distributed.PrefixStore(f"run-{self._number}", self._store.clone())
        self._init(distributed, self._chosen_backend(), f"run-{self._number}", named)
        return agreements

    def meet(self) -> bool:
        """Opens the round's store and waits for all ranks there; False: they are in different calls of elastic.run.

        Only in petctl's rounds, and before `join`. Ranks in different calls have `join_for_hand_over`, and meet again.
        """
        distributed = _distributed()
        if distributed is None or distributed.is_initialized():
            return True  # without torch there is no group; one that is there already is refused by `join`
        self._watch_creation()
        with self._connections.watching():
            self._store = self._open_store(distributed)
        assert _round_store is not None
        return place.world_size() == 1 or _round_store.all_in_call(self._store, self._number, place.world_size())

    def join_for_hand_over(self) -> None:
        """Makes a group of all ranks, whichever calls they are in; left again as any other."""
        distributed = _distributed()
        assert distributed is not None and _round_store is not None
        self._init(distributed, "gloo", f"hand-over-{_round_store.meetings}", {})

    def _init(self, distributed: Any, backend: str, prefix: str, named: Dict[str, Any]) -> None:
        own = distributed.PrefixStore(prefix, self._store)
        rank, world = place.rank(), place.world_size()
        distributed.init_process_group(backend, store=own, rank=rank, world_size=world, **named)

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

    def dispose(self) -> None:
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
        self._store = self._server = self._hosted = None  # the round's own stays for the next elastic.run
        if self._original is not None:
            setattr(sys.modules["torch.distributed.distributed_c10d"], CREATE, self._original)
            self._original = None

    # -- any thread ----------------------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Brings back a main thread that waits in a collective, with an error; all groups at once."""
        self._before_cut()
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
        global _round_store
        chief = place.rank() == 0
        if _round_store is not None and _round_store.round == place.epoch_and_round():
            return _round_store.store.clone()
        if chief and self._server is not None and self._server.port == port:
            store = self._server.clone()  # a connection made while they are watched
        else:
            store = distributed.TCPStore(address, port, None, chief, wait_for_workers=False)
        store.set_timeout(self._timeout or WAIT_FOR_RANKS)
        _round_store = _RoundStore(store, self._server)
        return store

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


class _RoundStore:
    """The store of the round that this process is in: a second elastic.run in the same round finds it again.

    To close it and open it again at the same port would cut off peers that are already in their second one.
    """

    def __init__(self, store: Any, server: Any) -> None:
        self.round = place.epoch_and_round()
        self.store, self.server = store, server  # the server stays open as long as this
        self.meetings = 0

    def all_in_call(self, store: Any, number: int, world: int) -> bool:
        """Waits for all ranks; whether they are in the same call of elastic.run.

        The sums of the numbers and of their squares tell whether all are equal, at a cost that does not grow with the
        ranks. `store` is the caller's connection: one that can be cut while it waits. A rank that skips calls runs the
        script's own code in between, so the wait is as long as torch's for the members of a group.
        """
        self.meetings += 1
        key = f"petctl/meet-{self.meetings}"
        store.add(f"{key}/sum", number)
        store.add(f"{key}/squares", number * number)
        if store.add(f"{key}/arrived", 1) == world:
            total, squares = store.add(f"{key}/sum", 0), store.add(f"{key}/squares", 0)
            store.set(f"{key}/same", "yes" if world * squares == total * total else "no")
        store.wait([f"{key}/same"], WAIT_FOR_RANKS)
        return bool(store.get(f"{key}/same") == b"yes")


_round_store: Optional[_RoundStore] = None


def is_about_peers(error: BaseException) -> bool:
    """Whether an error can come from the loss of a peer rather than from the script itself."""
    distributed = _distributed()
    return distributed is not None and any(_is_torchs(link, distributed) for link in _chain(error))


def _is_torchs(error: BaseException, distributed: Any) -> bool:
    """torch's own classes, and gloo's errors, which have none but begin with their place in gloo's sources."""
    known = (getattr(distributed, "DistError", ()), CutOff)
    return isinstance(error, known) or (type(error) is RuntimeError and GLOO_PLACE.match(str(error)) is not None)


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
