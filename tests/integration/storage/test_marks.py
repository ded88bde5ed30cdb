"""Containers that blobfuse has written to: an empty blob stands for each folder, and is in the way of none."""

from __future__ import annotations

from pathlib import Path

from petctl.storage.core.files import Depot, direct
from petctl.storage.core.grants import Grants
from petctl.submission.store_grants import grant_of, pin
from tests.integration.storage.conftest import Scene, tree
from tests.integration.storage.servers import Azurite


def test_blobs_that_stand_for_folders_are_no_files(azurite: Azurite, tmp_path: Path) -> None:
    name = "blobfuse"
    scene = Scene(azurite, azurite.make(name), tmp_path, azurite.environment())
    blobs = azurite.client().get_container_client(name)
    for folder in ("x", "x/sub", "x/sub/none"):
        blobs.upload_blob(folder, b"", metadata={"hdi_isfolder": "true"})
    for file in ("x/sub-1", "x/sub/a", "x/sub/b"):
        blobs.upload_blob(file, b"12345")
    files = ["sub-1", "sub/a", "sub/b"]
    for target in (tmp_path / "back", f"{scene.root}/y"):
        assert scene.copy(f"{scene.root}/x", target).files == len(files)
    assert sorted(tree(tmp_path / "back")) == files
    assert sorted(blob.name for blob in blobs.list_blobs("y/")) == [f"y/{file}" for file in files]
    assert [row["path"] for row in scene.json("ls", f"{scene.root}/x")] == ["sub", "sub-1"]
    known = scene.surroundings()
    depot = Depot(direct(Grants({"in": grant_of(pin(scene.root, known), known, False, "x")})))
    assert sorted(entry.path for entry in depot.entries("in")) == files
    scene.petctl("rm", "--yes", f"{scene.root}/x")
    assert [blob.name for blob in blobs.list_blobs("x/")] == []
