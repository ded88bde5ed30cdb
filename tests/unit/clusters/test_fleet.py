"""Clusters as resources, without jobs and without processes: what is made is there, what is deleted is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from petctl.clusters.base import AlreadyExists
from petctl.clusters.local.pools import pool
from petctl.clusters.local.pools.mounts import mounted_below, unmount
from petctl.clusters.local.pools.nodes import looked, prepared
from petctl.clusters.local.pools.setup import last_lines
from petctl.clusters.local.pools.spec import FleetDirectory, read_spec, write_spec
from petctl.controller.journals.records import History
from petctl.errors import NotFound, UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("petctl.clusters.local.pools.setup._start_detached", lambda *_: None)
    return tmp_path / "home"


def test_a_cluster_is_made_read_and_deleted(home: Path) -> None:
    view = pool.create(home, "team", {"nodes": 2})
    assert (view["name"], view["allocation"], view["nodes"]) == ("team", "steady", 2)
    assert view["scale"] == {"mode": "manual", "nodes": 2}
    assert view["counts"] == {"idle": 2, "running": 0, "preparing": 0, "leaving": 0, "unusable": 0}
    assert pool.names(home) == ["team"]
    assert [row["state"] for row in pool.nodes(home, "team")] == ["idle", "idle"]
    pool.delete(home, "team")
    assert pool.names(home) == []
    assert list((home / "clusters").iterdir()) == []
    with pytest.raises(NotFound):
        pool.delete(home, "team")


def test_a_wrong_description_leaves_nothing(home: Path) -> None:
    with pytest.raises(UsageError):
        pool.create(home, "team", {"nodes": "two"})
    assert not home.exists()


def test_a_name_of_the_configuration_is_taken(home: Path, tmp_path: Path) -> None:
    (tmp_path / "petctl.yaml").write_text("clusters: {far: {kind: kubernetes}}\n")
    for name in ("far", "local", "k8s"):
        with pytest.raises(AlreadyExists):
            pool.create(home, name, {"nodes": 1})


def test_a_killed_creation_is_in_nobodys_way(home: Path) -> None:
    (home / "clusters" / "team").mkdir(parents=True)  # a cluster's directory has a cluster.json from the first moment
    assert pool.create(home, "team", {"nodes": 1})["nodes"] == 1


def test_auto_scale_begins_with_its_initial_size(home: Path) -> None:
    view = pool.create(home, "team", {"min": 0, "max": 2, "initial": 5})
    assert (view["scale"]["mode"], view["nodes"]) == ("auto", 2)
    assert pool.change(home, "team", nodes=1)["scale"] == {"mode": "manual", "nodes": 1}
    assert pool.change(home, "team", min=1, max=3, idle_time=5)["scale"] == {
        "mode": "auto",
        "min": 1,
        "max": 3,
        "idle_time": 5.0,
    }


def broken(home: Path) -> None:
    pool.create(home, "team", {"nodes": 1, "setup": "true"})
    with looked(home, "team") as database:
        prepared(database, 0, "no disk", 1.0)


def test_an_unusable_node_is_prepared_again_by_reset_and_by_resize(home: Path) -> None:
    broken(home)
    view = pool.read(home, "team")
    assert view["problems"] == ["node 0 is unusable: no disk"]
    assert pool.reset(home, "team", "0")["state"] == "preparing"
    with looked(home, "team") as database:
        prepared(database, 0, "no disk", 1.0)
    assert pool.change(home, "team", nodes=2)["counts"]["preparing"] == 2


def test_only_nodes_that_there_are_can_be_reset(home: Path) -> None:
    broken(home)
    with pytest.raises(NotFound, match="its nodes: 0"):
        pool.reset(home, "team", "1")


def test_links_to_directories_are_made_and_only_links_are_removed(home: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "precious").touch()
    pool.create(home, "team", {"nodes": 1, "mounts": [{"path": "in/data", "directory": str(data)}]})
    assert (pool.mount_root(home, "team") / "in" / "data" / "precious").exists()
    pool.delete(home, "team")
    assert (data / "precious").exists()


def test_a_deletion_that_was_killed_is_finished_by_the_next(home: Path, tmp_path: Path) -> None:
    pool.create(home, "team", {"nodes": 1, "mounts": [{"path": "data", "directory": str(tmp_path)}]})
    directory = FleetDirectory(home, "team")
    write_spec(directory, replace(read_spec(home, "team"), deleting=True))
    assert pool.read(home, "team")["allocation"] == "deleting"
    unmount(directory, read_spec(home, "team"))
    pool.delete(home, "team")
    assert list((home / "clusters").iterdir()) == []


def test_what_is_mounted_is_read_from_the_kernel() -> None:
    assert "/proc" in mounted_below(Path("/proc"))
    assert mounted_below(Path("/no/such/place")) == []


def test_the_end_of_an_output_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("\n".join(f"line {number}" for number in range(999)) + "\n\n")
    assert last_lines(tmp_path / "out") == "line 996 | line 997 | line 998"
    assert last_lines(tmp_path / "missing") == ""


def test_the_documentations_examples_hold(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import yaml

    page = (Path(__file__).parents[3] / "docs" / "clusters.md").read_text()
    (tmp_path / "srv" / "data").mkdir(parents=True)
    words = page.partition("```yaml\n")[2].partition("```")[0].replace("/srv", str(tmp_path / "srv"))
    document = yaml.safe_load(words)
    assert document.pop("idle_time") == "5m"
    view = pool.create(home, "lab", document)
    assert (view["nodes"], view["counts"]["preparing"], len(view["mounts"])) == (2, 2, 2)
    monkeypatch.setenv("PETCTL_HOME", str(home))
    code = page.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "docs/clusters.md", "exec"), {})
    assert pool.names(home) == ["lab"]


def test_a_job_that_waits_again_has_not_started_but_remembers_its_rounds() -> None:
    history = History()
    history.take({"kind": "started", "time": 1.0})
    history.take({"kind": "running", "time": 2.0, "round": 3, "nodes": ["0"], "world_size": 1, "spent": 2})
    history.take({"kind": "requeued", "time": 5.0})
    assert (history.started, history.round, history.spent) == (None, 3, 2)
    history.take({"kind": "started", "time": 9.0})
    assert history.started == 9.0
