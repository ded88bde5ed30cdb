"""Which nodes a job in pods should have: what its user and its operator say, and what the machine hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from petctl.controller import platform_nodes as module
from petctl.controller.platform_nodes import ENOUGH_PATIENCE, START_PATIENCE, PlatformNodes
from petctl.controller.state_dir import Memory
from petctl.errors import PetctlError, UsageError
from petctl.rendezvous.core import messages as m
from petctl.rendezvous.core.events import Config, Disconnected, End, Expect, Late, Scale
from petctl.rendezvous.core.messages import Header, Outcome, Place
from tests.unit.rendezvous.test_machine import Story

CONFIG = Config(1, 4, 3, silence=5.0)


class Desk(Story):
    """A machine, and the sizing that speaks to it."""

    def __init__(self, directory: Path, numbered: bool = False, **options: Any) -> None:
        super().__init__(config=CONFIG, **options)
        self.told: list[object] = []
        self.memory = Memory(directory)
        fresh = bool(options.get("fresh", True))
        self.sizing = PlatformNodes("job", CONFIG, numbered, self.memory, empty=fresh)
        self.sizing.attach(self.machine, self.step, lambda _: None)
        self.sizing.begin(fresh)

    def step(self, fact: object) -> None:
        self.told.append(fact)
        self.machine.step(fact, self.now)
        self.machine.settle(self.now)

    def resize(self, wanted: int, nodes: Sequence[str]) -> list[str]:
        """Which to give up; `told` holds what the machine heard of it."""
        self.told = []
        return list(asyncio.run(self.sizing.resize(wanted, list(nodes)))["release"])

    def lose(self, name: str) -> None:
        self.machine.step(Disconnected(name, f"i-{name}"), self.now)
        self.machine.settle(self.now)
        self.sizing.lost(name, f"i-{name}")

    def releasing(self) -> set[str]:
        return {name for name, node in self.machine.nodes.items() if node.release}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    desk.running("0", "1", "2")
    return desk


def test_the_first_nodes_are_expected_by_their_numbers(tmp_path: Path) -> None:
    assert Desk(tmp_path).machine.expected == {"0", "1", "2"}


def test_nodes_have_names_with_holes(desk: Desk) -> None:
    desk.lose("1")
    assert desk.resize(3, ["0", "2", "7"]) == []
    assert desk.machine.expected == {"7"} and not desk.releasing()


def test_the_same_words_again_change_nothing(desk: Desk) -> None:
    assert desk.resize(3, "012") == [] and desk.told == []
    assert desk.resize(4, "0123") == [] and desk.machine.expected == {"3"}
    until, desk.now = desk.machine.expect_until, 5.0
    assert desk.resize(4, "0123") == [] and desk.told == []
    assert desk.machine.expect_until == until, "patience is not renewed by asking"


def test_a_lost_node_that_is_named_again_is_expected_again(desk: Desk) -> None:
    desk.resize(3, "012")
    desk.lose("1")
    assert desk.machine.expected == set()
    assert desk.resize(3, "012") == [] and desk.machine.expected == {"1"}


def test_who_is_not_named_any_more_is_not_waited_for(desk: Desk) -> None:
    desk.resize(4, "0123")
    assert desk.resize(4, "012") == [] and desk.machine.expected == set()


def test_the_cheapest_are_released_and_named_until_they_have_gone(desk: Desk) -> None:
    assert desk.resize(2, "012") == ["2"] and desk.releasing() == {"2"}
    assert desk.resize(2, "012") == ["2"] and desk.told == []
    desk.lose("2")
    desk.lose("1")  # by accident; it will be back, and must not be taken for the one to give up
    assert desk.resize(2, "012") == ["2"]
    assert desk.machine.expected == {"1"} and not desk.releasing()
    assert desk.resize(2, "01") == []


def test_a_node_that_never_came_is_given_up_first(desk: Desk) -> None:
    desk.resize(4, "0123")
    assert desk.resize(3, "0123") == ["3"]
    assert desk.machine.expected == set() and not desk.releasing()
    desk.say("3")  # it came after all, before anybody stopped it
    assert desk.resize(3, "0123") == ["3"] and desk.releasing() == {"3"}


def test_nodes_that_joined_by_hand_are_not_touched(desk: Desk) -> None:
    desk.say("by-hand")
    assert desk.resize(1, "012") == ["1", "2"]
    assert desk.releasing() == {"1", "2"}


def test_a_wish_for_more_takes_back_what_it_can(desk: Desk) -> None:
    desk.resize(4, "0123")
    assert desk.resize(2, "0123") == ["2", "3"]  # 3 has not come yet; 2 is on its way out
    assert desk.resize(3, "0123") == ["2"]
    assert desk.machine.expected == {"3"}
    assert desk.resize(4, "0123") == []


def test_a_name_that_is_used_again_is_another_node(desk: Desk) -> None:
    assert desk.resize(2, "012") == ["2"]
    desk.lose("2")
    assert desk.resize(3, "012") == [] and desk.machine.expected == {"2"}
    desk.say("2")
    assert not desk.releasing()


def test_bounds_and_the_end(desk: Desk) -> None:
    for wanted in (0, 5):
        with pytest.raises(UsageError, match="may have 1 to 4 nodes"):
            desk.resize(wanted, "012")
    desk.step(End(Outcome(m.CANCELLED, 130, "enough")))
    with pytest.raises(UsageError, match="is ending: enough"):
        desk.resize(2, "012")
    with pytest.raises(UsageError, match="is ending: enough"):
        desk.sizing.scale(2)


def test_scaling_releases_nobody_where_an_operator_decides_that(desk: Desk) -> None:
    assert desk.sizing.scale(2) == "scaling from 3 to 2 nodes"
    assert desk.machine.wanted == 2 and not desk.releasing()
    assert desk.resize(2, "012") == ["2"]


def test_scaling_releases_the_highest_numbers_where_nodes_are_numbered(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numbered=True)
    desk.running("0", "1", "2")
    desk.sizing.scale(1)
    assert desk.releasing() == {"1", "2"}


# -- after the coordinator was replaced --------------------------------------------------------------------------------


def taken_over(desk: Desk, names: str, wanted: int = 3) -> None:
    """The members of the last round report to a new coordinator."""
    header = Header(1, "c0", 9, round=1, ran=1, wanted=wanted)
    for rank, name in enumerate(names):
        place = Place(rank, len(names), rank, len(names), "host-0", 4242)
        old = {"epoch": 1, "round": 1, "place": place, "place_epoch": 1, "place_round": 1}
        desk.say(name, header=header, state=m.RUNNING, **old)
    assert desk.machine.phase == ("running" if desk.machine.wanted == len(names) else "gathering")
    desk.sizing.learn()


def test_the_next_process_gives_the_same_answer(desk: Desk, tmp_path: Path) -> None:
    assert desk.resize(2, ["0", "1", "2"]) == ["2"]
    again = Desk(tmp_path, epoch=2, fresh=False)
    assert again.machine.expected == {"0", "1"}
    taken_over(again, "012")
    assert again.machine.wanted == 2 and again.releasing() == {"2"}
    again.lose("2")
    again.lose("0")
    assert again.resize(2, ["0", "1", "2"]) == ["2"]


def test_a_release_that_was_not_heard_is_said_again(desk: Desk, tmp_path: Path) -> None:
    """The nodes had heard of the new size, but the coordinator died before it told node 2 to go."""
    desk.resize(2, "012")
    again = Desk(tmp_path, epoch=2, fresh=False)
    taken_over(again, "012", wanted=2)
    assert again.releasing() == {"2"}


def test_in_another_container_nobody_is_given_up_before_all_have_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path, epoch=2, fresh=False)
    assert desk.machine.expected == set(), "it does not know the names"
    monkeypatch.setattr(module, "LEARN_PATIENCE", 0.01)
    with pytest.raises(PetctlError, match="does not know yet which nodes are left; try again"):
        desk.resize(2, "012")
    taken_over(desk, "210")
    assert desk.resize(2, "012") == ["0"]


def test_a_call_waits_for_the_nodes_to_report(tmp_path: Path) -> None:
    desk = Desk(tmp_path, epoch=2, fresh=False)

    async def both() -> Any:
        asking = asyncio.ensure_future(desk.sizing.resize(2, ["0", "1", "2"]))
        await asyncio.sleep(0)
        taken_over(desk, "012")
        return await asking

    assert asyncio.run(both()) == {"sentence": "scaling from 3 to 2 nodes; it can release 2", "release": ["2"]}


def test_numbered_nodes_are_as_they_were(tmp_path: Path) -> None:
    """A replacement expects them by number, and does not send away one that is in nobody's way."""
    desk = Desk(tmp_path, numbered=True, epoch=2, fresh=False)
    assert desk.told == [Expect(("0", "1", "2"), 30.0, ENOUGH_PATIENCE)]
    desk.told = []
    taken_over(desk, "012", wanted=2)
    assert desk.told == [] and not desk.releasing()
    other = Desk(tmp_path / "other", numbered=True, epoch=2, fresh=False)
    other.memory.wanted = 1
    last = Desk(tmp_path / "other", numbered=True, epoch=3, fresh=False)
    last.told = []
    taken_over(last, "012")
    assert isinstance(last.told[0], Scale) and set(last.told[0].release) == {"1", "2"}


def prepared(desk: Desk, *names: str) -> None:
    """These nodes have come, and are ready for the first round; said again, they live."""
    for name in names:
        if name not in desk.machine.nodes:
            desk.say(name)
        desk.say(name, state=m.PREPARED, epoch=1, round=1, port=4242 if name == names[0] else 0)


def wait(desk: Desk, until: float, *names: str) -> None:
    """Lets time pass, in which these nodes live."""
    while desk.now + 1.0 < until:
        desk.now += 1.0
        prepared(desk, *names)
    desk.now = until
    desk.machine.settle(until)


def test_enough_nodes_do_not_wait_long_for_one_that_no_machine_takes(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numbered=True)
    prepared(desk, "0", "1")
    wait(desk, ENOUGH_PATIENCE - 0.5, "0", "1")
    assert desk.machine.phase == "gathering" and "node 2 is expected" in desk.machine.sentence
    assert desk.machine.due == ENOUGH_PATIENCE
    wait(desk, ENOUGH_PATIENCE, "0", "1")
    assert desk.machine.phase == "running" and set(desk.machine.places) == {"0", "1"}


def test_a_node_that_comes_gives_the_others_their_time_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numbered=True)
    prepared(desk, "0")
    wait(desk, ENOUGH_PATIENCE - 0.5, "0")
    prepared(desk, "0", "1")
    came = desk.now
    wait(desk, came + ENOUGH_PATIENCE - 0.5, "0", "1")
    assert desk.machine.phase == "gathering"
    wait(desk, came + ENOUGH_PATIENCE, "0", "1")
    assert desk.machine.phase == "running"


def test_lateness_of_the_coordinator_gives_expected_nodes_more_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numbered=True)
    prepared(desk, "0", "1")
    desk.now = ENOUGH_PATIENCE
    desk.machine.step(Late(ENOUGH_PATIENCE), desk.now)
    prepared(desk, "0", "1")
    wait(desk, 2 * ENOUGH_PATIENCE - 0.5, "0", "1")
    assert desk.machine.phase == "gathering" and desk.machine.due == 2 * ENOUGH_PATIENCE


def test_too_few_nodes_wait_their_whole_time(tmp_path: Path) -> None:
    desk = Desk(tmp_path, numbered=True)
    desk.machine.settle(START_PATIENCE - 0.5)
    assert desk.machine.expected == {"0", "1", "2"}
    desk.machine.settle(START_PATIENCE)
    assert desk.machine.expected == set()


def test_an_operator_says_itself_which_nodes_will_never_come(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    prepared(desk, "0", "1")
    wait(desk, START_PATIENCE - 0.5, "0", "1")
    assert desk.machine.phase == "gathering"
