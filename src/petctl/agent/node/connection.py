"""Keeps a node connected to its job's coordinator, whichever that is at the moment, and brings a local one back.

The locator is resolved before every attempt; attempts are spaced 0.05 s, doubling up to 1 s, and no further than 0.2 s
in the first seconds, when a coordinator is about to be there. The way to it may be made meanwhile, and a network that
is being told of it may swallow what is sent in that moment, for as long as the attempt lasts. So the first attempt that
nobody answers is a short one, and the next twice as long. A coordinator that takes the connection and does not come to
the proof in time has many at its door: the next attempt waits twice as long for it. The nodes of a large job do not
all come back in the same moment: each waits a random while that grows with their number.

When the job's own cluster says how (`revive` in the join file), a node that cannot connect has a new supervisor
started: whoever gets the lock does it, the others just go on trying. When the join file says where the job's end is
recorded (`outcome` in its locator), a node that cannot connect looks there. One that joins by hand, from where nothing
tells a job that is over from one whose coordinator is being replaced, does not try for long.

What is said over the connection is none of its business.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

from petctl.errors import ProtocolError, Unreachable, UsageError
from petctl.files import release, take_lock
from petctl.rendezvous.core.messages import Outcome, decode_outcome
from petctl.rendezvous.net import client
from petctl.rendezvous.net.client import AgentLink
from petctl.rendezvous.net.join_file import JoinFile

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_HURRY, _HURRIED_PAUSE = 10.0, 0.2  # for so many seconds without a coordinator, no longer pause than this
_FIRST_PATIENCE = 0.25  # seconds for a machine to answer
_LONGEST_ATTEMPT = 40.0  # seconds for a proof, where attempts were in vain
_ADMITTED = 2000.0  # nodes that a coordinator lets in per second, or a little more
_CROWD = 64  # nodes; so many may come in the same moment
_REVIVE_AFTER = 0.1  # seconds without a coordinator
_REVIVAL_TAKES = 5.0  # seconds that a new supervisor gets before somebody may start another
_GIVE_UP_AFTER = 600.0  # seconds without ever having been connected ...
_GIVE_UP_BY_HAND = 30.0  # ... to an address at which there was a coordinator when the join file was written

Spawn = Callable[[List[str], str], None]

log = logging.getLogger(__name__)


class Revival:
    """Has a new supervisor started, by at most one node at a time."""

    def __init__(self, revive: Mapping[str, Any], spawn: Spawn) -> None:
        argv, lock = revive.get("argv"), revive.get("lock")
        if not isinstance(argv, list) or not argv or not isinstance(lock, str):
            raise UsageError(
                "the join file's 'revive' needs an 'argv' and a 'lock'; `petctl token JOB` writes a new one"
            )
        self._argv, self._lock_path = [str(word) for word in argv], lock
        self._spawn = spawn
        self._lock = -1
        self._until = 0.0

    def attempt(self, now: float) -> bool:
        """Starts one if nobody else is doing so; whether it did."""
        if self._lock >= 0:
            if now < self._until:
                return False
            self.end()
        try:
            lock = take_lock(self._lock_path, within=0.0)
        except OSError:
            return False  # the job's directory is gone
        if lock is None:
            return False
        self._lock, self._until = lock, now + _REVIVAL_TAKES
        self._spawn(self._argv, os.path.join(os.path.dirname(self._lock_path), "supervisor.log"))
        return True

    def end(self) -> None:
        """Lets others try."""
        if self._lock >= 0:
            release(self._lock)
            self._lock = -1


class Connection:
    """One node's connection, for the life of its agent.

    on_connected(welcome), on_message(message), on_lost() and, where no coordinator is left to tell it, on_over(outcome)
    are called in the agent's loop; `run` ends only by ProtocolError or Unreachable before the first welcome.
    """

    def __init__(
        self,
        join: JoinFile,
        spawn: Spawn,
        on_connected: Callable[[Dict[str, Any]], None],
        on_message: Callable[[Dict[str, Any]], None],
        on_lost: Callable[[], None],
        on_over: Callable[[Outcome], None] = lambda outcome: None,
    ) -> None:
        self._join = join
        self._link = AgentLink(join)
        self._revival: Optional[Revival] = Revival(join.revive, spawn) if join.revive else None
        self._on_connected, self._on_message, self._on_lost = on_connected, on_message, on_lost
        self._on_over = on_over
        self.nodes = 1  # of the round that this node is a member of
        self._welcomed = False
        self._patience = _GIVE_UP_BY_HAND if "address" in join.locator else _GIVE_UP_AFTER

    async def run(self) -> None:
        """Connects, delivers, and connects again."""
        while True:
            welcome = await self._connect()
            self._on_connected(welcome)
            try:
                while True:
                    self._on_message(await self._link.receive())
            except (Unreachable, ProtocolError) as error:
                log.info("%s; connecting again", error)
            self._link.close()
            self._on_lost()

    def send(self, message: Mapping[str, Any]) -> None:
        """Never waits; lost when there is no connection."""
        self._link.send(message)

    def drop(self) -> None:
        """Ends the connection after what was sent; `run` makes a new one."""
        self._link.close()

    async def _connect(self) -> Dict[str, Any]:
        loop = asyncio.get_running_loop()
        since, pause, patience = loop.time(), _FIRST_PAUSE, _FIRST_PATIENCE
        told, within = "", client.CONNECT_WITHIN
        await asyncio.sleep(_jitter(self.nodes))
        while True:
            begun = loop.time()
            try:
                welcome = await self._link.connect(patience, within)
                break
            except ProtocolError as error:
                if not self._welcomed:
                    raise
                reason = str(error)
            except Unreachable as error:
                reason = str(error)
            outcome = self._recorded_end()
            if outcome is not None:
                self._on_over(outcome)
                await loop.create_future()  # the agent ends, and this with it
            waited = loop.time() - since
            if not self._welcomed and waited > self._patience:
                job = self._join.job
                raise Unreachable(
                    f"{reason}; gave up after {waited:.0f} s. `petctl status {job}` shows whether the "
                    f"job has ended; if not, `petctl token {job}` writes a new join file"
                )
            if reason != told and waited > _REVIVE_AFTER:
                told = reason
                log.info("%s; trying again", reason)
            if self._revival is not None and waited >= _REVIVE_AFTER and self._revival.attempt(loop.time()):
                log.info("started a new supervisor for the job")
                pause = _FIRST_PAUSE
            if loop.time() >= begun + within:
                within = min(2 * within, _LONGEST_ATTEMPT)
            if loop.time() >= begun + patience:
                patience = min(2 * patience, client.CONNECT_WITHIN)
            await asyncio.sleep(pause * random.uniform(0.8, 1.0) + _jitter(self.nodes))
            pause = min(2 * pause, _HURRIED_PAUSE if waited < _HURRY else _LONGEST_PAUSE)
        if self._revival is not None:
            self._revival.end()
        self._welcomed = True
        return welcome

    def _recorded_end(self) -> Optional[Outcome]:
        """How the job ended, where that can be looked up."""
        place = self._join.locator.get("outcome")
        if place is None:
            return None
        try:
            return decode_outcome(json.loads(Path(place).read_bytes()))
        except (OSError, ValueError, ProtocolError):
            pass
        if not self._welcomed and not Path(place).parent.exists():
            raise Unreachable(f"{self._join.job} has ended and was removed")
        return None


def _jitter(nodes: int) -> float:
    """Seconds to wait before an attempt, so that a coordinator can let in so many one after the other."""
    return random.uniform(0.0, nodes / _ADMITTED) if nodes > _CROWD else 0.0
