"""Every line once, in its file, whatever happens to the agent in between."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from petctl.agent.layouts import batchai_output
from petctl.agent.layouts.batchai_output import Ledger, StdOutErr
from petctl.agent.logs.log_files import log_file
from tests.integration.waiting import until


def write(tmp_path: Path, rank: int, text: str, number: int = 1, stream: str = "out") -> None:
    path = Path(log_file(str(tmp_path / "logs"), number, rank, stream))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        file.write(text)


def keep(tmp_path: Path, node: str = "0", told: list[str] | None = None) -> StdOutErr:
    (tmp_path / "logs").mkdir(exist_ok=True)
    tell = (told if told is not None else []).append
    return StdOutErr(str(tmp_path / "logs"), str(tmp_path / "share"), str(tmp_path / f"{node}.json"), tell)


def shown(tmp_path: Path, name: str) -> str:
    try:
        return (tmp_path / "share" / name).read_text()
    except FileNotFoundError:
        return ""


def test_lines_appear_while_the_workers_write(tmp_path: Path) -> None:
    files = keep(tmp_path)
    files.own(1, {0: "-0", 1: "-1"})
    write(tmp_path, 0, "first\n")
    until(lambda: shown(tmp_path, "stdout-0.txt") == "first\n", "the first line")
    write(tmp_path, 0, "second\n")
    write(tmp_path, 1, "oops\n", stream="err")
    write(tmp_path, 2, "not ours\n")
    until(lambda: shown(tmp_path, "stdout-0.txt") == "first\nsecond\n", "the second line")
    files.finish()
    assert shown(tmp_path, "stderr-1.txt") == "oops\n"
    assert not (tmp_path / "share/stdout-2.txt").exists()


def test_ranks_of_several_nodes_never_share_a_line(tmp_path: Path) -> None:
    nodes = [keep(tmp_path, str(node)) for node in range(3)]
    for rank, node in enumerate(nodes):
        node.own(1, {rank: ""})

    def work(rank: int) -> None:
        for n in range(300):
            write(tmp_path, rank, f"{rank} {n}\n")

    writers = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    write(tmp_path, 0, "unfinished")
    for node in nodes:
        node.finish()
    lines = shown(tmp_path, "stdout.txt").splitlines()
    assert sorted(lines) == sorted(["unfinished", *(f"{rank} {n}" for rank in range(3) for n in range(300))])
    for rank in range(3):
        own = [line for line in lines if line.startswith(f"{rank} ")]
        assert own == [f"{rank} {n}" for n in range(300)]


def test_another_round_goes_on_in_the_same_file(tmp_path: Path) -> None:
    files = keep(tmp_path)
    files.own(1, {0: "-0"})
    write(tmp_path, 0, "one\n")
    files.own(2, {0: "-0"})
    write(tmp_path, 0, "two\n", number=2)
    files.finish()
    assert shown(tmp_path, "stdout-0.txt") == "one\ntwo\n"


def test_a_line_that_a_killed_worker_did_not_finish_stays_before_the_next_round(tmp_path: Path) -> None:
    files = keep(tmp_path)
    files.own(1, {0: "-0"})
    write(tmp_path, 0, "one\ncut o")
    until(lambda: shown(tmp_path, "stdout-0.txt"), "the first line")
    files.own(2, {0: "-0"})
    write(tmp_path, 0, "two\n", number=2)
    until(lambda: "two" in shown(tmp_path, "stdout-0.txt"), "the next round's line")
    files.finish()
    assert shown(tmp_path, "stdout-0.txt") == "one\ncut o\ntwo\n"


@pytest.mark.parametrize("name", ["", "-wk-0"])
def test_a_round_is_whole_before_the_next_whatever_ranks_it_has(tmp_path: Path, name: str) -> None:
    files = keep(tmp_path)
    files.own(1, {1: name})
    write(tmp_path, 1, "one\ncut o")
    until(lambda: shown(tmp_path, f"stdout{name}.txt"), "the first line")
    files.own(2, {0: name})
    write(tmp_path, 0, "two\n", number=2)
    until(lambda: "two" in shown(tmp_path, f"stdout{name}.txt"), "the next round's line")
    files.finish()
    assert shown(tmp_path, f"stdout{name}.txt") == "one\ncut o\ntwo\n"


def test_what_an_agent_finds_of_several_rounds_is_delivered_in_their_order(tmp_path: Path) -> None:
    rounds = ["".join(f"{number} {count:0100d}\n" for count in range(30_000)) for number in (1, 2)]  # blocks: 3 each
    for number, text in enumerate(rounds, 1):
        write(tmp_path, 0, text, number)
    (tmp_path / "0.json").write_text(json.dumps({"done": {}, "names": {n: {"0": "-0"} for n in "12"}, "adding": None}))
    keep(tmp_path).finish()
    assert shown(tmp_path, "stdout-0.txt") == "".join(rounds)


def test_a_node_that_comes_late_with_half_a_line_breaks_no_other(tmp_path: Path) -> None:
    one, other = keep(tmp_path, "0"), keep(tmp_path, "1")
    write(tmp_path, 0, "cut o")
    one.own(1, {0: "-0"})
    one.finish()
    other.own(2, {0: "-0"})
    write(tmp_path, 0, "whole\nnext ", number=2)
    until(lambda: "next" in shown(tmp_path, "stdout-0.txt"), "half of the other's line, after a while")
    write(tmp_path, 0, "line\n", number=2)
    other.finish()
    assert shown(tmp_path, "stdout-0.txt") == "cut o\nwhole\nnext line\n"


class Killed(BaseException):
    """Stands for SIGKILL: nothing after it happens."""


@pytest.mark.parametrize("moment", ["before", "half", "after"])
def test_nothing_is_lost_or_repeated_when_the_agent_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    real, left = os.write, {"before": 2, "half": 2, "after": 2}

    def write_and_die(fd: int, data: bytes) -> int:
        left[moment] -= 1
        if left[moment] == 0:
            if moment != "before":
                real(fd, data[: len(data) // 2] if moment == "half" else data)
            raise Killed
        return real(fd, data)

    first = keep(tmp_path)
    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda args: ended.set())
    first.own(1, {0: "", 1: ""})
    write(tmp_path, 0, "delivered\n")
    until(lambda: shown(tmp_path, "stdout.txt") == "delivered\n", "the first line")
    left[moment] = 1
    monkeypatch.setattr(os, "write", write_and_die)
    write(tmp_path, 1, "abc\ndef\n")
    assert ended.wait(30), "the thread died in the middle of an addition"
    monkeypatch.setattr(os, "write", real)
    write(tmp_path, 0, "later\n")
    second = keep(tmp_path)
    second.finish()
    assert sorted(shown(tmp_path, "stdout.txt").splitlines()) == ["abc", "def", "delivered", "later"]


def test_another_nodes_line_at_our_place_is_not_taken_for_ours(tmp_path: Path) -> None:
    write(tmp_path, 0, "mine\n")
    (tmp_path / "share").mkdir()
    (tmp_path / "share/stdout.txt").write_text("of the other\n")
    state = {"done": {}, "names": {"1": {"0": ""}}, "adding": ["1/0/out", 5, "stdout.txt", 0]}
    (tmp_path / "0.json").write_text(json.dumps(state))
    keep(tmp_path).finish()
    assert shown(tmp_path, "stdout.txt") == "of the other\nmine\n"


def test_a_damaged_ledger_is_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "0.json").write_text("{")
    assert Ledger(str(tmp_path / "0.json")).done == {}


def test_a_place_that_cannot_be_written_to_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchai_output, "AGAIN", 0.01)
    told: list[str] = []
    files = keep(tmp_path, told=told)
    (tmp_path / "share").write_text("a file in the way")
    files.own(1, {0: "-0"})
    write(tmp_path, 0, "line\n")
    until(lambda: told, "a word about it")
    (tmp_path / "share").unlink()
    until(lambda: shown(tmp_path, "stdout-0.txt") == "line\n", "the line")
    files.finish()
    assert len(told) == 1
    assert str(tmp_path / "share") in told[0]
