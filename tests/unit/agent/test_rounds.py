"""A node's part in the rounds: what its workers wait for, what is started, and what the member is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from petctl.agent.logs.log_files import LogName
from petctl.agent.node.rounds import Rounds
from petctl.agent.warm.prestart import pretended_place
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.workers import Launch, Worker
from petctl.job.task import Task
from petctl.rendezvous.core import member as mb
from petctl.rendezvous.core.messages import Place

START = mb.Start(1, 7, Place(rank=1, nodes=2, first_rank=3, world_size=5, master_addr="", master_port=1, procs=2), 0)


class Node:
    """Stands for all that a node has beside its rounds."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.fed: list[Any] = []
        self.started: list[list[Launch]] = []
        self.running: list[Worker] = []
        self.refusal: OSError | None = None
        self.groups: list[int] = []
        self.early: list[Worker] = []
        self.held = self.stopping = False
        task = Task(**{"job": "j", "kind": "program", "words": ["x"], "cwd": str(directory), **fields})
        self.needs = SimpleNamespace(task=task, problem="", coming="", starting=self.ignore)
        lifeline = SimpleNamespace(directory="", own=self.ignore)
        warm = SimpleNamespace(begin=self.ignore, warming=False)
        here = RoundContext("b", "j/b/1", 0, 0, pretended_place(4), 0, procs=4)
        needs: Any = (self.needs, lifeline, self, warm, SimpleNamespace(), self.fed.append, self.ignore)
        self.rounds = Rounds(here, str(directory), *needs)

    def ignore(self, *words: object) -> None:
        pass

    def stop(self, *words: object) -> None:
        self.stopping = True

    def clear(self, then: Callable[[], None]) -> None:
        """What is left of the last round ends at once, unless a test holds it."""
        self.cleared = then
        if not self.held:
            then()

    def start(self, launches: list[Launch]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.started.append(launches)

    def ended(self, code: int) -> None:
        """The first process of the last start has."""
        worker = Worker(self.started[-1][0])
        worker.code = code
        self.rounds.worker_exited(worker)

    def failure(self) -> Any:
        assert isinstance(self.fed[-1], mb.WorkerFailed) and self.fed[-1].round == 7
        return self.fed[-1].failure


def with_node(test: Callable[[Node], None], directory: Path, **fields: Any) -> None:
    async def run() -> None:
        test(Node(directory, **fields))

    asyncio.run(run())


def test_a_round_has_as_many_workers_as_its_place_says_and_their_files_are_this_nodes(tmp_path: Path) -> None:
    def test(node: Node) -> None:
        node.rounds.start(START)
        assert [launch.rank for launch in node.started[0]] == [3, 4]
        own = [rank for rank in range(9) if node.rounds.is_own(LogName(7, rank, "out"))]
        assert own == [3, 4] and not node.rounds.is_own(LogName(6, 3, "out"))

    with_node(test, tmp_path)


def test_workers_wait_for_what_is_coming_and_a_stop_ends_the_waiting(tmp_path: Path) -> None:
    def test(node: Node) -> None:
        node.needs.coming = "unpacking code"
        node.rounds.start(START)
        assert node.fed == [mb.Doing("unpacking code")] and not node.started
        node.rounds.stop(mb.Stop(1.0, "why"))
        node.needs.coming = ""
        node.rounds.arrived()
        assert not node.started
        node.rounds.start(START)
        assert len(node.started) == 1

    with_node(test, tmp_path)


def test_what_a_node_did_for_a_round_is_not_said_of_the_next(tmp_path: Path) -> None:
    def test(node: Node) -> None:
        node.needs.coming = "unpacking code"
        node.rounds.start(START)
        node.rounds.stop(mb.Stop(1.0, "why"))
        node.rounds.stopped()
        assert node.fed == [mb.Doing("unpacking code"), mb.Doing("")]
        node.needs.coming = ""
        node.rounds.arrived()
        node.rounds.start(START)
        assert node.fed[-1] == mb.Doing("preparing")
        node.rounds.stop(mb.Stop(1.0, "why"))
        node.rounds.stopped()
        assert node.fed[-1] == mb.Doing("")
        node.rounds.stopped()
        assert [event for event in node.fed if event == mb.Doing("")] == [mb.Doing("")] * 2

    with_node(test, tmp_path, prepare="tool")


def test_what_no_round_could_change_is_said_so(tmp_path: Path) -> None:
    def test(node: Node) -> None:
        node.refusal = OSError(11, "Resource temporarily unavailable")
        node.rounds.start(START)
        assert (node.failure().message, node.failure().lasting) == (
            "cannot start x: Resource temporarily unavailable",
            False,
        )
        node.refusal = FileNotFoundError(2, "No such file or directory", "x")
        node.rounds.start(START)
        assert (node.failure().rank, node.failure().code, node.failure().lasting) == (3, 127, True)
        node.needs.problem = "there is no mount"
        node.rounds.start(START)
        assert (node.failure().message, node.failure().lasting) == ("there is no mount", True)

    with_node(test, tmp_path)


def test_a_node_is_prepared_once_and_its_first_worker_answers_for_a_failure(tmp_path: Path) -> None:
    def test(node: Node) -> None:
        node.rounds.start(START)
        assert node.fed[-1] == mb.Doing("preparing")
        Path(node.started[0][0].err).write_text("no such tool\n")
        node.ended(3)
        failure = node.failure()
        assert (failure.rank, failure.local_rank, failure.code) == (3, 0, 3)
        assert failure.message == "prepare: no such tool" and not failure.lasting
        node.rounds.start(START)
        node.ended(0)
        node.rounds.start(START)
        assert [len(launches) for launches in node.started] == [1, 1, 2, 2]

    with_node(test, tmp_path, prepare="tool")


def test_a_start_that_was_called_off_while_leftovers_ended_does_not_happen(tmp_path: Path) -> None:
    async def live() -> None:
        node = Node(tmp_path)
        node.held = True
        node.rounds.start(START)
        assert not node.started
        node.rounds.stop(mb.Stop(1.0, "another round"))
        node.cleared()
        assert not node.started, "the next round's start follows"

    asyncio.run(live())
