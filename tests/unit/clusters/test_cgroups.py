"""Where control groups for a node's limits can be made, what is written into them, and that they go with the node."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from petctl.clusters.local.controller import cgroups
from petctl.clusters.local.controller.cgroups import Parent

BOTH = {"memory": 1 << 30, "cpu": 1.5}


def system(tmp_path: Path, groups: str, *mounts: tuple[str, str, str]) -> Path:
    """A /proc/self; mounts: what is mounted, where and of which kind."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(groups)
    lines = (f"30 20 0:1 {root} {tmp_path}/{point} rw - {kind}\n" for root, point, kind in mounts)
    (proc / "mountinfo").write_text("20 1 0:9 / / rw - ext4 /dev/x rw\n" + "".join(lines))
    return proc


def group(path: Path, **files: str) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in {"cgroup.procs": "", **files}.items():
        (path / name.replace("__", ".")).write_text(text)
    return path


def state(tmp_path: Path) -> Path:
    path = tmp_path / "jobs" / "x-2222" / "nodes" / "0"
    path.mkdir(parents=True)
    return path


def old(tmp_path: Path) -> Path:
    group(tmp_path / "memory" / "a")
    group(tmp_path / "cpu")
    mounts = (("/", "memory", "cgroup cgroup rw,memory"), ("/", "cpu", "cgroup cgroup rw,cpu,cpuacct"))
    return system(tmp_path, "4:memory:/a\n1:cpu,cpuacct:/\n0::/\n", *mounts)


def new(tmp_path: Path, **own: str) -> Path:
    group(tmp_path / "all", cgroup__subtree_control="cpu memory\n")
    group(tmp_path / "all" / "user", cgroup__subtree_control="cpu memory\n")
    group(tmp_path / "all" / "user" / "shell", **own)
    return system(tmp_path, "0::/user/shell\n", ("/", "all", "cgroup2 cgroup2 rw"))


def test_version_1_limits_below_the_own_groups(tmp_path: Path) -> None:
    made = cgroups.make(state(tmp_path), BOTH, old(tmp_path))
    assert [str(Path(path).parent) for path in made] == [f"{tmp_path}/cpu", f"{tmp_path}/memory/a"]
    cpu, memory = map(Path, made)
    assert memory.name.startswith("petctl-x-2222-0-")
    assert (memory / "memory.limit_in_bytes").read_text() == (memory / "memory.memsw.limit_in_bytes").read_text()
    assert (memory / "memory.limit_in_bytes").read_text() == "1073741824\n"
    assert (cpu / "cpu.cfs_period_us").read_text() == "100000\n"
    assert (cpu / "cpu.cfs_quota_us").read_text() == "150000\n"


def test_version_2_limits_beside_the_own_group(tmp_path: Path) -> None:
    (made,) = cgroups.make(state(tmp_path), BOTH, new(tmp_path))
    assert str(Path(made).parent) == f"{tmp_path}/all/user"
    files = {name: Path(made, name).read_text().strip() for name in ("memory.max", "memory.swap.max", "cpu.max")}
    assert files == {"memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000"}


def test_a_container_sees_its_own_group_as_the_topmost(tmp_path: Path) -> None:
    group(tmp_path / "memory")
    proc = system(tmp_path, "4:memory:/docker/f00\n", ("/docker/f00", "memory", "cgroup cgroup rw,memory"))
    found, refused = cgroups.parents({"memory": 1}, proc)
    assert (found, refused) == ({"memory": Parent(1, tmp_path / "memory")}, {})


def test_no_limit_is_escaped(tmp_path: Path) -> None:
    found, refused = cgroups.parents(BOTH, new(tmp_path, memory__max="1000\n", cpu__max="max 100000\n"))
    assert refused == {"memory": f"{tmp_path}/all/user/shell has a limit of its own"}
    assert found == {"cpu": Parent(2, tmp_path / "all" / "user")}


def test_what_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proc = new(tmp_path)
    (tmp_path / "all" / "user" / "cgroup.subtree_control").write_text("memory\n")
    assert cgroups.parents(BOTH, proc)[1] == {"cpu": f"{tmp_path}/all is not where the memory is limited"}
    (tmp_path / "all" / "cgroup.subtree_control").write_text("pids memory\n")
    assert cgroups.parents(BOTH, proc)[1] == {"cpu": f"{tmp_path}/all limits no cpu"}
    with pytest.raises(OSError, match="limits no cpu"):
        cgroups.make(state(tmp_path), BOTH, proc)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert cgroups.parents({"memory": 1}, proc)[1] == {"memory": f"{tmp_path}/all/user cannot be written"}
    (proc / "cgroup").write_text("")
    assert cgroups.parents({"memory": 1}, proc)[1] == {"memory": "no control groups are mounted"}


def test_groups_go_with_the_node_and_nothing_else_goes(tmp_path: Path) -> None:
    place, stranger = state(tmp_path), tmp_path / "somebodys"
    stranger.mkdir()
    (place / "cgroups").write_text(f"{stranger}\n")
    made = [Path(path) for path in cgroups.make(place, BOTH, old(tmp_path))]
    for path in made:
        for file in path.iterdir():  # which a real one has without being a directory with anything in it
            file.unlink()
    cgroups.remove(place)
    assert not any(path.exists() for path in made)
    assert stranger.exists()
    stranger.rmdir()
    cgroups.remove(place)
    assert not (place / "cgroups").exists()
    cgroups.remove(place)
