"""Mapped folders as words of `petctl data`: both ends from the map, and nothing removed by mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.storage.conftest import Scene, fill, tree


@pytest.fixture
def mapped(scene: Scene) -> Scene:
    """A project whose folder data is in the store, and on another cluster in another place of it."""
    folders = {"data": f"{scene.root}/data", "data/apart": f"{scene.root}/apart"}
    lab = {"kind": "local", "folders": {"data": f"{scene.root}/lab"}}
    (scene.folder / "petctl.yaml").write_text(json.dumps({"folders": folders, "clusters": {"lab": lab}}))
    fill(scene.folder / "data", {"voc20/a": 10, "voc20/sub/b": 20, "coco/c": 30})
    return scene


def listed(scene: Scene, location: str) -> list[str]:
    return sorted(entry["path"] for entry in scene.json("ls", "-r", location))


def test_up_and_down_know_both_ends(mapped: Scene) -> None:
    before = tree(mapped.folder / "data" / "voc20")
    mapped.petctl("up", "data/voc20")
    assert listed(mapped, f"{mapped.root}/data") == ["voc20/a", "voc20/sub/b"]
    for path in (mapped.folder / "data" / "voc20" / "a", mapped.folder / "data" / "voc20" / "sub" / "b"):
        path.unlink()
    mapped.petctl("down", "./data/voc20/")
    assert tree(mapped.folder / "data" / "voc20") == before
    mapped.petctl("up", "data/voc20/a")
    mapped.petctl("up", "@lab:data/coco")
    assert listed(mapped, "@lab:data") == listed(mapped, f"{mapped.root}/lab") == ["coco/c"]


def test_folders_of_two_clusters(mapped: Scene) -> None:
    mapped.petctl("up", "data/voc20")
    mapped.petctl("cp", "@data/voc20", "@lab:data/voc20")
    assert listed(mapped, "@lab:data") == ["voc20/a", "voc20/sub/b"]
    mapped.petctl("sync", "data/coco", "@lab:data/voc20", "--delete", "--yes")
    assert listed(mapped, "@lab:data") == ["voc20/c"]
    assert mapped.json("du", "@data")[0]["files"] == 2
    assert "lab/voc20/c" in mapped.petctl("url", "@lab:data/voc20/c").stdout


def test_words_that_could_mean_either_are_refused_where_it_matters(mapped: Scene) -> None:
    mapped.petctl("up", "data/voc20")
    where = f"{mapped.root}/data/voc20"
    for verb in ("rm", "url"):
        refused = mapped.petctl(verb, "data/voc20", code=2).stderr
        assert f"mapped to {where}: use @data/voc20 for that, or ./data/voc20 for the local one" in refused
    mapped.petctl("rm", "--yes", "./data/voc20")
    assert not (mapped.folder / "data" / "voc20").exists()
    assert listed(mapped, where) == ["a", "sub/b"]
    gone = mapped.petctl("ls", "data/voc20", code=4).stderr
    assert f"it is mapped to {where}: use @data/voc20" in gone
    assert "use @data/voc20" in mapped.petctl("down", "data/voc20", "elsewhere", code=2).stderr
    mapped.petctl("rm", "--yes", "@data/voc20")
    assert f"{mapped.root}/data does not exist" in mapped.petctl("ls", "@data", code=4).stderr


def test_wrong_words_say_what_to_do(mapped: Scene) -> None:
    assert "is in no mapped folder; the mapped folders are: data (" in mapped.petctl("up", "models", code=2).stderr
    assert "is in no mapped folder" in mapped.petctl("down", "models/a", code=2).stderr
    assert "give both a source and a destination" in mapped.petctl("up", f"{mapped.root}/data", code=2).stderr
    assert "has data/apart in it, mapped elsewhere" in mapped.petctl("up", "data", code=2).stderr
    assert "no cluster 'moon'" in mapped.petctl("ls", "@moon:data", code=2).stderr
    mapped.petctl("up", "data", "@data")  # with both ends it is clear


def test_from_a_subdirectory(mapped: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    root, mapped.folder = mapped.folder, mapped.folder / "data"
    mapped.petctl("up", "voc20")
    assert listed(mapped, "@data") == ["voc20/a", "voc20/sub/b"]
    assert Path(root, "data", "voc20", "a").exists()
