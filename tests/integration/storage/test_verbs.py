"""petctl data as people use it: what it prints, what it asks, what its exit codes are."""

from __future__ import annotations

import os
import pty
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from tests.integration.storage.conftest import Scene, fill, tree

SIZES = {"a.txt": 3, "sub/b": 5, "sub/deep/c": 7, "subway": 11}


@pytest.fixture
def full(scene: Scene) -> Scene:
    scene.copy(fill(scene.folder / "source", SIZES), f"{scene.root}/x")
    return scene


def test_ls_du_and_url(full: Scene) -> None:
    lines = full.petctl("ls", f"{full.root}/x").stdout.splitlines()
    assert sorted(line.split()[-1] for line in lines) == ["a.txt", "sub/", "subway"]
    everything = full.json("ls", "-r", f"{full.root}/x/")
    assert {entry["path"]: entry["size"] for entry in everything} == SIZES
    assert full.json("ls", f"{full.root}/x/a.txt")[0]["size"] == 3
    assert full.json("du", f"{full.root}/x", f"{full.root}/x/sub") == [
        {"location": f"{full.root}/x", "bytes": 26, "files": 4},
        {"location": f"{full.root}/x/sub", "bytes": 12, "files": 2},
    ]
    link = full.petctl("url", "--expires", "10m", f"{full.root}/x/a.txt").stdout.strip()
    with urllib.request.urlopen(link, timeout=60) as answer:
        assert answer.read() == (full.folder / "source" / "a.txt").read_bytes()
    full.petctl("url", f"{full.root}/x/sub", code=2)


def test_a_link_works_for_any_name(scene: Scene) -> None:
    name = "a b/ü+&%.txt"
    fill(scene.folder / "source", {name: 5})
    scene.copy(scene.folder / "source", f"{scene.root}/x")
    link = scene.petctl("url", f"{scene.root}/x/{name}").stdout.strip()
    with urllib.request.urlopen(link, timeout=60) as answer:
        assert answer.read() == (scene.folder / "source" / name).read_bytes()


def test_rm_takes_the_path_and_not_what_shares_its_letters(full: Scene) -> None:
    refused = full.petctl("rm", f"{full.root}/x/sub", code=2)
    assert "--yes" in refused.stderr
    assert full.petctl("rm", "-n", f"{full.root}/x/sub").stdout.split() == [
        f"{full.root}/x/sub/b",
        f"{full.root}/x/sub/deep/c",
    ]
    full.petctl("rm", "--yes", f"{full.root}/x/sub")
    full.petctl("rm", f"{full.root}/x/a.txt")
    assert [entry["path"] for entry in full.json("ls", "-r", f"{full.root}/x")] == ["subway"]
    full.petctl("rm", f"{full.root}/x/su", code=4)


def test_rm_asks_on_a_terminal(full: Scene) -> None:
    for answer, left in ((b"n\n", 4), (b"y\n", 2)):
        main, side = pty.openpty()
        try:
            process = subprocess.Popen(
                full.words("rm", f"{full.root}/x/sub"), stdin=side, stderr=side, stdout=side, env=full.environ()
            )
            os.write(main, answer)
            process.wait(60)
        finally:
            os.close(main)
            os.close(side)
        assert full.json("du", f"{full.root}/x")[0]["files"] == left


def test_sync_makes_the_target_the_same(full: Scene) -> None:
    source = full.folder / "source"
    (source / "subway").unlink()
    fill(source, {"new": 4, "a.txt": 30}, seed=2)
    target = f"{full.root}/x"
    assert "--yes" in full.petctl("sync", "--delete", source, target, code=2).stderr
    done = full.json("sync", "--delete", "--dry-run", source, target)
    assert done["removed"] == 1
    done = full.json("sync", "--delete", "--yes", source, target)
    assert done["removed"] == 1
    back = full.folder / "back"
    fill(back, {"stale": 1, "sub/stale": 2})
    elsewhere = fill(full.folder / "elsewhere", {"not ours": 3})
    (back / "link").symlink_to(elsewhere)
    full.petctl("sync", "--delete", "--yes", target, back)
    assert (elsewhere / "not ours").exists(), "removed through a link"
    (back / "link").unlink()
    assert tree(back) == tree(source)


def test_down_uses_the_name_and_says_what_it_did(full: Scene) -> None:
    done = full.petctl("down", f"{full.root}/x/sub")
    assert "copied 2 files" in done.stderr
    assert tree(full.folder / "sub") == tree(full.folder / "source" / "sub")
    done = full.petctl("down", "-v", f"{full.root}/x/sub")
    assert "2 were already there" in done.stderr
    assert "deep/c: skipped: same size and time" in done.stderr
    assert full.json("down", "-n", f"{full.root}/x")["files"] == 4
    assert not (full.folder / "x").exists()


def test_each_error_has_its_sentence_and_code(full: Scene) -> None:
    source = full.folder / "source"
    missing = full.root + "-missing"
    for words in (("ls", missing), ("up", source, f"{missing}/x"), ("down", f"{missing}/x")):
        assert "does not exist; create it first" in full.petctl(*words, code=4).stderr
    assert "neither a file nor a folder" in full.petctl("down", f"{full.root}/nothing", code=4).stderr
    assert "does not exist" in full.petctl("up", full.folder / "none", f"{full.root}/x", code=4).stderr
    good = full.environment
    wrong = {"AWS_SECRET_ACCESS_KEY": "wrong", "AZURE_STORAGE_ACCOUNT_KEY": "d3Jvbmc="}
    full.environment = {**good, **wrong}
    for words in (("ls", full.root), ("up", source, f"{full.root}/y"), ("rm", f"{full.root}/x/a.txt")):
        error = full.petctl(*words, code=5).stderr
        assert "key" in error
        assert "wrong=" not in error and "d3Jvbmc=" not in error
    nobody = {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:1/devstoreaccount1"}
    full.environment = {**good, **nobody}
    assert "Connection refused" in full.petctl("ls", full.root, code=6).stderr


def test_a_sas_opens_azure_and_an_expired_one_says_so(azurite, tmp_path: Path) -> None:
    from datetime import datetime, timedelta, timezone

    from petctl.storage.core.signing import blob_sas
    from tests.integration.storage.servers import ACCOUNT, ACCOUNT_KEY

    root = azurite.make(f"sas-{time.time_ns()}")
    environment = azurite.environment()
    del environment["AZURE_STORAGE_ACCOUNT_KEY"]
    scene = Scene(azurite, root, tmp_path, environment)
    now = datetime.now(timezone.utc)
    source = fill(tmp_path / "source", {"small": 10, "large": 9 << 20})

    container = root.rpartition("/")[2]

    def sas(hours: float) -> str:
        begin = now - timedelta(hours=2)
        return blob_sas(ACCOUNT, ACCOUNT_KEY, container, "", "racwdl", begin, now + timedelta(hours=hours), https=False)

    environment["AZURE_STORAGE_SAS_TOKEN"] = sas(1)
    scene.petctl("up", source, f"{root}/x")
    web = root.replace(f"az://{ACCOUNT}", f"https://{ACCOUNT}.blob.core.windows.net")
    del environment["AZURE_STORAGE_SAS_TOKEN"]
    scene.petctl("down", f"{web}/x?{sas(1)}", tmp_path / "back")
    assert tree(tmp_path / "back") == tree(source)
    environment["AZURE_STORAGE_SAS_TOKEN"] = sas(-1)
    error = scene.petctl("ls", root, code=5).stderr
    assert "the SAS has expired" in error
    assert "sig" not in error


def test_a_share_and_an_endpoint_from_the_configuration(full: Scene) -> None:
    share = full.folder / "share"
    endpoint = full.environment.pop("AWS_ENDPOINT_URL", "") or full.environment.pop("AZURE_STORAGE_ENDPOINT")
    (full.folder / "petctl.yaml").write_text(
        f"stores:\n  {full.root}: {{endpoint: '{endpoint}'}}\n"
        f"  https://acc.file.core.windows.net/team: {{directory: {share}}}\n"
    )
    full.petctl("cp", f"{full.root}/x", "https://acc.file.core.windows.net/team/set")
    assert tree(share / "set") == tree(full.folder / "source")
