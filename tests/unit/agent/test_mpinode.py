"""A node of an MPI job: what it hears through its FIFO, and the letters between agents."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from petctl.agent.launchers import mpi, mpi_node
from petctl.agent.launchers.mpi_node import MpiNode
from petctl.agent.node import runtime_dir
from petctl.agent.workers.environment import RoundContext
from petctl.agent.workers.workers import Launch, Worker
from petctl.errors import UsageError
from petctl.job.task import Task
from petctl.rendezvous.core.messages import Failure, Place

OFFERS = (mpi.offer("127.0.0.1", 1, "a"), mpi.offer("127.0.0.1", 2, "b"))
TASK = Task(job="j", kind="shell", words=["true"], launcher="mpi")


class Seen:
    """Stands for the workers and the connection; keeps what it is told."""

    def __init__(self) -> None:
        self.added: list[Launch] = []
        self.told: list[tuple[Any, ...]] = []
        self.sent: list[dict[str, Any]] = []
        self.failed: list[str] = []
        self.ends: list[Failure | None] = []
        self.running: list[Worker] = []
        self.stopping = False
        self.ended = asyncio.Event()
        self.thrice = asyncio.Event()

    def send(self, message: Mapping[str, Any]) -> None:
        self.sent.append(message["letter"])
        if len(self.sent) == 3:
            self.thrice.set()

    def end(self, failure: Failure | None) -> None:
        self.ends.append(failure)
        self.ended.set()

    def add(self, launches: list[Launch]) -> None:
        self.added += launches

    def foreign_began(self, launch: Launch, pid: int) -> None:
        self.told.append(("began", launch.rank, pid))

    def foreign_ended(self, local_rank: int, status: int) -> None:
        self.told.append(("ended", local_rank, status))


def with_node(rank: int, test: Callable[[MpiNode, Seen, Path], Any], directory: Path) -> None:
    """Runs a test in a loop, on a node of this rank in round 1."""

    async def run() -> None:
        seen = Seen()
        workers: Any = seen
        node = MpiNode(str(directory), workers, seen.send, seen.failed.append, seen.end)
        context = RoundContext("b", "j/b/1", 1, 1, Place(rank, 2, rank, 3, "127.0.0.1", 1, OFFERS, 2), 0, procs=2)
        node.plan(TASK, context, {"PATH": str(directory)}, str(directory / "logs"))
        node.begun()
        try:
            result = test(node, seen, directory / "mpi")
            if asyncio.iscoroutine(result):
                await result
        finally:
            node.end()
            runtime_dir.clear_mpi(str(directory))

    (directory / "mpirun").touch(0o755)
    asyncio.run(run())


def ended(code: int, err: Path | str = "/dev/null") -> Worker:
    """mpirun, or its daemon, in round 1."""
    worker = Worker(Launch(-1, -1, ["mpirun"], {}, None, "", str(err), round=1, launcher=True))
    worker.code = code
    return worker


def write(directory: Path, *lines: str) -> None:
    with open(directory / "fifo", "w") as fifo:
        fifo.write("".join(f"{line}\n" for line in lines))


def test_begins_and_ends_of_this_round_are_heard(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        write(
            directory,
            "1 launch no-such-file",
            "1 begin 0 1 4711",
            "7 begin 1 2 4712",
            "1 end 0 0",
            "1 end 1 137",
            "1 begin x",
            "nonsense",
        )
        node.hear()
        assert seen.told == [("began", 1, 4711), ("ended", 0, 0), ("ended", 1, -9)]

    with_node(1, test, tmp_path)


def test_a_line_for_another_node_is_repeated_until_it_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_node, "_REPEAT", 0.01)

    async def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        os.spawnv(os.P_WAIT, str(directory / "launch"), ["launch", "petctl-1", "orted", "-mca", '"x y"'])
        node.hear()
        (letter,) = seen.sent
        assert (letter["to"], letter["round"], letter["line"]) == (1, 1, 'orted -mca "x y"')
        await asyncio.wait_for(seen.thrice.wait(), 10)
        node.receive({"round": 1, "from": 1, "id": letter["id"], "done": True})
        count = len(seen.sent)
        node.repeat()
        assert len(seen.sent) == count and seen.sent[-1] == letter

    with_node(0, test, tmp_path)


def test_mpirun_cannot_go_where_there_is_no_node(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        os.spawnv(os.P_WAIT, str(directory / "launch"), ["launch", "elsewhere", "orted"])
        node.hear()
        assert not seen.sent and "elsewhere, which is not a node of this job" in seen.failed[0]

    with_node(0, test, tmp_path)


def test_a_letter_is_acted_on_once_and_answered_each_time(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        letter = {"round": 1, "from": 0, "to": 1, "id": "1/ask-5", "line": "orted x"}
        for _ in range(3):
            node.receive(letter)
        assert [launch.argv for launch in seen.added] == [["/bin/sh", "-c", "orted x"]]
        assert seen.sent == 3 * [{"round": 1, "to": 0, "id": "1/ask-5", "done": True}]

    with_node(1, test, tmp_path)


def test_a_letter_that_comes_early_waits_for_its_round(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        node.receive({"round": 2, "from": 0, "to": 1, "id": "2/ask-5", "line": "orted x"})
        assert not seen.added and len(seen.sent) == 1
        context = RoundContext("b", "j/b/1", 1, 2, Place(1, 2, 1, 3, "127.0.0.1", 1, OFFERS, 2), 0, procs=2)
        node.plan(TASK, context, {"PATH": str(tmp_path)}, str(tmp_path / "logs"))
        assert not seen.added
        node.begun()
        assert len(seen.added) == 1

    with_node(1, test, tmp_path)


def test_nonsense_from_elsewhere_does_no_harm(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        nonsense: list[object] = [
            None,
            [],
            {},
            {"round": "1", "id": "x"},
            {"round": 1, "id": 5},
            {"round": 1, "id": "y"},
            {"round": 1, "from": 1, "id": "z", "line": "anything"},
        ]
        for letter in nonsense:
            node.receive(letter)
        assert not seen.added and not seen.failed

    with_node(1, test, tmp_path)


def test_hydras_way_to_a_node_ends_with_the_daemon_there(tmp_path: Path) -> None:
    (tmp_path / "mpiexec.hydra").touch(0o755)

    def first(node: MpiNode, seen: Seen, directory: Path) -> None:
        launch = os.spawnv(os.P_NOWAIT, str(directory / "launch"), ["launch", "-x", "petctl-1", "hydra_pmi_proxy"])
        while not seen.sent:
            node.hear()
        assert seen.sent[0]["waits"]
        for _ in range(2):  # whoever writes it may have to repeat it
            node.receive({"round": 1, "from": 1, "id": "1/over-1", "over": 3})
        assert os.waitstatus_to_exitcode(os.waitpid(launch, 0)[1]) == 3
        assert seen.sent[-1] == {"round": 1, "to": 1, "id": "1/over-1", "done": True}

    def second(node: MpiNode, seen: Seen, directory: Path) -> None:
        node.receive({"round": 1, "from": 0, "id": "1/ask-5", "line": "hydra_pmi_proxy", "waits": True})
        node.launcher_ended(ended(3))
        assert seen.sent[-1] == {"round": 1, "to": 0, "id": "1/over-1", "over": 3}

    with_node(0, first, tmp_path)
    with_node(1, second, tmp_path)


def test_mpiruns_own_failure_is_told_in_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_node, "_OTHERS_FIRST", 0.01)

    async def failure_of(node: MpiNode, seen: Seen, words: str) -> Failure:
        (tmp_path / "err").write_text(words)
        seen.ended.clear()
        node.launcher_ended(ended(1, tmp_path / "err"))
        await asyncio.wait_for(seen.ended.wait(), 10)
        failure = seen.ends.pop()
        assert failure is not None
        return failure

    async def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        words = "-" * 40 + "\nThe daemon on petctl-1\ndid not start.\n\nMore.\n" + "-" * 40 + "\n"
        failure = await failure_of(node, seen, words)
        assert (failure.node, failure.rank, failure.code) == ("a", 0, 1)
        assert failure.message == "mpirun: The daemon on node b did not start."
        words = "mpirun noticed that process rank 2 with PID 1 on node petctl-1 exited on signal 11 (Segfault).\n"
        named = await failure_of(node, seen, words)
        assert (named.node, named.rank, named.local_rank, named.code, named.signal) == ("b", 2, 1, 139, "SIGSEGV")

    with_node(0, test, tmp_path)


def test_a_node_is_done_when_its_ranks_and_its_launcher_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_node, "_MPIRUN_FIRST", 0.01)

    async def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        node.launcher_ended(ended(0))
        assert seen.ends == [None]
        seen.ended.clear()
        seen.running.append(ended(0))
        node.launcher_ended(ended(0))
        await asyncio.wait_for(seen.ended.wait(), 10)
        assert seen.ends[1] is not None
        assert seen.ends[1].message == "mpirun's daemon ended before all ranks of this node had"

    with_node(1, test, tmp_path)


def test_ranks_that_end_well_soon_after_their_daemon_are_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mpi_node, "_MPIRUN_FIRST", 0.0)

    async def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        seen.running.append(ended(0))
        node.launcher_ended(ended(0))
        seen.running.clear()
        await asyncio.sleep(0.01)
        assert not seen.ends

    with_node(1, test, tmp_path)


def test_an_end_of_mpirun_means_nothing_once_its_round_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpi_node, "_OTHERS_FIRST", 0.0)

    async def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        node.launcher_ended(ended(1))
        seen.stopping = True
        await asyncio.sleep(0.01)
        seen.stopping = False
        node.launcher_ended(ended(1))
        node.end()
        await asyncio.sleep(0.01)
        node.launcher_ended(ended(0))
        assert not seen.ends

    with_node(0, test, tmp_path)


def test_a_program_that_is_missing_is_said_before_mpirun_starts(tmp_path: Path) -> None:
    def test(node: MpiNode, seen: Seen, directory: Path) -> None:
        task = Task(job="j", kind="program", words=["no-such-program"], launcher="mpi")
        context = RoundContext("b", "j/b/1", 1, 2, Place(1, 2, 1, 3, "127.0.0.1", 1, OFFERS, 2), 0, procs=2)
        with pytest.raises(UsageError, match="cannot start no-such-program: there is no such program on this node"):
            node.plan(task, context, {"PATH": str(tmp_path)}, str(tmp_path / "logs"))

    with_node(1, test, tmp_path)
