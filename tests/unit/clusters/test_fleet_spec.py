"""A cluster's description: everything that is wrong is said at once, and what was kept is read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from petctl.clusters.base import find_cluster
from petctl.clusters.local.pools.description import sized, spec_from
from petctl.clusters.local.pools.spec import (
    FleetDirectory,
    FleetSpec,
    check_size,
    find_spec,
    fleet_names,
    read_spec,
    write_spec,
)
from petctl.errors import InternalError, NotFound, UsageError


def kept(home: Path, spec: FleetSpec) -> None:
    FleetDirectory(home, spec.name).path.mkdir(parents=True)
    write_spec(FleetDirectory(home, spec.name), spec)


def test_what_is_kept_is_read_back(tmp_path: Path) -> None:
    data = {
        "min": 1,
        "max": 4,
        "idle_time": 30,
        "deallocation": "wait",
        "gpus_per_node": 2,
        "setup": {"command": "true", "output": "/logs", "env": {"A": 1}, "secrets": {"KEY": "key"}},
        "mounts": [{"path": "data", "directory": str(tmp_path)}, {"path": "n/fs", "command": "mount x"}],
    }
    spec = spec_from("team", data)
    assert (spec.low, spec.high, spec.auto, spec.idle_time, spec.deallocation) == (1, 4, True, 30.0, "wait")
    assert spec.setup is not None
    assert spec.setup.env == {"A": "1"}
    kept(tmp_path, spec)
    assert find_spec(tmp_path, "team") == spec
    assert fleet_names(tmp_path) == ["team"]


def test_everything_that_is_wrong_is_said(tmp_path: Path) -> None:
    data: dict[str, Any] = {
        "node": 2,
        "nodes": -1,
        "gpus_per_node": "two",
        "initial": "one",
        "setup": {"output": "x"},
        "mounts": [
            {"path": "/abs", "directory": "/"},
            {"path": "a/../..", "command": "m"},
            {"path": "both", "directory": "/", "command": "m"},
            {"path": "none", "directory": "/no/such/directory"},
            {"path": "a", "command": "m"},
            {"path": "a/b", "command": "m"},
        ],
    }
    with pytest.raises(UsageError) as caught:
        spec_from("../team", data)
    text = str(caught.value)
    for word in (
        "'../team' must be",
        "node: unknown field; did you mean 'nodes'?",
        "nodes: expected a whole number of 0 or more, got -1",
        "gpus_per_node: expected a whole number",
        "initial: expected a whole number",
        "setup.command: is missing",
        "setup.output: expected an absolute path",
        "mounts[0].path: expected a relative path without .., got '/abs'",
        "got 'a/../..'",
        "mounts[2]: both must have either",
        "no directory /no/such/directory",
        "a/b lies within",
    ):
        assert word in text


@pytest.mark.parametrize(
    "words",
    [
        {"nodes": 1, "max": 2},
        {"min": 1},
        {"min": 3, "max": 2},
        {"max": 0},
        {"deallocation": "shoot"},
        {"idle_time": -1},
    ],
)
def test_sizes_that_make_no_sense(words: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        sized(FleetSpec("team"), **words)


def test_a_size_keeps_what_is_not_said() -> None:
    spec = sized(FleetSpec("team"), min=1, max=3, idle_time=5, deallocation="wait")
    assert sized(spec, max=5).size == spec.size.__class__(1, 5, 5.0, "wait")
    assert not sized(spec, nodes=2).auto


def test_auto_scale_refuses_what_it_can_never_give() -> None:
    with pytest.raises(UsageError, match=r"autoscale team --min 0 --max 3"):
        check_size(sized(FleetSpec("team"), min=0, max=2), 3)
    check_size(sized(FleetSpec("team"), nodes=2), 3)


def test_a_cluster_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    kept(tmp_path, sized(FleetSpec("team"), nodes=1))
    assert find_cluster("team", tmp_path).name == "team"
    for name in ("other", "../team", "clusters/team"):
        with pytest.raises(UsageError, match="there is no cluster"):
            find_cluster(name, tmp_path)


def test_a_cluster_that_is_being_deleted_takes_no_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    kept(tmp_path, FleetSpec("team", deleting=True))
    with pytest.raises(UsageError, match="is being deleted"):
        find_cluster("team", tmp_path)


def test_what_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="petctl cluster create"):
        read_spec(tmp_path, "team")
    kept(tmp_path, FleetSpec("team"))
    for text in ("{", "{}", '{"name": "team", "mounts": [1]}'):
        FleetDirectory(tmp_path, "team").spec.write_text(text)
        with pytest.raises(InternalError, match=r"cluster\.json is damaged"):
            read_spec(tmp_path, "team")
