"""Text scripts with golden traces: one command a line, and below it what the coordinator said.

    > start 0 1 2          start the coordinator (if none lives) and these nodes
    > wait 3               let 3 seconds pass
    > crash 1              node 1 is gone, its connection closes
    > replace 1            node 1 is gone, and its cluster starts another at once and says so
    > isolate 2 / heal 2   node 2 hears nobody / everybody again
    > fail 0 [code 3]      a worker of node 0 fails, with exit code 3; more nodes with codes of their own may follow
    > unfit 2              node 2 can start no worker from now on, whatever the round
    > hang 0               a worker of node 0 makes no step any more
    > stick 1              workers of node 1 cannot be ended any more, not even killed
    > preempt 1            node 1 is asked to stop
    > scale 2 [release 2]  the user wants 2 nodes; the cluster gives up node 2
    > expect 1 [5]         the cluster starts node 1 and asks for 5 s of patience
    > coordinator crash | start | starve 4
    > finish               the workers end well from now on
    > show                 who is where

The first line may set the job: `job min=2 max=3 wanted=3 restarts=1 retry=3 ...`; with `workers=2` every node has a
parameter server, which never ends by itself, and the first two a worker as well. Time runs 1 s after each command
unless it is `wait`. `PETCTL_REWRITE_TRACES=1 pytest tests/simulation` writes the traces anew.
"""

from __future__ import annotations

from petctl.rendezvous.core.events import Config, End, Expect, Scale
from petctl.rendezvous.core.member import Terminate
from petctl.rendezvous.core.messages import CANCELLED, Outcome
from tests.simulation.fleet import Coordinator, Fleet, Options


class Script:
    """Runs commands and gives back what was said."""

    def __init__(self) -> None:
        self.fleet: Fleet | None = None
        self.settings: dict[str, float] = {"min": 1, "max": 3}

    def run(self, text: str) -> str:
        """The same text with its traces as they are now."""
        out: list[str] = []
        for line in text.splitlines():
            if line.startswith("#") or not line.strip():
                out.append(line)
            elif line.startswith("> "):
                out.append(line)
                out += ["  " + said.strip() for said in self.command(line[2:].split("#")[0].split())]
        return "\n".join(out).rstrip() + "\n"

    def command(self, words: list[str]) -> list[str]:
        verb, rest = words[0], words[1:]
        if verb == "job":
            self.settings.update({k: float(v) for k, v in (word.split("=") for word in rest)})
            return []
        fleet = self.fleet = self.fleet or self.make()
        before = len(fleet.lines)
        said = getattr(self, "_" + verb)(fleet, rest) or []
        if verb not in ("wait", "show"):
            fleet.world.run_until(fleet.world.now + 1.0)
        return [*fleet.lines[before:], *said]

    def make(self) -> Fleet:
        s = self.settings
        config = Config(
            min_nodes=int(s["min"]),
            max_nodes=int(s["max"]),
            wanted=int(s.get("wanted", s["max"])),
            restarts=int(s.get("restarts", 3)),
            retry_on=((int(s["retry"]), int(s["retry"])),) if "retry" in s else (),
            silence=s.get("silence", 5.0),
            join_timeout=s.get("join_timeout", 600.0),
            last_call=s.get("last_call", 0.0),
            resize_interval=s.get("resize_interval", 30.0),
            eager=bool(s.get("eager")),
            stall_after=s.get("stall_after", 60.0),
            tasks=(0, int(s["workers"])) if "workers" in s else (),
        )
        options = Options(config, fence_after=s.get("fence_after", 60.0), consequence=s.get("consequence", 0.0))
        options.warm_up, options.elastic = s.get("warm_up", 0.0), bool(s.get("elastic"))
        options.reports = bool(s.get("reports"))
        return Fleet(0, options)

    def _coordinator_of(self, fleet: Fleet) -> Coordinator:
        coordinator = fleet.located()
        assert coordinator is not None and coordinator.alive, "no coordinator lives"
        return coordinator

    def _start(self, fleet: Fleet, names: list[str]) -> None:
        if not fleet.coordinators:
            fleet.start_coordinator()
        for name in names:
            fleet.start_node(name)

    def _wait(self, fleet: Fleet, words: list[str]) -> None:
        fleet.world.run_until(fleet.world.now + float(words[0]))

    def _crash(self, fleet: Fleet, names: list[str]) -> None:
        for name in names:
            fleet.nodes[name].die()

    def _replace(self, fleet: Fleet, names: list[str]) -> None:
        for name in names:
            fleet.replaced[name] = 1.0
            fleet.nodes[name].die()

    def _isolate(self, fleet: Fleet, names: list[str]) -> None:
        fleet.world.isolated |= set(names)

    def _heal(self, fleet: Fleet, names: list[str]) -> None:
        fleet.world.isolated -= set(names)

    def _fail(self, fleet: Fleet, words: list[str]) -> None:
        for part in " ".join(words).replace(" code ", "=").split():
            name, _, code = part.partition("=")
            fleet.nodes[name].fail_worker("an error of its own", code=int(code or 1))

    def _unfit(self, fleet: Fleet, names: list[str]) -> None:
        fleet.options.unfit |= set(names)

    def _deadly(self, fleet: Fleet, words: list[str]) -> None:
        fleet.options.deadly = int(words[0])

    def _hang(self, fleet: Fleet, names: list[str]) -> None:
        for name in names:
            fleet.nodes[name].hang()

    def _stick(self, fleet: Fleet, names: list[str]) -> None:
        for name in names:
            fleet.nodes[name].sticks = True

    def _preempt(self, fleet: Fleet, names: list[str]) -> None:
        for name in names:
            fleet.nodes[name].step(Terminate())

    def _scale(self, fleet: Fleet, words: list[str]) -> None:
        release = tuple(words[2:]) if len(words) > 2 else ()
        self._coordinator_of(fleet).step(Scale(int(words[0]), release))

    def _expect(self, fleet: Fleet, words: list[str]) -> None:
        patience = float(words[1]) if len(words) > 1 else 30.0
        self._coordinator_of(fleet).step(Expect((words[0],), patience))

    def _coordinator(self, fleet: Fleet, words: list[str]) -> None:
        if words[0] == "crash":
            self._coordinator_of(fleet).crash()
        elif words[0] == "start":
            fleet.start_coordinator()
        else:
            self._coordinator_of(fleet).pause(float(words[1]))

    def _cancel(self, fleet: Fleet, words: list[str]) -> None:
        self._coordinator_of(fleet).step(End(Outcome(CANCELLED, 130, "cancelled by the user")))

    def _finish(self, fleet: Fleet, words: list[str]) -> None:
        fleet.options.goal = 1

    def _show(self, fleet: Fleet, words: list[str]) -> list[str]:
        coordinator = fleet.located()
        lines = [f"{coordinator.name}: {coordinator.machine.sentence}"] if coordinator and coordinator.alive else []
        for name, node in sorted(fleet.nodes.items()):
            if not node.up:
                lines.append(f"node {name}: gone")
                continue
            place = node.workers.place if node.live is not None and node.workers is not None else None
            where = f", rank {place.rank} of {place.nodes}, workers from {place.first_rank}" if place else ""
            lines.append(f"node {name}: {node.member.state} round {node.member.at[1]}{where}")
        return lines
