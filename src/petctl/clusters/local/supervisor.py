"""The process that looks after one local job: `python -m petctl.clusters.local.supervisor JOBDIR`.

    lock -> epoch -> in line for slots -> coordinator + node keeper in one loop -> outcome -> nodes gone -> slots back

It outlives the command that started it. Killed at any moment, it is started again by one of the job's agents, and
takes up where its files and the nodes' reports say the job is; the lock keeps it the only one. Everything about who
trains with whom is the coordinator's; everything about processes is the keeper's; this file connects them and obeys
the user.

Standard library and petctl's own agent side only: its start-up is part of every job's first line.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from petctl.clusters.local.gpus import gpu_options
from petctl.clusters.local.jobdir import (
    JobDirectory,
    raise_epoch,
    read_json,
    take_lock,
    write_json,
    write_once,
    write_text,
)
from petctl.clusters.local.keeper import REPLACE_PATIENCE, START_PATIENCE, NodeKeeper
from petctl.clusters.local.processes import boot_id, sweep
from petctl.clusters.local.recorder import Recorder
from petctl.clusters.local.secrets import secret_values
from petctl.clusters.local.slots import Slots
from petctl.errors import PetctlError, UsageError
from petctl.rendezvous.coordinator import CoordinatorServer
from petctl.rendezvous.machine import GATHERING, RUNNING, Config, Coordinator, End, Event, Lost, Scale
from petctl.rendezvous.messages import CANCELLED, ENDED_FAILED, Outcome, decode_outcome, encode
from petctl.rendezvous.wire import PLAIN

QUEUE_STEP = 0.2  # seconds between two looks at the queue
GROW_STEP = 1.0  # ... and at free slots for a job that runs below its wanted size
LAST_PATIENCE = 10.0  # beyond the grace: then nodes that do not go are killed

log = logging.getLogger("petctl.supervisor")


class ObservedCoordinator(Coordinator):
    """The machine, and somebody who looks at it after every decision."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.observe: Callable[[], None] = lambda: None
        super().__init__(*arguments, **options)

    def settle(self, now: float) -> List[object]:
        effects = super().settle(now)
        self.observe()
        return effects


class Supervisor:
    """One job's life on this machine, from its place in the queue to the end of its last process."""

    def __init__(self, directory: JobDirectory, record: Dict[str, Any], epoch: int) -> None:
        self.directory, self.record, self.plan, self.epoch = directory, record, record["plan"], epoch
        self.size = Config(**self.plan["config"])
        self.wanted = self._read_wanted()
        self.granted = 0
        self.recorder = Recorder(directory, record)
        jobs = directory.path.parent
        self.slots = Slots(directory.home, self.plan["slots"], lambda job: JobDirectory(jobs / job).alive())
        self.machine: Optional[ObservedCoordinator] = None
        self.outcome = _read_outcome(directory)
        self.finished = time.time()
        self.over = asyncio.Event()
        self.kill_wanted = False

    async def run(self) -> None:
        """The whole life; returns when nothing of the job is left."""
        sentence = await self._wait_in_line()
        if sentence:
            self._settle_without_nodes(Outcome(CANCELLED, 130, sentence))
            return
        try:
            task = {**self.plan["task"], "secrets": secret_values(self.directory.home, self.plan["secrets"])}
        except PetctlError as error:
            self._settle_without_nodes(Outcome(ENDED_FAILED, error.code, str(error)))
            return
        await self._look_after({"task": task})

    # -- in line -------------------------------------------------------------------------------------------------------

    async def _wait_in_line(self) -> str:
        """Until slots are ours; the sentence of a cancellation that came first."""
        job = self.directory.id
        self.slots.enter(job, self.plan["priority"], self.size.min_nodes)
        while self.outcome is None:
            if self.directory.cancel.exists():
                if not self.recorder.history.started:
                    return "cancelled while it was queued"
                break  # it has nodes: they are to be stopped properly
            self.wanted = self._read_wanted()
            standing = self.slots.claim(job, self.wanted)
            self.granted = standing.granted
            if self.granted:
                break
            self._say_state("queued", standing.sentence())
            await asyncio.sleep(QUEUE_STEP)
        if self.outcome is None and not self.recorder.history.started:
            self.recorder.event(
                "started", f"{job} starts with {self.granted} of {self.wanted} node(s)", nodes=self.granted
            )
        return ""

    def _say_state(self, state: str, sentence: str) -> None:
        if sentence != self.recorder.status["sentence"]:
            self.recorder.picture = lambda: {"state": state, "sentence": sentence, "epoch": self.epoch}
            self.recorder.write()

    def _settle_without_nodes(self, outcome: Outcome) -> None:
        self._record(outcome)
        self.recorder.event("closing", f"{outcome.state}: {outcome.sentence}")
        self._bow_out()

    # -- at work -------------------------------------------------------------------------------------------------------

    async def _look_after(self, welcome: Dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        fresh = self.epoch == 1
        config = Config(**{**self.plan["config"], "wanted": self.wanted})
        machine = ObservedCoordinator(config, loop.time(), secrets.token_hex(8), self.epoch, fresh, self.outcome)
        control: Dict[str, Callable[..., object]] = {"scale": self._scale, "cancel": self._cancel}
        tls, binding = self._tls()
        token = self.directory.token.read_text().strip()
        self.server = CoordinatorServer(machine, token, welcome, self._record, self._on_effect, control, tls, binding)
        self.keeper = NodeKeeper(self.directory, self.recorder, self._node_options, self.server.step, self._connected)
        await self._listen()
        self.machine = machine
        self.recorder.picture = self._picture
        machine.observe = self.recorder.touch
        self.keeper.adopt(self._names())
        if self.outcome is None:
            self.keeper.want(self._names(), START_PATIENCE if fresh else REPLACE_PATIENCE)
            if self.directory.cancel.exists():
                self._cancel(bool((read_json(self.directory.cancel) or {}).get("kill")))
        else:
            self._close_nodes()
        watch = [loop.create_task(self._grow()), loop.create_task(self._limit_time())]
        await self.over.wait()
        await self._until_gone()
        for task in watch:
            task.cancel()
        self._bow_out()
        self.server.close()
        await asyncio.sleep(0)  # the last words are written before the loop ends

    async def _listen(self) -> None:
        """On the port of the last supervisor if it is still free, so that join files given out keep working."""
        host = self.plan["listen"]
        known = read_json(self.directory.coordinator) or {}
        last = int(str(known.get("address", ":0")).rpartition(":")[2] or 0)
        try:
            _, port = await self.server.listen(host, last)
        except OSError:
            _, port = await self.server.listen(host, 0)
        address = f"{self.plan['address']}:{port}"
        place = {"address": address, "pid": os.getpid(), "epoch": self.epoch, "boot": boot_id()}
        write_json(self.directory.coordinator, place)

    def _tls(self) -> Any:
        if not self.directory.certificate.exists():
            return None, PLAIN
        from petctl.rendezvous.tls import certificate_pin, server_context

        context = server_context(self.directory.certificate, self.directory.key)
        return context, certificate_pin(self.directory.certificate)

    def _node_options(self, name: str) -> List[str]:
        options = gpu_options(int(name), self.plan["gpus"], self.plan["devices"])
        return options if self.plan["address"] == "127.0.0.1" else ["--address", self.plan["address"], *options]

    def _connected(self, name: str, incarnation: str) -> bool:
        assert self.machine is not None
        node = self.machine.nodes.get(name)
        return node is not None and node.connected and node.report.incarnation == incarnation

    def _on_effect(self, effect: object) -> None:
        if isinstance(effect, Lost):
            self.keeper.lost(effect.node, effect.incarnation)
        elif isinstance(effect, Event) and not (self.outcome is not None and effect.kind == "lost"):
            data = dict(effect.data)
            if effect.kind == "running" and self.machine is not None:
                procs = {name: node.report.procs for name, node in self.machine.nodes.items()}
                places = self.machine.places.items()
                data["members"] = {name: [place.first_rank, procs.get(name, 0)] for name, (_, place) in places}
            self.recorder.event(effect.kind, effect.sentence, **data)
            if effect.kind in ("continued", "round") and self.machine and self.machine.wanted != self.wanted:
                # The wish was written down, but the last supervisor died before the nodes heard of it.
                self.server.step(Scale(self.wanted, self._surplus()))

    def _picture(self) -> Dict[str, Any]:
        assert self.machine is not None
        facts = self.machine.status()
        kept = self.keeper.rows()
        rows = []
        for node in facts["nodes"]:
            own = kept.pop(node["name"], {"pid": 0, "restarts": 0})
            first, procs = node["first_rank"], node["procs"]
            rows.append(
                {
                    "name": node["name"],
                    "address": node["address"],
                    "state": node["state"],
                    "rank": node["rank"],
                    "ranks": list(range(first, first + procs)) if first is not None else [],
                    "restarts": own["restarts"],
                    "pid": own["pid"],
                    "sentence": node["note"],
                }
            )
        for name, own in kept.items():
            rows.append({"name": name, "address": "", "state": "starting", "rank": None, "ranks": [], **own})
        rows.sort(key=lambda row: (len(row["name"]), row["name"]))
        sentence = facts["sentence"]
        if self.outcome is not None:
            sentence = f"ending ({self.outcome.sentence}): {len(rows)} node(s) are stopping"
        elif self.granted < self.wanted:
            sentence += f"; {self.granted} of {self.wanted} nodes have slots"
        return {
            "state": self._state(facts["phase"]),
            "sentence": sentence,
            "size": {"min": self.size.min_nodes, "wanted": self.wanted, "max": self.size.max_nodes},
            "round": facts["round"],
            "epoch": facts["epoch"],
            "spent": facts["spent"],
            "world_size": facts["world_size"],
            "nodes": rows,
        }

    def _state(self, phase: str) -> str:
        ran = bool(self.recorder.history.rounds)
        if phase == RUNNING:
            return "running"
        if phase == GATHERING:
            return "recovering" if ran else "starting"
        # Neither a new coordinator that finds its feet nor a job that winds down changes what the workers do.
        last = str(self.recorder.status["state"])
        return last if last in ("starting", "running", "recovering") else "running" if ran else "starting"

    # -- what the user wants -------------------------------------------------------------------------------------------

    def _scale(self, wanted: int) -> str:
        size = self.size
        if not size.min_nodes <= wanted <= size.max_nodes:
            raise UsageError(
                f"{self.directory.id} may have {size.min_nodes} to {size.max_nodes} nodes, not {wanted}; "
                "a job's bounds are set when it is submitted"
            )
        if self.outcome is not None:
            raise UsageError(f"{self.directory.id} is ending: {self.outcome.sentence}")
        before, self.wanted = self.wanted, wanted
        write_text(self.directory.wanted, f"{wanted}\n", durable=True)
        if wanted < self.granted:
            self.slots.keep(self.directory.id, wanted)
            self.granted = wanted
        else:
            self.granted = self.slots.claim(self.directory.id, wanted).granted
        self.server.step(Scale(wanted, self._surplus()))
        self.keeper.want(self._names())
        sentence = f"scaling from {before} to {wanted} nodes" if before != wanted else f"already at {wanted} nodes"
        return (
            sentence
            if self.granted >= wanted
            else f"{sentence}; {self.granted} have slots now, the rest when slots are free"
        )

    def _cancel(self, kill: bool = False) -> str:
        if kill:
            self.kill_wanted = True
        if self.outcome is None:
            self.server.step(End(Outcome(CANCELLED, 130, "killed by the user" if kill else "cancelled by the user")))
        elif kill:
            self.keeper.kill()
        return "cancelling" if not kill else "killing"

    async def _grow(self) -> None:
        """Takes slots that become free while the job runs below its wanted size."""
        while True:
            await asyncio.sleep(GROW_STEP)
            if self.granted < self.wanted and self.outcome is None:
                granted = self.slots.claim(self.directory.id, self.wanted).granted
                if granted > self.granted:
                    self.granted = granted
                    self.recorder.event("slots", f"{granted} of {self.wanted} nodes have slots now", nodes=granted)
                    self.server.step(Scale(self.wanted))
                    self.keeper.want(self._names())

    async def _limit_time(self) -> None:
        limit = self.plan["max_time"]
        if limit:
            started = self.recorder.history.started or time.time()
            await asyncio.sleep(max(0.0, started + limit - time.time()))
            self.server.step(End(Outcome(ENDED_FAILED, 124, f"over the time limit of {limit:g} s")))

    def _names(self) -> List[str]:
        return [str(index) for index in range(min(self.wanted, self.granted or self.wanted))]

    def _surplus(self) -> Any:
        names = set(self._names())
        return tuple(name for name in self.directory.node_names() if name not in names)

    def _read_wanted(self) -> int:
        try:
            return int(self.directory.wanted.read_text())
        except (FileNotFoundError, ValueError):
            return self.size.wanted

    # -- the end -------------------------------------------------------------------------------------------------------

    def _record(self, outcome: Outcome) -> None:
        """Makes the end durable; after this the job is over, whoever is killed next."""
        self.finished = time.time()
        self.recorder.freeze()
        write_once(self.directory.outcome, {**encode(outcome), "finished": self.finished})
        self.outcome = _read_outcome(self.directory)
        if self.machine is not None:
            self._close_nodes()

    def _close_nodes(self) -> None:
        self.keeper.close()
        if self.kill_wanted:
            self.keeper.kill()
        self.over.set()

    async def _until_gone(self) -> None:
        """Nodes end by themselves when they hear of the close; those that do not are killed."""
        patience = self.plan["task"]["grace"] + LAST_PATIENCE
        try:
            await asyncio.wait_for(self.keeper.empty.wait(), patience)
        except asyncio.TimeoutError:
            self.recorder.event("node", f"nodes that did not end within {patience:g} s are killed")
            self.keeper.kill()
            await self.keeper.empty.wait()

    def _bow_out(self) -> None:
        assert self.outcome is not None
        sweep(self.directory.id, self.directory.nodes)
        self.slots.release(self.directory.id)
        outcome = read_json(self.directory.outcome) or {}
        self.recorder.finish(outcome, float(outcome.get("finished", self.finished)))


def _read_outcome(directory: JobDirectory) -> Optional[Outcome]:
    data = read_json(directory.outcome)
    return decode_outcome(data) if data is not None else None


def supervise(path: Path) -> int:
    """Looks after the job unless somebody does already."""
    directory = JobDirectory(path)
    record = read_json(directory.job)
    if record is None:
        print(f"petctl: {path} is not the directory of a job", file=sys.stderr)
        return 2
    lock = take_lock(directory.supervisor_lock)
    if lock is None:
        return 0
    if (read_json(directory.status) or {}).get("finished"):
        return 0  # it ended, or was buried, before an agent's request for a supervisor was carried out
    asyncio.run(Supervisor(directory, record, raise_epoch(directory)).run())
    return 0


def main() -> int:
    """Entry of the detached process; what it prints goes to supervisor.log."""
    if len(sys.argv) != 2:
        print("usage: python -m petctl.clusters.local.supervisor JOBDIR", file=sys.stderr)
        return 2
    # The shell that detached us ignores these on our behalf; workers must get them as the user's own programs do.
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    try:
        return supervise(Path(sys.argv[1]))
    except PetctlError as error:
        log.error("%s", error)
        return error.code


if __name__ == "__main__":
    sys.exit(main())
