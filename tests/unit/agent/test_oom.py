"""How often the kernel has killed for memory, read from wherever this machine tells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from petctl.agent.health.oom import MemoryWatch
from petctl.agent.health.root_cause import cause_of


@pytest.mark.parametrize(
    ("groups", "file"),
    [
        ("0::/job/a\n", "cgroup/job/a/memory.events"),
        ("0::/not/seen/from/a/container\n", "cgroup/memory.events"),
        ("9:cpu:/x\n4:memory:/job/a\n0::/\n", "cgroup/memory/job/a/memory.oom_control"),
        ("", "proc/vmstat"),
    ],
)
def test_every_kill_is_noticed_once(tmp_path: Path, groups: str, file: str) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text(groups)
    counter = tmp_path / file
    counter.parent.mkdir(parents=True, exist_ok=True)
    counter.write_text("oom 7\noom_kill 2\n")
    watch = MemoryWatch(str(tmp_path / "proc"), str(tmp_path / "cgroup"))
    assert cause_of(137, "SIGKILL", "", "", memory=watch) == "killed"
    counter.write_text("oom 9\noom_kill 3\n")
    lost = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. "
    assert cause_of(139, "SIGSEGV", "", "", memory=watch) == "segfault"
    assert cause_of(137, "SIGKILL", "", "", memory=watch) == "host-out-of-memory"
    assert cause_of(137, "SIGKILL", "", "", memory=watch) == "killed"
    assert cause_of(1, "", lost, "", memory=watch) == "dataloader"
    counter.write_text("oom 10\noom_kill 4\n")
    assert cause_of(1, "", lost, "", memory=watch) == "host-out-of-memory"


def test_a_machine_that_tells_nothing_has_killed_nothing(tmp_path: Path) -> None:
    assert not MemoryWatch(str(tmp_path), str(tmp_path)).killed()


def test_a_limit_is_told_where_it_was_reached(tmp_path: Path) -> None:
    own, proc = tmp_path / "cgroup" / "memory" / "a", tmp_path / "proc" / "self"
    own.mkdir(parents=True)
    proc.mkdir(parents=True)
    (proc / "cgroup").write_text("4:memory:/a\n0::/b\n")
    watch = MemoryWatch(str(tmp_path / "proc"), str(tmp_path / "cgroup"))
    assert watch.limit() == 0
    (own / "memory.oom_control").write_text("under_oom 0\noom_kill 1\n")
    (own / "memory.limit_in_bytes").write_text("1000\n")
    (own / "memory.max_usage_in_bytes").write_text("700\n")
    assert watch.limit() == 0, "the machine had no more"
    (own / "memory.memsw.max_usage_in_bytes").write_text("1000\n")
    assert watch.limit() == 1000
    (proc / "cgroup").write_text("0::/b\n")
    new = tmp_path / "cgroup" / "b"
    new.mkdir()
    (new / "memory.max").write_text("2000\n")
    for oom, limit in ((0, 0), (1, 2000)):
        (new / "memory.events").write_text(f"max 9\noom {oom}\noom_kill 1\n")
        assert watch.limit() == limit
    (new / "memory.max").write_text("max\n")
    assert watch.limit() == 0
