"""The driver round the machine: what it tells the machine and when, and how it carries out what the machine wants."""

import asyncio
from dataclasses import replace

import pytest

from petctl.errors import AuthError, PetctlError, Unreachable, UsageError
from petctl.rendezvous.core.events import Disconnected, Event, Expect, Late, Lost, Record, Recorded, Reported, Tell
from petctl.rendezvous.core.messages import Header, Order, Outcome, Place, decode_order
from petctl.rendezvous.net.calls import TEXT, WHOLE, Call
from petctl.rendezvous.net.client import AgentLink, ControlLink

from .harness import RawPeer, ScriptedMachine, Served, hold_up, in_loop, report_of


async def joined(served, **fields):
    link = AgentLink(served.join)
    assert await link.connect() == {"task": 1}
    link.send(report_of(**fields))
    return link


@in_loop
async def test_a_report_reaches_the_machine_and_an_order_the_node():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        link = await joined(served)
        await machine.until_true(lambda: machine.of(Reported))
        machine.effects = [Tell("0", "a", Order(Header(epoch=3), sentence="wait")), Tell("9", "x", Order(Header()))]
        served.server.step(Expect(("1",)))
        assert (await link.receive())["order"] == {"header": {"epoch": 3}, "sentence": "wait"}
        link.close()


@in_loop
async def test_what_all_members_offered_goes_over_a_connection_once():
    machine = ScriptedMachine()

    async def tell(offers):
        place = Place(0, 1, 0, 1, "host", 1, offers)
        machine.effects = [Tell("0", "a", Order(Header(), "run", 1, place=place))]
        served.server.step(Expect(("1",)))
        return place

    async with Served(machine) as served:
        at = {"rank": 0, "nodes": 1, "first_rank": 0, "world_size": 1, "master_addr": "host", "master_port": 1}
        many, others = tuple(f"host-{n}" for n in range(1000)), ("one", "two")
        with RawPeer(served) as raw:
            await served.blocking(raw.introduce)
            raw.send(report_of())
            await machine.until_true(lambda: machine.of(Reported))
            whole, new = {"kind": "run", "round": 1, "header": {}}, list(others)
            for offers, message in (
                (many, {"order": {**whole, "place": {**at, "offers": list(many)}}}),
                (many, {"changed": {}}),
                (others, {"changed": {"place": {**at, "offers": new}}}),
                (others, {"changed": {}}),
            ):
                await tell(offers)
                assert await served.blocking(raw.receive) == message
        await machine.until_true(lambda: machine.of(Disconnected))
        link = await joined(served)
        await machine.until_true(lambda: len(machine.of(Reported)) == 2)
        for offers in (many, many, (), many, others, others, many):
            place = await tell(offers)
            assert decode_order((await link.receive())["order"]).place == place
        link.close()


@in_loop
async def test_facts_of_one_turn_make_one_decision():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        await machine.until_true(lambda: "settle" in machine.log)
        machine.log.clear()
        for number in range(100):
            served.server.step(Expect((str(number),)))
        await machine.until_true(lambda: "settle" in machine.log)
        assert machine.log.count("settle") == 1
        assert len(machine.of(Expect)) == 100


@in_loop
async def test_a_remark_becomes_one_event_whoever_repeats_it():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        links = [await joined(served, node=name) for name in ("0", "1")]
        for link in links:
            link.send({"remark": "imports take long"})
        links[1].send({"remark": "x" * 5000})
        links[1].send({"remark": "a file is lost", "about": "unsaved"})
        links[0].send({"remark": 3})
        await machine.until_true(lambda: machine.of(Disconnected))  # of the one that makes no sense
        await machine.until_true(lambda: len(served.effects) == 3)
        first, second, third = served.effects
        assert (third.kind, third.sentence) == ("unsaved", "node 1: a file is lost")
        assert first.kind == "remark" and first.sentence.endswith(": imports take long")
        assert second.data == {"node": "1"} and len(second.sentence) < 1100
        links[1].close()


@in_loop
async def test_the_newest_history_counts_whichever_node_speaks_first():
    machine = ScriptedMachine()
    machine.epoch = 7
    async with Served(machine) as served:
        for number, at in enumerate([[5, 40], [6, 120], [6, 119], [7, 121], None]):
            link = await joined(served, node=str(number))
            link.send({"history": {"rounds": [], "ran": number, **({"at": at} if at else {})}, "age": 1.0})
            link.send({"remark": number})  # makes no sense, and ends the connection
            await machine.until_true(lambda: len(machine.of(Disconnected)) > number)  # noqa: B023
    told = [effect.data["at"] for effect in served.effects if isinstance(effect, Event) and effect.kind == "history"]
    assert told == [[5, 40], [6, 120]], "nothing older, and not this coordinator's own"


@in_loop
async def test_the_first_nodes_by_number_keep_the_history():
    machine = ScriptedMachine()
    machine.epoch, machine.ran = 3, 17
    async with Served(machine) as served:
        links = {}
        for number in (10, 2, 1, 0):
            links[number] = await joined(served, node=str(number))
        await machine.until_true(lambda: len(machine.of(Reported)) == 4)
        served.server.entrust({"rounds": [], "ran": 17})
        for number in (0, 1, 2):
            assert (await links[number].receive())["history"] == {"rounds": [], "ran": 17, "at": [3, 17]}
        machine.effects = [Tell("10", "a", Order(Header(epoch=3)))]
        links[0].send(report_of("0", number=2))
        assert "order" in await links[10].receive(), "which was not asked to keep anything"
        for link in links.values():
            link.close()


@pytest.mark.parametrize("wrong", [{"at": [1]}, {"at": [1, "2"]}, {"at": 3}, {"ran": "many"}])
@in_loop
async def test_a_history_that_is_none_ends_the_connection(wrong):
    machine = ScriptedMachine()
    async with Served(machine) as served:
        with RawPeer(served) as peer:
            await served.blocking(peer.introduce)
            peer.send(report_of())
            peer.send({"history": {"rounds": [], **wrong}, "age": 1.0})
            assert await served.blocking(peer.until_dropped)
    assert not [effect for effect in served.effects if isinstance(effect, Event)]


@in_loop
async def test_a_letter_reaches_the_member_it_is_for_in_the_round_that_runs():
    machine = ScriptedMachine()
    machine.round = 7
    machine.places = {name: ("a", Place(int(name), 2, 0, 2, "host", 1)) for name in ("0", "1")}
    async with Served(machine) as served:
        links = [await joined(served, node=name) for name in ("0", "1", "2")]
        await machine.until_true(lambda: len(machine.of(Reported)) == 3)
        links[2].send({"letter": {"round": 7, "to": 1, "text": "of one who is no member"}})
        links[2].send({"remark": "said after it"})
        await machine.until_true(lambda: served.effects)
        links[0].send({"letter": {"round": 6, "to": 1, "text": "of an older round"}})
        links[0].send({"letter": {"round": 7, "to": 5, "text": "to nobody"}})
        links[0].send({"letter": {"round": 7, "to": 1, "text": "start this", "from": 1}})
        assert await links[1].receive() == {"letter": {"round": 7, "to": 1, "text": "start this", "from": 0}}
        links[1].send({"letter": "nonsense"})
        await machine.until_true(lambda: machine.of(Disconnected))
        for link in links:
            link.close()


@in_loop
async def test_a_closed_connection_is_told_at_once():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        link = await joined(served)
        await machine.until_true(lambda: machine.of(Reported))
        link.close()
        await machine.until_true(lambda: machine.of(Disconnected))
        assert machine.of(Disconnected) == [Disconnected("0", "a")]


@in_loop
async def test_a_newer_connection_of_a_node_replaces_the_older_without_a_loss():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        older = await joined(served)
        newer = await joined(served, number=2)
        with pytest.raises(Unreachable):
            await older.receive()
        await machine.until_true(lambda: len(machine.of(Reported)) == 2)
        machine.effects = [Tell("0", "a", Order(Header(epoch=1)))]
        served.server.step(Expect(("1",)))
        await newer.receive()
        assert not machine.of(Disconnected)
        newer.close()
        await machine.until_true(lambda: machine.of(Disconnected))


@in_loop
async def test_what_has_arrived_is_read_before_anybody_is_expired():
    machine = ScriptedMachine()
    loop = asyncio.get_running_loop()
    async with Served(machine) as served:
        with RawPeer(served) as peer:
            await served.blocking(peer.introduce)
            machine.until = loop.time() + 0.5
            # Due in the same turn as the machine's deadline, just before it: the report comes in after that turn has
            # looked at the sockets, which is the worst moment.
            loop.call_at(machine.until - 0.01, peer.send, report_of())
            served.server.step(Expect(("0",)))
            await machine.until_true(lambda: machine.log[-2:] == [Expect(("0",)), "settle"])
            machine.log.clear()
            hold_up(0.6)
            await machine.until_true(lambda: "settle" in machine.log)
            assert machine.log.index("settle") > machine.log.index(machine.of(Reported)[0])


@in_loop
async def test_its_own_lateness_is_told_before_the_next_decision():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        served.server.step(Expect(("0",)))
        await machine.until_true(lambda: "settle" in machine.log)
        machine.log.clear()
        hold_up(1.5)
        await machine.until_true(lambda: "settle" in machine.log)
        assert isinstance(machine.log[0], Late)
        assert 0.5 < machine.log[0].seconds < 10
        assert len(machine.of(Late)) == 1


@in_loop
async def test_the_deadline_of_the_machine_makes_it_decide():
    machine = ScriptedMachine()
    async with Served(machine) as served:
        machine.until = asyncio.get_running_loop().time() + 0.5
        served.server.step(Expect(("0",)))
        await machine.until_true(lambda: machine.until is None)
        assert machine.log.count("settle") == 2


@in_loop
async def test_a_machine_that_fails_does_not_end_the_coordinator(caplog, monkeypatch):
    machine = ScriptedMachine()
    async with Served(machine) as served:
        monkeypatch.setattr(machine, "settle", lambda now: 1 / 0)
        served.server.step(Expect(("0",)))
        with ControlLink(served.join) as link:
            assert await served.blocking(link.call, "status") == {"phase": "scripted"}
        monkeypatch.undo()
        await machine.until_true(lambda: "settle" in machine.log)
    assert "could not decide" in caplog.text


@in_loop
async def test_an_outcome_is_recorded_before_the_machine_hears_of_it():
    machine, outcome = ScriptedMachine(), Outcome("succeeded", 0, "all workers finished successfully")
    attempts = []

    def record(what):
        attempts.append(what)
        assert not machine.of(Recorded)
        if len(attempts) < 3:
            raise OSError(28, "No space left on device")

    async with Served(machine, record=record) as served:
        machine.effects = [Record(outcome)]
        served.server.step(Expect(("0",)))
        await machine.until_true(lambda: machine.of(Recorded))
        assert attempts == [outcome] * 3
        assert machine.of(Recorded) == [Recorded(None)]


@in_loop
async def test_an_older_record_is_handed_back():
    machine, older = ScriptedMachine(), Outcome("cancelled", 130, "cancelled")
    async with Served(machine, record=lambda outcome: older) as served:
        machine.effects = [Record(Outcome("succeeded", 0, "well"))]
        served.server.step(Expect(("0",)))
        await machine.until_true(lambda: machine.of(Recorded))
        assert machine.of(Recorded) == [Recorded(older)]


@in_loop
async def test_other_effects_go_to_the_cluster_which_may_answer_with_facts():
    machine = ScriptedMachine()
    lost, event = Lost("0", "a", "its connection closed"), Event("lost", "node 0 is gone", {})

    def on_effect(effect):
        served.effects.append(effect)
        if effect is lost:
            served.server.step(Expect(("0",), 1.0))

    served = Served(machine, on_effect=on_effect)
    async with served:
        machine.effects = [lost, event]
        served.server.step(Expect(("9",)))
        await machine.until_true(lambda: machine.log[-2:] == [Expect(("0",), 1.0), "settle"])
        assert served.effects == [lost, event]


@in_loop
async def test_a_nodes_join_file_does_not_steer_the_job():
    control = {"cancel": Call(lambda: "cancelled"), "code": Call(lambda: "part", nodes=True)}
    async with Served(ScriptedMachine(), control=control) as served:
        with ControlLink(served.join.for_nodes()) as link:
            assert await served.blocking(link.call, "code") == "part"
            for name in ("cancel", "status"):
                with pytest.raises(PetctlError, match=f"'{name}' is not allowed for nodes"):
                    await served.blocking(link.call, name)
        agent = AgentLink(served.join.for_nodes())
        assert await agent.connect() == {"task": 1}
        agent.close()
        with ControlLink(replace(served.join.for_nodes(), control=True)) as link, pytest.raises(AuthError):
            await served.blocking(link.call, "cancel")


@in_loop
async def test_control_calls():
    gate = asyncio.Event()

    async def slow(word):
        await gate.wait()
        return word

    def refuse(wanted):
        raise UsageError(f"{wanted} is more than 3")

    control = {
        "double": Call(lambda number: 2 * number, {"number": WHOLE}),
        "slow": Call(slow, {"word": TEXT}),
        "refuse": Call(refuse, {"wanted": WHOLE}),
        "fault": Call(lambda: 1 / 0),
        "unspeakable": Call(object),
    }
    async with Served(ScriptedMachine(), control=control) as served:
        with ControlLink(served.join) as link:

            async def refused(name, **params):
                with pytest.raises(PetctlError) as raised:
                    await served.blocking(link.call, name, **params)
                return raised.value.code, str(raised.value)

            assert await served.blocking(link.call, "status") == {"phase": "scripted"}
            assert await served.blocking(link.call, "double", number=21) == 42
            assert await refused("refuse", wanted=7) == (2, "7 is more than 3")
            assert (await refused("fault"))[0] == 70
            assert (await refused("unspeakable"))[0] == 70
            assert "does not know the call 'nothing'" in (await refused("nothing"))[1]
            assert "it takes no 'numbers'" in (await refused("double", number=1, numbers=1))[1]
            assert "must be a whole number, not true" in (await refused("double", number=True))[1]
            waiting = asyncio.ensure_future(served.blocking(link.call, "slow", word="late"))
            with ControlLink(served.join) as other:  # a slow call holds up nobody else
                assert await served.blocking(other.call, "double", number=1) == 2
            gate.set()
            assert await waiting == "late"


@in_loop
async def test_a_call_that_takes_too_long_is_given_up_and_its_connection_with_it():
    async def never():
        await asyncio.get_running_loop().create_future()

    async with Served(ScriptedMachine(), control={"never": never}) as served:
        link = ControlLink(served.join)
        with pytest.raises(Unreachable, match="did not answer"):
            await served.blocking(link.call, "never", patience=0.1)
        assert await served.blocking(link.call, "status") == {"phase": "scripted"}
        link.close()
