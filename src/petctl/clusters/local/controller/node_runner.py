"""Keeps a job's nodes: starts the missing ones, adopts those that outlived a supervisor, replaces the dead, lets the
rest go.

One coroutine per node, because a node's life is a sequence: start (or adopt), wait for its end, clean up behind it,
and again for as long as it is wanted. A node's end is seen through its guardian's pidfd, so a child and an adopted
stranger are watched in the same way. A replacement is started only when nothing of its predecessor is left: two
agents of one name would fight.

It must not decide who takes part in a round: it tells the coordinator whom to expect, and hears from it who was lost.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence

from petctl.agent.node.guardian import CGROUPS
from petctl.clusters.local.commands import node_argv
from petctl.clusters.local.controller.standby import end_of
from petctl.clusters.local.job_directory import JobDirectory
from petctl.clusters.local.processes import sweep
from petctl.clusters.local.record import LocalRequest
from petctl.controller.journals.journal import Journal
from petctl.controller.nodes import Nodes
from petctl.job.record import JobRecord
from petctl.rendezvous.core.events import End, Expect, Roster, Unexpect
from petctl.rendezvous.core.messages import ENDED_FAILED, Outcome
from petctl.text import counted

START_PATIENCE = 30.0  # how long a round waits for nodes that the user asked for
REPLACE_PATIENCE = 1.0  # ... and for one that replaces a lost node: the others could be training
CONTAINER_PATIENCE = 3.0  # ... in a container, which takes an engine a moment longer
SHORT_LIFE = 10.0  # a node that dies sooner than this is started again more slowly each time
BACKOFF = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
JOINED_BACKOFF = 1.0  # at most, for one that had joined: it can work, and was killed
LINGER = 0.5  # a lost node may end by itself for so long; then it is killed
SIGNALS = 128  # exit codes from here on: somebody killed it
STUCK = 30.0  # a container engine that has not started a node by then will not
LOCK_STEP = 0.005
ADOPTION_STEP = 0.05  # between two looks at a node that holds its lock but has not written its process id yet


@dataclass
class LocalNode:
    """One node as its keeper sees it."""

    name: str
    wanted: bool = True
    pid: int = 0  # of its guardian; 0: there is none
    incarnation: str = ""  # of its agent, once that has joined
    started: float = 0.0  # monotonic
    log_from: int = 0  # where this life's part of its log begins
    short_lives: int = 0
    sentence: str = "starting"
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: Optional[asyncio.Task[None]] = None


class NodeRunner(Nodes):
    """All nodes that this machine runs for one job; how many there should be says `local_nodes.py`."""

    kill_wait = 0.0

    def __init__(self, directory: JobDirectory, journal: Journal, record: JobRecord, request: LocalRequest) -> None:
        super().__init__(record.id, record.config)
        self.directory, self.journal = directory, journal
        self.limits = request.limits  # of a node that is no container
        self.container = request.container  # how the nodes' containers are started; empty: they are processes
        self.patience = CONTAINER_PATIENCE if self.container else REPLACE_PATIENCE
        self.nodes: Dict[str, LocalNode] = {}
        self.closing = False
        self.image: Optional[asyncio.Task[Optional[Outcome]]] = None  # getting it
        self.empty = asyncio.Event()
        self.empty.set()

    def options(self, name: str) -> Sequence[str]:
        """More words for a node's agent."""
        raise NotImplementedError

    def take_over(self, wanted: Iterable[str]) -> None:
        """Adopts nodes that outlived the last supervisor; those that are not wanted any more are let go."""
        names = set(wanted)
        for name in self.directory.node_names():
            if self.directory.node_alive(name):
                self._keep(LocalNode(name, wanted=name in names))
        self.step(Roster((*self.nodes, *self._guests())))

    def want(self, names: Sequence[str], patience: float = START_PATIENCE) -> None:
        """Makes these the nodes to keep; others are kept no longer, and end when the coordinator releases them."""
        missing = [name for name in names if name not in self.nodes]
        if missing:
            self.step(Expect(tuple(missing), patience))
        for node in self.nodes.values():
            node.wanted = node.name in names
            node.changed.set()
        for name in missing:
            self._keep(LocalNode(name))
        self.journal.touch()

    def close(self) -> None:
        self.closing = True
        if self.image is not None:
            self.image.cancel()
        for node in self.nodes.values():
            node.changed.set()

    def kill(self) -> None:  # what their workers leave is swept as after any death
        for node in self.nodes.values():
            self._kill(node)

    def joined(self, name: str, incarnation: str) -> None:  # its loss will be this life's, not that of one before
        if name in self.nodes:
            self.nodes[name].incarnation = incarnation
            if self.container:  # until now it was that of the engine's client
                self.nodes[name].pid = self.directory.guardian(name) or self.nodes[name].pid

    def lost(self, name: str, incarnation: str) -> None:
        """Makes sure that the node is really dead, or lets it prove that it is not."""
        node = self.nodes.get(name)
        if node is None or node.incarnation != incarnation:
            return
        if node.wanted and not self.closing and not _delay(node):
            self.step(Expect((name,), self.patience))  # at once, so that the next round does not start without it
        if node.pid:
            asyncio.get_running_loop().call_later(LINGER, self._kill_node, node, node.pid, incarnation)

    def rows(self) -> Dict[str, Dict[str, Any]]:
        restarts = self.journal.history.restarts
        return {
            node.name: {"pid": node.pid, "restarts": restarts.get(node.name, 0), "sentence": node.sentence}
            for node in self.nodes.values()
        }

    def _guests(self) -> List[str]:
        """Members of the last round that joined by hand: only they themselves can tell whether they live."""
        own = set(self.directory.node_names())
        return [name for name in self.journal.history.members if name not in own]

    # -- one node's life -----------------------------------------------------------------------------------------------

    def _keep(self, node: LocalNode) -> None:
        self.nodes[node.name] = node
        self.empty.clear()
        node.task = asyncio.get_running_loop().create_task(self._life(node))

    async def _life(self, node: LocalNode) -> None:
        again = False
        try:
            while await self._adopt_or_start(node, again):
                self.step(Roster((*(other.name for other in self.nodes.values() if other.pid), *self._guests())))
                node.sentence = "cleaning up"
                await self._clean_up(node)
                again = True
                if not await self._may_start_again(node):
                    break
        finally:
            del self.nodes[node.name]
            if not self.nodes:
                self.empty.set()
            self.journal.touch()

    async def _adopt_or_start(self, node: LocalNode, again: bool) -> bool:
        """Returns when the node's guardian has ended; False when there was none and none is wanted."""
        node.started, node.incarnation = time.monotonic(), ""
        if self.directory.node_alive(node.name):
            await self._attend(node)
            return True
        if not node.wanted or self.closing:
            return False
        if self.container and not await self._have_image(node):
            return False
        if self.container and not again and self.directory.node(node.name).exists():
            await self._clean_up(node)  # the last supervisor was killed while the engine was at work
        try:
            process = self._start(node, again)
        except OSError as error:  # no memory, no process to be had: it may be better in a while
            self.journal.event("node", f"cannot start node {node.name}: {error}", node=node.name)
            return True
        await end_of(process.pid)
        code = process.wait()
        if self.container and self.directory.node_alive(node.name):
            await self._attend(node)  # it was the engine's client that was killed
        elif self.container and not node.incarnation:
            self._give_up(node, code)
        node.pid = 0
        if not self.closing:
            sentence = f"node {node.name} exited with code {code}"
            self.journal.event("node", sentence, node=node.name, code=code, seconds=_age(node))
        return True

    async def _have_image(self, node: LocalNode) -> bool:
        """Waits for the image, which is got once for all nodes; False when it cannot be had, or the job is over."""
        from petctl.clusters.local.containers.images import fetch_image

        def say(sentence: str) -> None:
            node.sentence = sentence
            self.journal.event("image", sentence)

        if self.image is None:
            self.image = asyncio.get_running_loop().create_task(fetch_image(self.container, self.directory, say))
        if not self.image.done():
            await asyncio.wait({self.image})
            self.step(Expect((node.name,), START_PATIENCE))
        if self.closing or self.image.cancelled():
            return False
        outcome = self.image.result()
        if outcome is not None:
            self.step(End(outcome))
        return outcome is None and node.wanted

    async def _attend(self, node: LocalNode) -> None:
        """Until a node has ended that is nobody's child here."""
        pid = await self._guardian_of(node)
        if pid:
            node.pid, node.sentence = pid, "joining"
            self.journal.event("node", f"node {node.name} keeps running (pid {pid})", node=node.name, pid=pid)
            await end_of(pid)
        node.pid = 0

    def _give_up(self, node: LocalNode, code: int) -> None:
        """A container that cannot even start an agent is the image's fault, or the engine's: the next would do the
        same. Unless one has joined before, or somebody killed this one."""
        if not 0 < code < SIGNALS or self.journal.history.rounds or self.closing:
            return
        from petctl.clusters.local.containers.node_containers import why_not_started

        with open(self.directory.node(node.name) / "agent.log", "rb") as log:
            log.seek(node.log_from)
            said = log.read()
        self.step(End(Outcome(ENDED_FAILED, code, why_not_started(self.container, code, said))))

    async def _guardian_of(self, node: LocalNode) -> int:
        """The process id of an adopted node's guardian, once it has written it."""
        while self.directory.node_alive(node.name):
            pid = self.directory.guardian(node.name)
            if pid and _exists(pid):
                return pid
            if not pid and time.monotonic() > node.started + REPLACE_PATIENCE:
                break
            if pid:  # the guardian is dead and its agent still holds the lock: it is on its way out
                break
            await asyncio.sleep(ADOPTION_STEP)
        return 0

    def _start(self, node: LocalNode, again: bool) -> subprocess.Popen[bytes]:
        state = self.directory.node(node.name)
        state.mkdir(parents=True, exist_ok=True)
        number = 1 + self.journal.history.restarts.get(node.name, 0) + again
        argv = node_argv(self.directory, node.name, self.options(node.name), self.container, number)
        env = {**os.environ, CGROUPS: "\n".join(self._limited(node.name, state))} if self.limits else None
        with open(state / "agent.log", "ab", buffering=0) as log:
            node.log_from = log.tell()
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True, env=env
            )
        node.pid, node.sentence = process.pid, "joining"
        if again:
            self.step(Expect((node.name,), self.patience))
        sentence = f"started node {node.name} {'again ' if again else ''}(pid {process.pid})"
        self.journal.event("node", sentence, node=node.name, pid=process.pid, restart=again)
        return process

    def _limited(self, name: str, state: Path) -> List[str]:
        """The control groups for it; none, with a word about it, where they cannot be made any more."""
        from petctl.clusters.local.controller import cgroups

        try:
            return cgroups.make(state, self.limits)
        except OSError as error:
            self.journal.event("node", f"node {name} runs without its limits: {error}", node=name)
            return []

    async def _clean_up(self, node: LocalNode) -> None:
        """Until nothing of the node's last life is left, its lock included."""
        job, nodes = self.directory.id, self.directory.nodes
        loop = asyncio.get_running_loop()
        ended = await loop.run_in_executor(None, sweep, job, nodes, node.name)
        if ended:
            sentence = f"ended {counted(ended, 'process', 'processes')} that node {node.name} left"
            self.journal.event("node", sentence, node=node.name)
        if self.container:
            from petctl.clusters.local.containers.node_containers import remove_containers

            why_not = await loop.run_in_executor(None, remove_containers, self.container, job, node.name)
            if why_not:
                self.journal.event("node", why_not, node=node.name)
        deadline = time.monotonic() + REPLACE_PATIENCE
        while self.directory.node_alive(node.name) and time.monotonic() < deadline:
            await asyncio.sleep(LOCK_STEP)  # a process on its way out is past finding before it lets go of its files

    async def _may_start_again(self, node: LocalNode) -> bool:
        delay = _delay(node)
        node.short_lives = 1 if _age(node) >= SHORT_LIFE else node.short_lives + 1
        until = time.monotonic() + delay
        while node.wanted and not self.closing and time.monotonic() < until:
            log = self.directory.node(node.name) / "agent.log"
            node.sentence = f"ended {node.short_lives} times in a row, restarting in {delay:g} s; see {log}"
            self.journal.touch()
            node.changed.clear()
            try:
                await asyncio.wait_for(node.changed.wait(), until - time.monotonic())
            except asyncio.TimeoutError:
                pass
        if not node.wanted:
            self.step(Unexpect((node.name,)))
        return node.wanted and not self.closing

    # -- ending --------------------------------------------------------------------------------------------------------

    async def until_ended(self, within: float, uploading: Callable[[], bool]) -> None:
        while not self.empty.is_set():
            try:
                await asyncio.wait_for(self.empty.wait(), within)
            except asyncio.TimeoutError:
                if uploading():
                    continue  # they give up by themselves when nothing moves any more
                self.journal.event("node", f"killing nodes that did not end within {within:g} s")
                self.kill()
                await self.empty.wait()

    def _connected(self, name: str, incarnation: str) -> bool:
        node = self.machine.nodes.get(name)
        return node is not None and node.connected and node.report.incarnation == incarnation

    def _kill_node(self, node: LocalNode, pid: int, incarnation: str) -> None:
        alive = self.directory.node_alive(node.name)  # if not, only its container's end has not been seen
        if node.pid == pid and alive and not self._connected(node.name, incarnation):
            self.journal.event(
                "node", f"killed lost node {node.name}, which was still running (pid {pid})", node=node.name
            )
            self._kill(node)

    def _kill(self, node: LocalNode) -> None:
        # Its end has not been seen, and it is a child or was adopted under its lock: the number is still its own.
        alive = self.directory.node_alive(node.name)
        if node.pid and (alive or (self.container and _age(node) > STUCK)):
            pid = self.directory.guardian(node.name) if self.container and alive else node.pid
            try:
                os.kill(pid or node.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


def _delay(node: LocalNode) -> float:
    """How long to wait before it is started again: longer each time it dies young, less where it had joined."""
    lives = 0 if _age(node) >= SHORT_LIFE else node.short_lives
    delay = BACKOFF[min(lives, len(BACKOFF) - 1)]
    return min(delay, JOINED_BACKOFF) if node.incarnation else delay


def _age(node: LocalNode) -> float:
    return round(time.monotonic() - node.started, 3)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
