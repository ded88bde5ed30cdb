"""Real machines on both sides of real connections; only the workers are pretended."""

import asyncio

from pretend_node import PretendNode

from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, End, Expect, Lost
from petctl.rendezvous.core.machine import Coordinator
from petctl.rendezvous.core.member import WorkerEnded
from petctl.rendezvous.core.messages import Outcome
from petctl.rendezvous.net.client import ControlLink

from .harness import Served, in_loop


class Nodes:
    """A few pretended nodes, and a way to wait for what becomes of them."""

    def __init__(self, served, silence=5.0):
        self.served, self.silence, self.nodes, self.playing = served, silence, {}, []
        self.changed = asyncio.Event()

    def start(self, *names):
        for name in names:
            node = PretendNode(self.served.join, name, self.silence, lambda node: self.changed.set())
            self.nodes[name] = node
            self.playing.append(asyncio.ensure_future(node.run()))

    async def running(self, *names, number):
        """Waits until these, and as many as these, run in that round."""

        def there():
            members = [self.nodes[name].member for name in names]
            return all(
                n.state == m.RUNNING and n.at[1] == number and n.place is not None and n.place.nodes == len(names)
                for n in members
            )

        while not there():
            self.changed.clear()
            await self.changed.wait()
        return {name: self.nodes[name].member.place.rank for name in names}

    async def end(self):
        for node in self.nodes.values():
            node.drop()
        await asyncio.gather(*self.playing)


def machine(minimum, maximum, **options):
    now = asyncio.get_running_loop().time()
    return Coordinator(Config(minimum, maximum, maximum), now, "test", epoch=1, **options)


@in_loop
async def test_nodes_agree_lose_one_and_go_on():
    async with Served(machine(1, 3)) as served:
        nodes = Nodes(served)
        served.server.step(Expect(("0", "1", "2")))
        nodes.start("0", "1", "2")
        assert sorted((await nodes.running("0", "1", "2", number=1)).values()) == [0, 1, 2]
        nodes.nodes["0"].drop()
        assert sorted((await nodes.running("1", "2", number=2)).values()) == [0, 1]
        with ControlLink(served.join) as link:
            status = await served.blocking(link.call, "status")
        assert [row["name"] for row in status["nodes"]] == ["1", "2"]
        await nodes.end()


@in_loop
async def test_a_job_that_ends_well_is_recorded_and_everybody_is_told():
    async with Served(machine(2, 2)) as served:
        nodes = Nodes(served)
        nodes.start("0", "1")
        await nodes.running("0", "1", number=1)
        for node in nodes.nodes.values():
            node.step(WorkerEnded(1, last=True))
        await asyncio.gather(*nodes.playing)
        assert [outcome.state for outcome in served.recorded] == ["succeeded"]
        assert all(node.member.outcome == served.recorded[0] for node in nodes.nodes.values())


@in_loop
async def test_nobody_is_told_of_an_end_that_cannot_be_recorded():
    attempts = []

    def record(outcome):
        attempts.append(outcome)
        told = [node.name for node in nodes.nodes.values() if node.member.outcome is not None]
        assert not told
        if len(attempts) < 4:
            raise OSError(28, "No space left on device")

    async with Served(machine(1, 1), record=record) as served:
        nodes = Nodes(served)
        nodes.start("0")
        await nodes.running("0", number=1)
        served.server.step(End(Outcome(m.CANCELLED, 130, "cancelled by the user")))
        await asyncio.gather(*nodes.playing)
        assert len(attempts) == 4
        assert nodes.nodes["0"].member.outcome.code == 130


@in_loop
async def test_a_replaced_coordinator_continues_the_round_with_the_same_members():
    async with Served(machine(2, 2)) as first:
        nodes = Nodes(first)
        nodes.start("0", "1")
        before = await nodes.running("0", "1", number=1)
        members = {name: node.member for name, node in nodes.nodes.items()}
    await asyncio.gather(*nodes.playing)
    successor = Coordinator(Config(2, 2, 2), asyncio.get_running_loop().time(), "second", epoch=2, fresh=False)
    async with Served(successor) as second:
        nodes = Nodes(second)
        for name, member in members.items():
            member.exited = False
            nodes.nodes[name] = node = PretendNode(second.join, name, changed=lambda node: nodes.changed.set())
            node.member = member
            nodes.playing.append(asyncio.ensure_future(node.run()))
        while any(member.header.epoch < 2 for member in members.values()):
            nodes.changed.clear()
            await nodes.changed.wait()
        assert await nodes.running("0", "1", number=1) == before
        assert successor.phase == "running"
        await nodes.end()


@in_loop
async def test_a_silent_node_is_lost_and_the_others_go_on():
    now = asyncio.get_running_loop().time()
    async with Served(Coordinator(Config(1, 2, 2, silence=2.0), now, "test", epoch=1)) as served:
        nodes = Nodes(served, silence=2.0)
        served.server.step(Expect(("0", "1")))
        nodes.start("0", "1")
        await nodes.running("0", "1", number=1)
        silent = nodes.nodes["1"]
        silent.member.silence = 3600.0  # it does not notice either: its connection stays open
        silent.link.send = lambda message: None
        await nodes.running("0", number=2)
        lost = [effect for effect in served.effects if isinstance(effect, Lost)]
        assert [(effect.node, effect.why) for effect in lost] == [("1", "no heartbeat for 2 s")]
        await nodes.end()
