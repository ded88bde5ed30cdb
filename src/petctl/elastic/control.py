"""The agent's orders to a worker that trains: park now, park at a commit that all agree on, go on elsewhere.

Orders arrive in the channel's thread; the thread that trains meets them at its commits (`arriving`, `passed`), in the
error of a collective that was cut off under it, or while it rests.

    park, not planned   every connection of the groups is cut at once, so that a collective under way fails
    park, planned       the ranks agree on M, the first commit that none of them has passed yet: each promises not to
                        pass its next one before it knows M; rank 0 collects the promises in the round's store and
                        publishes the highest. Nobody is interrupted, nothing is undone. Not at M in time: as above
    bind                this worker will be rank 0: its store is opened now, and all others find it when they start
    run                 the place in the next round

It never touches the State.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from datetime import timedelta
from typing import Any, Deque, Dict, Optional

from petctl.elastic.channel import Channel
from petctl.elastic.groups.groups import Groups

AGREED = "petctl/park"  # where in the store
SOON = 0.01  # seconds in which a cut connection is noticed by whoever waits for it


class Parked(BaseException):
    """Ends the training function because the round ends. No Exception: scripts that catch those must let it through."""

    def __init__(self, rollback: bool) -> None:
        super().__init__("the round ends; elastic.run enters the training function again in the next one")
        self.rollback = rollback  # something after the last commit must be undone


class Control:
    """Between the agent and the thread that trains."""

    def __init__(self, channel: Channel, groups: Groups, round_number: int) -> None:
        self._channel, self._groups = channel, groups
        self._changed = threading.Condition()
        self._round = round_number
        self._over = False
        self._orders: Deque[Dict[str, Any]] = deque()
        self._resting = False
        self._renew()
        for kind, receiver in (("park", self._on_park), ("bind", self._on_bind), ("run", self._on_run)):
            channel.on(kind, receiver)
        channel.send("elastic")

    def _renew(self) -> None:
        self._park: Optional[Dict[str, Any]] = None
        self._cut = False
        self._back = False
        self._releasing: Optional[threading.Thread] = None
        self._training = False
        self._commits = 0
        self._promised: Optional[int] = None
        self._target: Optional[int] = None
        self._arrived = False

    # -- the thread that trains ----------------------------------------------------------------------------------------

    def begin(self, commits: int, store: Optional[Any], rank: int, world: int) -> None:
        """The group stands and all ranks are equal: from here on a planned park can be agreed on."""
        with self._changed:
            self._training = True
            self._commits, self._store, self._rank, self._world = commits, store, rank, world
            self._changed.notify_all()
        self._channel.send("progress", time=time.time())  # from here on this round loses no time any more

    def arriving(self) -> None:
        """Before a commit: what came out of a collective that was cut must not be committed."""
        if self._cut:
            raise Parked(rollback=True)

    def passed(self, commits: int) -> None:
        """After a commit; the one that was agreed on ends the round."""
        with self._changed:
            self._commits = commits
            if self._promised is None or commits < self._promised:
                return
            self._changed.wait_for(lambda: self._cut or self._target is not None)
            if self._cut or (self._target is not None and commits >= self._target):
                self._arrived = True
                self._changed.notify_all()
                raise Parked(rollback=False)

    @property
    def cut_off(self) -> bool:
        """The connections were cut on the agent's order: any error may come from that."""
        return self._cut

    @property
    def final(self) -> bool:
        """There is no next round for this worker."""
        return bool(self._park and self._park.get("final"))

    def await_park(self, seconds: float) -> bool:
        """Whether the agent ends the round within so many seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: self._park is not None, seconds)

    def returned(self) -> None:
        """No collective is under way here any more: nothing needs to be brought back, and groups can be freed."""
        with self._changed:
            self._back = True
            self._changed.notify_all()
            releasing = self._releasing
        if releasing is not None:
            releasing.join()

    def rest(self) -> None:
        """This worker is ready for its next place: tells the agent."""
        with self._changed:
            self._resting = True
            self._channel.send("parked", round=self._round)
            self._changed.notify_all()

    def next_place(self) -> Dict[str, Any]:
        """Waits for the next round."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._orders))
            return self._orders.popleft()

    def close(self) -> None:
        """Training is over: orders are nobody's business any more."""
        with self._changed:
            self._over = True
            self._channel.send("plain")
            self._changed.notify_all()

    # -- the channel's thread ------------------------------------------------------------------------------------------

    def _on_park(self, order: Dict[str, Any]) -> None:
        with self._changed:
            if self._over or order["round"] < self._round:
                return
            self._round = order["round"]
            first = self._park is None
            self._park = order
            self._changed.notify_all()
            if self._resting:
                self._channel.send("parked", round=self._round)
                return
        if not order.get("planned"):
            self._cut_off()
        elif first:
            threading.Thread(target=self._agree, args=(order,), name="petctl-agreement", daemon=True).start()

    def _on_bind(self, order: Dict[str, Any]) -> None:
        self._channel.send("bound", round=order["round"], port=self._groups.bind())

    def _on_run(self, order: Dict[str, Any]) -> None:
        with self._changed:
            self._groups.renew()
            self._renew()
            self._resting = False
            self._round = order["round"]
            self._orders.append(order)
            self._changed.notify_all()

    def _cut_off(self) -> None:
        with self._changed:
            if self._over or self._back:
                return
            self._cut = True
            self._changed.notify_all()
            round_number = self._round
        self._channel.send("aborting", round=round_number)
        try:
            self._groups.cut()
        finally:  # torch may refuse what the main thread takes down at the same moment; that one must come back anyway
            self._channel.send("aborted", round=round_number)
            with self._changed:
                if not self._back and self._releasing is None:
                    self._releasing = threading.Thread(target=self._bring_back, name="petctl-release", daemon=True)
                    self._releasing.start()

    def _bring_back(self) -> None:
        """A cut connection ends most waits at once; the others are ended here, until the main thread is back."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._back or self._over, SOON):
                    return
            self._groups.release()

    # -- the agreement's thread ----------------------------------------------------------------------------------------

    def _agree(self, order: Dict[str, Any]) -> None:
        end = time.monotonic() + float(order.get("within") or 0)

        def superseded() -> bool:
            return self._cut or self._over or self._round != order["round"] or self._resting

        with self._changed:
            self._changed.wait_for(lambda: self._training or superseded(), end - time.monotonic())
            if superseded():
                return
            if self._training:
                self._promised = self._commits + 1
        try:
            target = self._highest_promise(end - time.monotonic())
        except RuntimeError:  # a peer is lost, or its main thread has not joined in time
            target = None
        with self._changed:
            if target is not None and not superseded():
                self._target = target
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._arrived or superseded(), end - time.monotonic())
            if self._arrived or superseded():
                return
        self._cut_off()

    def _highest_promise(self, seconds: float) -> Optional[int]:
        """The commit that no rank has passed yet; rank 0, which has the store, returns last."""
        store, promised = self._store, self._promised
        if promised is None or store is None or self._world == 1:
            return promised
        store.set_timeout(timedelta(seconds=max(seconds, 0.001)))
        if self._rank:
            store.set(f"{AGREED}/{self._rank}", str(promised))
            target = int(store.get(f"{AGREED}/target"))
            if store.add(f"{AGREED}/heard", 1) == self._world - 1:
                store.set(f"{AGREED}/all", "heard")
            return target
        others = [f"{AGREED}/{rank}" for rank in range(1, self._world)]
        store.wait(others)
        target = max(promised, *map(int, store.multi_get(others)))
        store.set(f"{AGREED}/target", str(target))
        store.wait([f"{AGREED}/all"])
        return target
