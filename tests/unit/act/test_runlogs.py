"""Logs of a run, brought into ACT's files: what is new, what is kept, what is shown of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from petctl.clusters.base import LogLine
from petctl.compat.act.run_logs import END, fetch, last_lines
from petctl.errors import UsageError
from petctl.jobs.status import SizeStatus, Status


class Run:
    """A run whose logs are files of this machine, or lines that a cluster tells."""

    id = "jianfw_1563257309_60ce2fc7"

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.state, self.submitted = "running", 100.0
        self.lines: list[LogLine] = []
        self.asked: list[dict[str, Any]] = []

    def status(self) -> Status:
        return Status(
            id=self.id,
            name="x",
            cluster="local",
            state=self.state,
            since=0.0,
            sentence="",
            size=SizeStatus(min=1, wanted=1, max=1),
            submitted=self.submitted,
            directory=str(self.directory or ""),
        )

    def logs(self, **wish: Any) -> Iterator[LogLine]:
        self.asked.append(wish)
        return iter(self.lines)

    def write(self, name: str, text: str) -> None:
        """Adds to a log file, as a worker does."""
        assert self.directory
        path = self.directory / "logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(text)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "job")


def brought(run: Run, assets: Path, full: bool = True) -> dict[str, str]:
    paths = fetch(run, assets, full)  # type: ignore[arg-type]
    assert all(path.parent == assets / run.id / "azureml-logs" for path in paths)
    return {path.name: path.read_text() for path in paths}


def test_one_file_for_each_stream_of_a_rank_and_node(run: Run, tmp_path: Path) -> None:
    run.write("round-0001/rank-10.out", "ten\n")
    run.write("round-0001/rank-2.out", "two\n")
    run.write("round-0001/rank-0.out", "")
    run.write("round-0001/rank-0.err", "a warning\n")
    run.write("round-0001/rank-2.err", "")
    run.write("round-0001/rank-2.error.json", "{}")
    run.write("prepare-0.out", "installed\n")
    assert brought(run, tmp_path / "assets") == {
        "70_driver_log_rank_0.txt": "",
        "70_driver_log_rank_0.err.txt": "a warning\n",
        "70_driver_log_rank_2.txt": "two\n",
        "70_driver_log_rank_10.txt": "ten\n",
        "55_prepare-0.txt": "installed\n",
    }
    assert next(iter(brought(run, tmp_path / "assets"))) == "70_driver_log_rank_0.txt"


def test_what_mpirun_and_preparation_say(run: Run, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    run.write("prepare-1.out", "installing\n")
    assert brought(run, assets) == {"55_prepare-1.txt": "installing\n"}
    run.write("prepare-1.out", "installed\n")
    run.write("round-0001/launcher.err", "mpirun cannot start anything\n")
    assert last_lines(fetch(run, assets)) == ["mpirun cannot start anything"]  # type: ignore[arg-type]
    run.write("round-0002/rank-0.out", "")
    run.write("round-0002/launcher.out", "")
    run.write("round-0002/launcher.err", "mpirun noticed something\n")
    run.write("round-0002/launcher-1.err", "its daemon too\n")
    assert brought(run, assets) == {
        "70_driver_log_rank_0.txt": "",
        "60_mpirun.err.txt": "mpirun noticed something\n",
        "60_mpirun-1.err.txt": "its daemon too\n",
        "55_prepare-1.txt": "installing\ninstalled\n",
    }
    assert [path.name[:10] for path in fetch(run, assets)][1] == "60_mpirun."  # type: ignore[arg-type]


def test_only_what_is_new_is_read(run: Run, tmp_path: Path) -> None:
    run.write("round-0001/rank-0.out", "one\ntw")
    assert brought(run, tmp_path / "assets") == {"70_driver_log_rank_0.txt": "one\ntw"}
    log = tmp_path / "job" / "logs" / "round-0001" / "rank-0.out"
    log.write_text("XXX\nXXo\nthree\n")  # what was read before is not read again
    run.write("prepare-0.out", "late\n")
    assert brought(run, tmp_path / "assets")["70_driver_log_rank_0.txt"] == "one\ntwo\nthree\n"


def test_a_killed_query_leaves_nothing_twice(run: Run, tmp_path: Path) -> None:
    run.write("round-0001/rank-0.out", "one\n")
    [path] = fetch(run, tmp_path / "assets")  # type: ignore[arg-type]
    run.write("round-0001/rank-0.out", "two\n")
    with path.open("a") as file:
        file.write("tw")  # killed before it could write down how far it was
    assert brought(run, tmp_path / "assets") == {"70_driver_log_rank_0.txt": "one\ntwo\n"}
    path.unlink()
    assert brought(run, tmp_path / "assets") == {"70_driver_log_rank_0.txt": "one\ntwo\n"}


def test_the_newest_round_has_the_plain_names(run: Run, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    run.write("round-0001/rank-0.out", "first\n")
    run.write("round-0001/rank-1.out", "first of 1\n")
    brought(run, assets)
    run.write("round-0001/rank-0.out", "its end\n")
    run.write("round-0002/rank-0.out", "second\n")
    run.write("round-0002/rank-0.err", "bad\n")
    expected = {
        "70_driver_log_rank_0.txt": "second\n",
        "70_driver_log_rank_0.err.txt": "bad\n",
        "70_driver_log_rank_0_round_1.txt": "first\nits end\n",
        "70_driver_log_rank_1_round_1.txt": "first of 1\n",
    }
    assert brought(run, assets) == expected
    assert list(brought(run, assets)) == list(expected)
    run.state = "succeeded"
    assert brought(run, assets) == brought(run, assets) == expected


def test_an_ended_run_is_brought_once(run: Run, tmp_path: Path) -> None:
    run.write("round-0001/rank-0.out", "one\n")
    run.state = "succeeded"
    paths = fetch(run, tmp_path / "assets")  # type: ignore[arg-type]
    said = yaml.safe_load((paths[0].parent / "log_status.yaml").read_text())
    assert (said["status"], said["is_full"]) == ("Completed", True)
    run.write("round-0001/rank-0.out", "nobody writes here any more\n")
    assert brought(run, tmp_path / "assets") == {"70_driver_log_rank_0.txt": "one\n"}
    assert fetch(run, tmp_path / "assets", full=False) == paths  # type: ignore[arg-type]
    run.submitted = 200.0  # removed, and its id used again
    assert "nobody" in brought(run, tmp_path / "assets")["70_driver_log_rank_0.txt"]


def test_only_the_end_where_that_is_wanted(run: Run, tmp_path: Path) -> None:
    assets = tmp_path / "assets"
    text = "".join(f"line {number}\n" for number in range(20_000))
    run.write("round-0001/rank-0.out", text)
    end = brought(run, assets, full=False)["70_driver_log_rank_0.txt"]
    assert len(end) <= END and text.endswith(end) and end.startswith("line ")
    run.write("round-0001/rank-0.out", "more\n")
    run.state = "failed"
    assert brought(run, assets, full=False)["70_driver_log_rank_0.txt"].endswith("line 19999\nmore\n")
    assert brought(run, assets)["70_driver_log_rank_0.txt"] == text + "more\n"


def test_what_log_cap_has_dropped_is_said(run: Run, tmp_path: Path) -> None:
    run.write("round-0001/rank-0.out", "begin\n")
    log = tmp_path / "job" / "logs" / "round-0001" / "rank-0.out"
    os.truncate(log, 1 << 20)
    run.write("round-0001/rank-0.out", "end\n")
    text = brought(run, tmp_path / "assets")["70_driver_log_rank_0.txt"]
    assert "bytes were dropped here" in text and text.rstrip("\0").endswith("end\n") and len(text) < 10_000


@pytest.mark.parametrize("text", ["", "not: [yaml", "[1, 2]", "{logs: {x: 1}}", "{logs: {1/0/out: [1]}}"])
def test_a_damaged_note_costs_only_a_second_reading(run: Run, tmp_path: Path, text: str) -> None:
    run.write("round-0001/rank-0.out", "one\n")
    [path] = fetch(run, tmp_path / "assets")  # type: ignore[arg-type]
    (path.parent / "log_status.yaml").write_text(text)
    assert brought(run, tmp_path / "assets") == {"70_driver_log_rank_0.txt": "one\n"}


def test_lines_of_a_cluster_elsewhere(tmp_path: Path) -> None:
    run = Run()
    assert brought(run, tmp_path) == {}
    run.lines = [
        LogLine(1, 1, "out", b"b\n", "0"),
        LogLine(1, 0, "out", b"a\n", "0"),
        LogLine(1, 0, "err", b"e\n", "0"),
    ]
    first = {
        "70_driver_log_rank_0.txt": "a\n",
        "70_driver_log_rank_0.err.txt": "e\n",
        "70_driver_log_rank_1.txt": "b\n",
    }
    assert brought(run, tmp_path) == first
    # Its first pod is gone, with what it had printed; the second one is in another round.
    run.lines = [LogLine(2, 0, "out", b"c\n", "0")]
    run.state = "succeeded"
    expected = {
        "70_driver_log_rank_0.txt": "c\n",
        "70_driver_log_rank_0_round_1.txt": "a\n",
        "70_driver_log_rank_0_round_1.err.txt": "e\n",
        "70_driver_log_rank_1_round_1.txt": "b\n",
    }
    assert brought(run, tmp_path) == expected
    asked = len(run.asked)
    assert brought(run, tmp_path) == expected and len(run.asked) == asked
    assert [path.name for path in (tmp_path / run.id / "azureml-logs").iterdir() if path.name.startswith(".")] == []


def test_the_end_of_lines_elsewhere(tmp_path: Path) -> None:
    run = Run()
    run.lines = [LogLine(1, 0, "out", b"a\n", "0")]
    assert brought(run, tmp_path, full=False) == {"70_driver_log_rank_0.txt": "a\n"}
    assert run.asked[-1]["tail"] == 1000
    run.lines = [LogLine(1, 0, "out", b"b", "0")]
    assert brought(run, tmp_path, full=False) == {"70_driver_log_rank_0.txt": "b"}
    assert brought(run, tmp_path) == {"70_driver_log_rank_0.txt": "b"}
    assert run.asked[-1]["tail"] is None


def test_a_place_that_cannot_be_written_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "assets").write_text("a file")
    with pytest.raises(UsageError, match=r"cannot write the logs of jianfw_1563257309_60ce2fc7 to .*AML_LOG_FOLDER"):
        fetch(run, tmp_path / "assets")  # type: ignore[arg-type]


def written(folder: Path, **texts: str) -> list[Path]:
    names = {
        "out": "70_driver_log_rank_0.txt",
        "err": "70_driver_log_rank_0.err.txt",
        "one": "70_driver_log_rank_1.txt",
    }
    paths = [folder / names[name] for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


def test_the_last_lines_are_those_of_rank_0(tmp_path: Path) -> None:
    many = "".join(f"{number}\n" for number in range(500))
    assert last_lines([]) == []
    assert last_lines(written(tmp_path, out=many, one="x\n")) == [str(number) for number in range(400, 500)]
    assert last_lines(written(tmp_path, out="a\n\nb"), 2) == ["", "b"]
    both = last_lines(written(tmp_path, out=many, err="oh\nno\n"))
    assert (len(both), both[0], both[-3:]) == (100, "402", ["499", "oh", "no"])
    half = last_lines(written(tmp_path, out=many, err=many))
    assert (len(half), half[49:51]) == (100, ["499", "450"])
    mostly = last_lines(written(tmp_path, out="only\n", err=many))
    assert (len(mostly), mostly[:2]) == (100, ["only", "401"])
    assert last_lines(written(tmp_path, out="", err="e\n")) == ["e"]


def test_a_progress_bar_is_one_line(tmp_path: Path) -> None:
    assert last_lines(written(tmp_path, out="10%\r50%\r100%\r\nnext\r\n")) == ["100%", "next"]
