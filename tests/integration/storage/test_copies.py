"""Files go up, down and across, and are the same afterwards; what is there already is not sent again."""

from __future__ import annotations

import os

import pytest

from petctl.errors import Damaged, NoSuchPlace, StoreError, UsageError
from tests.integration.storage.conftest import Proxy, Scene, fill, tree

MIB = 1 << 20
NAMES = {
    "empty": 0,
    "one": 1,
    "just whole": 8 * MIB,
    "deep/er/and deeper/file": 12_345,
    "ü/ñ#?%20&+=;,@~*'[x]{y}.bin": 100,
    "large": 20 * MIB + 17,
}


def test_there_and_back(scene: Scene) -> None:
    source = fill(scene.folder / "source", NAMES)
    up = scene.copy(source, f"{scene.root}/some where")
    assert (up.files, up.bytes, up.skipped) == (len(NAMES), sum(NAMES.values()), 0)
    down = scene.copy(f"{scene.root}/some where", scene.folder / "back")
    assert (down.files, down.bytes) == (up.files, up.bytes)
    assert tree(scene.folder / "back") == tree(source)


def test_what_is_there_is_skipped_in_both_directions(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", NAMES)
    scene.copy(source, f"{scene.root}/x")
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    proxy.take()
    assert scene.copy(source, f"{scene.root}/x").files == 0
    assert scene.copy(f"{scene.root}/x", scene.folder / "back").files == 0
    assert scene.copy(f"{scene.root}/x", source, checksum=True).files == 0
    passed = proxy.take()
    assert sum(one.sent for one in passed if one.method == "PUT") == 0
    assert sum(one.received for one in passed) < MIB


@pytest.mark.parametrize("moment", [0.0, 3600.0, -3600.0])
def test_a_file_changed_without_a_change_of_size_is_sent_again(scene: Scene, moment: float) -> None:
    source = fill(scene.folder / "source", {"a": 1000, "b": 9 * MIB})
    scene.copy(source, f"{scene.root}/x")
    before = (source / "a").stat().st_mtime
    fill(source, {"a": 1000, "b": 9 * MIB}, seed=2)
    for name in ("a", "b"):
        os.utime(source / name, (before + moment, before + moment))
    # An older time than that of the copy is what a restored file has; only checksums tell.
    tally = scene.copy(source, f"{scene.root}/x", checksum=moment < 0)
    assert (tally.files, tally.skipped) == (2, 0)
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def test_across_stores_and_within_this_machine(seaweedfs, azurite, scene: Scene) -> None:
    source = fill(scene.folder / "source", NAMES)
    scene.environment = {**seaweedfs.environment(), **azurite.environment()}
    name = f"across-{scene.root.rpartition('-')[2]}"
    other = (azurite if scene.root.startswith("s3") else seaweedfs).make(name)
    scene.copy(source, f"{scene.root}/a")
    scene.copy(f"{scene.root}/a", f"{other}/b")
    assert scene.copy(f"{scene.root}/a", f"{other}/b").files == 0
    scene.copy(f"{other}/b", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)
    scene.copy(source, scene.folder / "copy")
    assert tree(scene.folder / "copy") == tree(source)


def test_files_and_folders_are_recognised(scene: Scene) -> None:
    source = fill(scene.folder / "source", {"model.pt": 10, "sub/x": 5})
    scene.copy(source / "model.pt", f"{scene.root}/named")
    scene.copy(source / "model.pt", f"{scene.root}/into/")
    scene.copy(source / "sub", f"{scene.root}/into")
    scene.copy(source / "sub" / "x", f"{scene.root}/into")
    listed = [entry["path"] for entry in scene.json("ls", "-r", scene.root)]
    assert sorted(listed) == ["into/model.pt", "into/x", "named"]
    with pytest.raises(StoreError, match="is a file"):
        scene.copy(source, f"{scene.root}/named")
    with pytest.raises(NoSuchPlace, match="does not exist"):
        scene.copy(f"{scene.root}/nam", scene.folder / "back")
    with pytest.raises(UsageError, match="into itself"):
        scene.copy(f"{scene.root}/into", f"{scene.root}/into/deeper")
    scene.copy(f"{scene.root}/named", scene.folder / "source")
    assert (source / "named").read_bytes() == (source / "model.pt").read_bytes()


def test_what_was_damaged_in_the_store_does_not_arrive(scene: Scene) -> None:
    names = ("small", "tiny", "large")
    source = fill(scene.folder / "source", {"small": 1000, "tiny": 5, "large": 9 * MIB})
    scene.copy(source, f"{scene.root}/x")
    _damage(scene)
    for name in names:
        with pytest.raises((StoreError, Damaged), match="does not match its checksum"):
            scene.copy(f"{scene.root}/x/{name}", scene.folder / "back" / name)
    assert not {*names} & {path.name for path in (scene.folder / "back").iterdir()}


def _damage(scene: Scene) -> None:
    """Other bytes under the checksums of petctl's upload."""
    if scene.root.startswith("s3"):
        # Its ETag comes from the content, so what is false is what petctl noted beside it.
        client, bucket = scene.server.client(), scene.root.removeprefix("s3://")
        client.put_object(Bucket=bucket, Key="x/small", Body=bytes(1000), Metadata={"petctlmd5": "0" * 32})
        client.put_object(Bucket=bucket, Key="x/tiny", Body=bytes(5), Metadata={"petctlcrc32": "AAAAAA=="})
        upload = client.create_multipart_upload(Bucket=bucket, Key="x/large", Metadata={"petctlmd5": "0" * 32 + "-2"})
        identity = {"Bucket": bucket, "Key": "x/large", "UploadId": upload["UploadId"]}
        parts = [
            {"PartNumber": number, "ETag": client.upload_part(**identity, PartNumber=number, Body=bytes(size))["ETag"]}
            for number, size in ((1, 8 * MIB), (2, MIB))
        ]
        client.complete_multipart_upload(**identity, MultipartUpload={"Parts": parts})
        return
    container = scene.server.client().get_container_client(scene.root.rpartition("/")[2])
    for name, size in (("x/small", 1000), ("x/tiny", 5), ("x/large", 9 * MIB)):
        blob = container.get_blob_client(name)
        noted = blob.get_blob_properties().metadata
        blob.upload_blob(bytes(size), overwrite=True, metadata=noted)


def test_a_file_that_changes_while_it_is_sent_is_an_error(scene: Scene, proxy: Proxy) -> None:
    source = fill(scene.folder / "source", {"growing": 9 * MIB})

    def grow(method: str, target: str) -> None:
        if method == "PUT":
            with open(source / "growing", "ab") as file:
                file.write(b"more")

    proxy.before = grow
    with pytest.raises(StoreError, match="changed while it was read"):
        scene.copy(source, f"{scene.root}/x")
    proxy.before = lambda method, target: None
    scene.copy(source, f"{scene.root}/x")
    scene.copy(f"{scene.root}/x", scene.folder / "back")
    assert tree(scene.folder / "back") == tree(source)


def test_a_link_to_a_folder_above_has_an_end(scene: Scene) -> None:
    source = fill(scene.folder / "source", {"sub/x": 5})
    (source / "sub" / "loop").symlink_to(source / "sub")
    (source / "to a file").symlink_to(source / "sub" / "x")
    scene.copy(source, f"{scene.root}/x")
    listed = sorted(entry["path"] for entry in scene.json("ls", "-r", f"{scene.root}/x"))
    assert listed[0] == "sub/loop/x" or listed[0] == "sub/x"
    assert "to a file" in listed and len(listed) <= 3


def test_a_server_of_this_machine_is_not_asked_through_a_proxy(scene: Scene) -> None:
    """The way through one is tested beside the rule itself: tests/unit/storage/test_proxies.py."""
    source = fill(scene.folder / "source", {"small": 10, "sub/large": 9 * MIB})
    with Proxy(scene.server.port) as between:
        scene.environment["http_proxy"] = between.url
        scene.petctl("up", source, f"{scene.root}/x")
        assert {entry["path"] for entry in scene.json("ls", "-r", f"{scene.root}/x")} == {"small", "sub/large"}
        scene.petctl("down", f"{scene.root}/x", scene.folder / "back")
        assert scene.json("sync", source, f"{scene.root}/x")["skipped"] >= 1
        scene.petctl("rm", "--yes", f"{scene.root}/x/sub")
        assert not {one.method for one in between.take()} & {"PUT", "GET", "HEAD"}
    assert tree(scene.folder / "back") == tree(source)
