"""What nodes ask a supervisor about stores: URLs, names, and to hear of their trouble. The same on every cluster.

Stores are asked in threads of its own, never in the coordinator's loop. Trouble with a store costs the results' way
there, never the job; the status says so.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Protocol, Sequence, Set

from petctl.rendezvous.net.calls import LIST, TEXT, Call

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


class Signer(Protocol):
    """What signs: a job's grants, with whatever keys it has now."""

    def sign(self, grant: str, requests: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
        """See storage.core.grants.Grants."""

    def page(self, grant: str, after: str) -> Dict[str, Any]:
        """See storage.core.grants.Grants."""


class Signing:
    """One job's. `signer` is asked for when a node needs it; `event` writes down; `changed` wants a new status."""

    busy = False  # what nodes have left is being sent
    kept = ""  # what the job wrote beside its code, once it is among the results

    def __init__(
        self, any_store: bool, signer: Callable[[], Signer], event: Callable[..., None], changed: Callable[[], None]
    ) -> None:
        self._any_store, self._signer, self._event, self._changed = any_store, signer, event, changed
        self._pool: Optional[ThreadPoolExecutor] = None
        self._problems: Dict[str, str] = {}
        self._told: Set[str] = set()

    def calls(self) -> Dict[str, Call]:
        """What nodes may ask."""
        if not self._any_store:
            return {}
        return {
            "sign": Call(self._sign, {"grant": TEXT, "requests": LIST}, nodes=True),
            "page": Call(self._page, {"grant": TEXT, "after": TEXT}, nodes=True),
            "results": Call(self._hear, {"node": TEXT, "problem": TEXT}, nodes=True),
        }

    def sentence(self) -> str:
        """Why something is not sent, and what was moved to the results, for the status; empty when all is well."""
        parts = [f"not uploaded: {problem}" for problem in self._problems.values()]
        return "; ".join(dict.fromkeys([*parts, self.kept] if self.kept else parts))

    def give_up(self) -> None:
        """The user does not want to wait for anything to be sent."""

    async def send_the_rest(self) -> None:
        """What nodes have left where this process can read it."""

    def note(self, who: str, problem: str) -> None:
        """Somebody cannot send, or (empty) can again."""
        if problem:
            self._problems[who] = problem
        else:
            self._problems.pop(who, None)
        if problem and problem not in self._told:
            self._told.add(problem)
            self._event("results", f"cannot upload results yet: {problem}", node=who)
        self._changed()

    def forget(self, who: str) -> None:
        """Its trouble is somebody else's now."""
        self._problems.pop(who, None)

    async def in_thread(self, act: Callable[[], Any]) -> Any:
        """Runs what may have to wait for a store."""
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(4, "petctl-stores")
        return await asyncio.get_running_loop().run_in_executor(self._pool, act)

    async def _sign(self, grant: str, requests: Sequence[Mapping[str, Any]]) -> object:
        return await self.in_thread(lambda: self._signer().sign(grant, requests))

    async def _page(self, grant: str, after: str) -> object:
        return await self.in_thread(lambda: self._signer().page(grant, after))

    def _hear(self, node: str, problem: str) -> None:
        """A node says why it cannot send, or (empty) that it can again."""
        self.note(node[:100], problem[:1000])
