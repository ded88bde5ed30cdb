"""Objects whose names no file could have, and keys that may write but not look."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from petctl.errors import StoreError
from petctl.storage.core.signing import blob_sas
from petctl.storage.stores import paging
from petctl.storage.stores.endpoint import Entry
from petctl.storage.stores.location import parse_location
from petctl.storage.transfer.plan import open_end
from tests.integration.storage.conftest import Scene, fill, tree
from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY, Azurite


def put(scene: Scene, key: str, data: bytes = b"odd") -> None:
    """By the official SDK, since petctl has no word for such names."""
    if scene.root.startswith("s3"):
        scene.server.client().put_object(Bucket=scene.root.removeprefix("s3://"), Key=key, Body=data)
    else:
        container = scene.server.client().get_container_client(scene.root.rpartition("/")[2])
        container.upload_blob(key, data)


def names(scene: Scene, path: str) -> list[str]:
    return sorted(entry["path"] for entry in scene.json("ls", "-r", f"{scene.root}/{path}"))


@pytest.mark.parametrize("scene", ["az"], indirect=True)
def test_empty_parts_of_a_name_are_shown_and_removed_as_they_are(scene: Scene) -> None:
    scene.copy(fill(scene.folder / "source", {"a/b": 3, "& <x>": 3}), f"{scene.root}/x")
    put(scene, "x/a//b")
    assert names(scene, "x") == ["& <x>", "a//b", "a/b"]
    assert {entry["path"] for entry in scene.json("ls", f"{scene.root}/x/a")} == {"b", ""}
    with pytest.raises(StoreError, match="'a//b' cannot be a file's"):
        scene.copy(f"{scene.root}/x", scene.folder / "back")
    scene.petctl("rm", "--yes", f"{scene.root}/x/a/")
    assert names(scene, "x") == ["& <x>"]


def test_an_object_that_only_stands_for_a_folder_is_not_a_file(scene: Scene) -> None:
    source = fill(scene.folder / "source", {"sub/file": 3})
    scene.copy(source, f"{scene.root}/x")
    put(scene, "x/sub/", b"")
    put(scene, "x/empty/", b"")
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)
    assert scene.json("sync", "--delete", "--yes", source, f"{scene.root}/x")["removed"] == 0


def test_a_listing_of_several_pages(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    source = fill(scene.folder / "source", {f"{number % 7}/& {number:02d}": number for number in range(1, 24)})
    scene.copy(source, f"{scene.root}/x")
    place = open_end(parse_location(f"{scene.root}/x"), scene.surroundings()).place
    whole = sorted((entry.path, entry.size) for entry in place.entries("x"))
    assert whole == sorted((f"{number % 7}/& {number:02d}", number) for number in range(1, 24))
    monkeypatch.setattr(paging, "PAGE", {"s3": 5, "az": 5})
    assert sorted((entry.path, entry.size) for entry in place.entries("x")) == whole
    folders = [Entry(str(number), 0, 0.0, folder=True) for number in range(7)]
    assert sorted(place.children("x"), key=lambda entry: entry.path) == folders


def test_a_sas_that_may_only_write_is_enough_to_send(azurite: Azurite, tmp_path: Path) -> None:
    root = azurite.make(f"write-{time.time_ns()}")
    environment = azurite.environment()
    open_scene = Scene(azurite, root, tmp_path, dict(environment))
    del environment["AZURE_STORAGE_ACCOUNT_KEY"]
    now = datetime.now(timezone.utc)
    times = now - timedelta(hours=1), now + timedelta(hours=1)
    environment["AZURE_STORAGE_SAS_TOKEN"] = blob_sas(
        ACCOUNT, ACCOUNT_KEY, root.rpartition("/")[2], "", "cw", *times, https=False
    )
    scene = Scene(azurite, root, tmp_path, environment)
    source = fill(tmp_path / "source", {"small": 10, "large": 9 << 20, "sub/x": 5})
    for _ in range(2):  # what is there cannot be seen, so it is sent again
        assert scene.json("up", source, f"{root}/x")["files"] == 3
    scene.petctl("up", source / "small", f"{root}/single")
    for words in (("down", f"{root}/x"), ("ls", f"{root}/x"), ("sync", "--delete", "--yes", source, f"{root}/x")):
        assert "does not permit listing and reading" in scene.petctl(*words, code=5).stderr
    open_scene.copy(f"{root}/x", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
